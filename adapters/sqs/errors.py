"""Error codes of SQS in both protocols, and the gateway's errors that they stand for.

The JSON protocol names the shape (``com.amazonaws.sqs#QueueDoesNotExist``), the Query protocol and
the header ``x-amzn-query-error`` the older code (``AWS.SimpleQueueService.NonExistentQueue``).
"""

from typing import Final, NamedTuple

from gateway import errors

_OLD: Final = "AWS.SimpleQueueService."
_NO_QUEUE: Final = "The specified queue does not exist."
_NO_QUEUE_OF_VERSION: Final = "The specified queue does not exist for this wsdl version."


class ErrorCode(NamedTuple):
    """``shape`` is the JSON name, ``query_code`` Query's, ``is_sender`` the client's fault."""

    shape: str
    query_code: str
    status: int = 400
    is_sender: bool = True


def _legacy(shape: str, name: str | None = None) -> ErrorCode:
    return ErrorCode(shape, _OLD + (name or shape))


def _same(shape: str, status: int = 400) -> ErrorCode:
    return ErrorCode(shape, shape, status)


BATCH_ENTRY_IDS_NOT_DISTINCT: Final = _legacy("BatchEntryIdsNotDistinct")
BATCH_REQUEST_TOO_LONG: Final = _legacy("BatchRequestTooLong")
EMPTY_BATCH_REQUEST: Final = _legacy("EmptyBatchRequest")
INVALID_BATCH_ENTRY_ID: Final = _legacy("InvalidBatchEntryId")
MESSAGE_NOT_INFLIGHT: Final = _legacy("MessageNotInflight")
PURGE_QUEUE_IN_PROGRESS: Final = ErrorCode(
    "PurgeQueueInProgress", _OLD + "PurgeQueueInProgress", 403
)
QUEUE_DELETED_RECENTLY: Final = _legacy("QueueDeletedRecently")
QUEUE_DOES_NOT_EXIST: Final = _legacy("QueueDoesNotExist", "NonExistentQueue")
TOO_MANY_ENTRIES_IN_BATCH_REQUEST: Final = _legacy("TooManyEntriesInBatchRequest")
UNSUPPORTED_OPERATION: Final = _legacy("UnsupportedOperation")
QUEUE_NAME_EXISTS: Final = ErrorCode("QueueNameExists", "QueueAlreadyExists")
INVALID_ATTRIBUTE_NAME: Final = _same("InvalidAttributeName")
INVALID_ATTRIBUTE_VALUE: Final = _same("InvalidAttributeValue")
INVALID_ADDRESS: Final = _same("InvalidAddress", 404)
INVALID_ID_FORMAT: Final = _same("InvalidIdFormat")
INVALID_MESSAGE_CONTENTS: Final = _same("InvalidMessageContents")
INVALID_SECURITY: Final = _same("InvalidSecurity")
OVER_LIMIT: Final = _same("OverLimit", 403)
RECEIPT_HANDLE_IS_INVALID: Final = _same("ReceiptHandleIsInvalid", 404)
REQUEST_THROTTLED: Final = _same("RequestThrottled", 403)
RESOURCE_NOT_FOUND: Final = _same("ResourceNotFoundException", 404)

# Errors that all AWS services share; no service model lists them.
ACCESS_DENIED: Final = ErrorCode("AccessDeniedException", "AccessDenied", 403)
INCOMPLETE_SIGNATURE: Final = _same("IncompleteSignature", 400)
INTERNAL_FAILURE: Final = ErrorCode("InternalFailure", "InternalFailure", 500, is_sender=False)
INVALID_ACTION: Final = _same("InvalidAction")
INVALID_CLIENT_TOKEN_ID: Final = ErrorCode(
    "UnrecognizedClientException", "InvalidClientTokenId", 403
)
INVALID_PARAMETER_VALUE: Final = ErrorCode(
    "InvalidParameterValueException", "InvalidParameterValue"
)
MALFORMED_INPUT: Final = ErrorCode("SerializationException", "MalformedInput")
MISSING_ACTION: Final = _same("MissingAction")
MISSING_AUTHENTICATION_TOKEN: Final = ErrorCode(
    "MissingAuthenticationTokenException", "MissingAuthenticationToken", 403
)
MISSING_PARAMETER: Final = ErrorCode("MissingRequiredParameterException", "MissingParameter")
REQUEST_EXPIRED: Final = _same("RequestExpired", 403)
REQUEST_TOO_LARGE: Final = ErrorCode("RequestEntityTooLarge", "RequestEntityTooLarge", 413)
SERVICE_UNAVAILABLE: Final = ErrorCode(
    "ServiceUnavailable", "ServiceUnavailable", 503, is_sender=False
)
SIGNATURE_DOES_NOT_MATCH: Final = ErrorCode(
    "InvalidSignatureException", "SignatureDoesNotMatch", 403
)
UNKNOWN_OPERATION: Final = ErrorCode("UnknownOperationException", "InvalidAction")


class SqsError(Exception):
    """A request, or one entry of a batch, is refused with an error of SQS."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def query_message(self) -> str:
        """The error's text in the Query protocol."""
        return _NO_QUEUE_OF_VERSION if self.message == _NO_QUEUE else self.message


ERROR_CODES: Final[dict[type[errors.GatewayError], ErrorCode]] = {
    errors.GatewayError: INTERNAL_FAILURE,
    errors.RequestError: INVALID_PARAMETER_VALUE,
    errors.NotOwner: SERVICE_UNAVAILABLE,
    errors.TopicNotFound: QUEUE_DOES_NOT_EXIST,
    errors.TopicExists: QUEUE_NAME_EXISTS,
    errors.InvalidTopicName: INVALID_PARAMETER_VALUE,
    errors.MessageTooLarge: INVALID_PARAMETER_VALUE,
    errors.InvalidConfig: INVALID_ATTRIBUTE_VALUE,
    errors.PolicyViolation: OVER_LIMIT,
    errors.Unauthenticated: INVALID_CLIENT_TOKEN_ID,
    errors.Unauthorized: ACCESS_DENIED,
    errors.StorageUnavailable: SERVICE_UNAVAILABLE,
    errors.Overloaded: REQUEST_THROTTLED,
    errors.ShuttingDown: SERVICE_UNAVAILABLE,
}


def no_queue() -> SqsError:
    """Return the error for a queue that does not exist."""
    return SqsError(QUEUE_DOES_NOT_EXIST, _NO_QUEUE)


def missing_parameter(name: str) -> SqsError:
    """Return the error for a required parameter that a request does not have."""
    return SqsError(MISSING_PARAMETER, f"The request must contain the parameter {name}.")


def invalid_parameter(message: str) -> SqsError:
    """Return the error for a parameter with a value that is not allowed."""
    return SqsError(INVALID_PARAMETER_VALUE, message)


def to_sqs_error(error: errors.GatewayError) -> SqsError:
    """Return the SQS error for a gateway error; the nearest base class decides."""
    code = next(ERROR_CODES[kind] for kind in type(error).__mro__ if kind in ERROR_CODES)
    return SqsError(code, errors.public_text(error) or code.shape)
