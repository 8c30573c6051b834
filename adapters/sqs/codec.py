"""Decoding of requests: wire protocol, operation and parameters. Pure.

A request with ``X-Amz-Target`` uses AWS JSON; a form or a query string is the Query protocol. Both
give the same parameters. A queue in the URL's path need not be named again.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from adapters.sqs.call import Params
from adapters.sqs.errors import (
    INVALID_ACTION,
    MISSING_ACTION,
    UNKNOWN_OPERATION,
    SqsError,
    missing_parameter,
)
from adapters.sqs.http.body_limits import ELEMENTS_MAX, check_elements
from adapters.sqs.http.json_codec import decode_json
from adapters.sqs.http.operations import OPERATIONS
from adapters.sqs.http.query_codec import decode_query, parse_form
from adapters.sqs.http.shapes import Operation
from adapters.sqs.http.sts import GET_CALLER_IDENTITY
from adapters.sqs.queues.urls import parse_queue_url
from adapters.sqs.wire import FORM, Request

TARGET: Final = b"x-amz-target"
_JSON: Final = b"application/json"

Fields = dict[str, str]

TARGETS: Final[Mapping[bytes, Operation]] = {
    f"AmazonSQS.{name}".encode(): operation for name, operation in OPERATIONS.items()
}
RECEIVE_BODIES_CACHED_MAX: Final = 1_024  # of receives
CACHED_BODY_BYTES_MAX: Final = 1_024
_BY_QUERY: Final[Mapping[str, Operation]] = {
    **OPERATIONS,
    GET_CALLER_IDENTITY.name: GET_CALLER_IDENTITY,
}
_NOT_AT_QUEUE_URL: Final = frozenset({"CreateQueue", "ListQueues"})
_ENTRIES: Final = "Entries"  # of a batch
_RECEIVE: Final = OPERATIONS["ReceiveMessage"]
_QUEUE_URL: Final = "QueueUrl"
_SHOWN_CHARS: Final = 100


def is_json(request: Request) -> bool:
    """Return whether a request uses AWS JSON and is answered in it."""
    return TARGET in request.headers and request.method == b"POST"


def accepts_json(request: Request) -> bool:
    """Return whether a request of the Query protocol accepts an answer in JSON."""
    return request.headers.get(b"accept", b"").partition(b";")[0].strip().lower() == _JSON


def find_operation(request: Request, *, in_json: bool) -> tuple[Operation, Fields | None]:
    """Return the operation of a request, and the fields of a Query request.

    Errors: ``SqsError`` (no action, or an unknown one).
    """
    if in_json:
        operation = TARGETS.get(request.headers[TARGET])
        if operation is None:
            raise SqsError(UNKNOWN_OPERATION, "The operation is not known.")
        return operation, None
    fields = _find_fields(request)
    action = fields.get("Action")
    if action is None:
        raise SqsError(MISSING_ACTION, "The request must contain the parameter Action.")
    operation = _BY_QUERY.get(action)
    if operation is None or (action in _NOT_AT_QUEUE_URL and request.path != b"/"):
        msg = f"The action {action[:_SHOWN_CHARS]} is not valid for this endpoint."
        raise SqsError(INVALID_ACTION, msg)
    return operation, fields


def _find_fields(request: Request) -> Fields:
    if request.method != b"POST":
        return parse_form(request.query)
    content_type = request.headers.get(b"content-type", FORM)
    if content_type.partition(b";")[0].strip().lower() != FORM:
        raise SqsError(UNKNOWN_OPERATION, "The request names no operation.")
    return parse_form(request.query) | parse_form(request.body)


def decode_params(
    operation: Operation,
    request: Request,
    fields: Fields | None,
    *,
    elements_max: int = ELEMENTS_MAX,
) -> Params:
    """Return the parameters, all required ones included. Callers must not change the dict.

    ``elements_max`` limits names and values of a large JSON body. Errors: ``SqsError``.
    """
    if fields is not None:
        params = decode_query(operation, fields)
    elif operation is _RECEIVE and len(request.body) <= CACHED_BODY_BYTES_MAX:
        params = _receive_params(request.body)
    else:
        check_elements(request.body, elements_max)
        params = decode_json(operation, request.body)
    for name in operation.input.required:
        if name not in params:
            params = params | {name: _default_of(name, request, in_query=fields is not None)}
    return params


def _default_of(name: str, request: Request, *, in_query: bool) -> object:
    """Return a missing parameter: the path's queue, or no entries for a form's batch."""
    if name == _ENTRIES and in_query:
        return []
    if name != _QUEUE_URL or request.path == b"/":
        raise missing_parameter(name)
    path = request.path.decode("latin-1")
    parse_queue_url(path)
    return path


@lru_cache(maxsize=RECEIVE_BODIES_CACHED_MAX)
def _receive_params(body: bytes) -> Params:
    """Return the parameters of a ReceiveMessage; receivers mostly repeat the same body."""
    return decode_json(_RECEIVE, body)
