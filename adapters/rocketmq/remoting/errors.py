"""Errors of the gateway to response codes, and refusals with a code of their own."""

from typing import Final

from adapters.rocketmq.remoting.wire import ResponseCode
from gateway import errors
from gateway.errors import GatewayError, RequestError, public_text


class Refused(RequestError):
    """Refusal with a response code and a remark of the protocol."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


CODES: Final[dict[type[GatewayError], ResponseCode]] = {
    GatewayError: ResponseCode.SYSTEM_ERROR,
    errors.TopicNotFound: ResponseCode.TOPIC_NOT_EXIST,
    errors.InvalidTopicName: ResponseCode.INVALID_PARAMETER,
    errors.InvalidPartitions: ResponseCode.INVALID_PARAMETER,
    errors.InvalidRequest: ResponseCode.INVALID_PARAMETER,
    errors.InvalidGroupId: ResponseCode.INVALID_PARAMETER,
    errors.InvalidRecord: ResponseCode.MESSAGE_ILLEGAL,
    errors.CorruptBatch: ResponseCode.MESSAGE_ILLEGAL,
    errors.MessageTooLarge: ResponseCode.MESSAGE_ILLEGAL,
    errors.RunTooLarge: ResponseCode.MESSAGE_ILLEGAL,
    errors.PolicyViolation: ResponseCode.NO_PERMISSION,
    errors.QueueFull: ResponseCode.SYSTEM_BUSY,
    errors.Unauthenticated: ResponseCode.NO_PERMISSION,
    errors.Unauthorized: ResponseCode.NO_PERMISSION,
    errors.OffsetOutOfRange: ResponseCode.PULL_OFFSET_MOVED,
    errors.Overloaded: ResponseCode.SYSTEM_BUSY,
    # A client goes on to another queue with these.
    errors.StorageUnavailable: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.ShuttingDown: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.NotOwner: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.CoordinatorLoading: ResponseCode.SERVICE_NOT_AVAILABLE,
}
"""Response codes by error; the nearest base class counts."""


def code_of(error: GatewayError) -> ResponseCode:
    """Return the response code for an error."""
    if isinstance(error, Refused):
        return error.code
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def remark_of(error: GatewayError) -> str:
    """Return the remark for an error."""
    return public_text(error)
