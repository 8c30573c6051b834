"""Errors of the HTTP API, in RabbitMQ's words: a status, and ``{"error": ..., "reason": ...}``."""

from http import HTTPStatus
from typing import Final

from starlette.responses import JSONResponse, Response

from adapters.amqp.v091.errors import AmqpFault, ReplyCode, to_fault
from gateway import errors

_REFUSED: Final = frozenset({ReplyCode.ACCESS_REFUSED, ReplyCode.NOT_ALLOWED})
_REALM: Final = 'Basic realm="RabbitMQ Management"'


class ApiFault(errors.RequestError):
    """Request that is refused. ``reason`` is text for people."""

    def __init__(self, status: HTTPStatus, error: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error
        self.reason = reason

    def to_response(self) -> Response:
        """Return the answer."""
        is_login = self.status is HTTPStatus.UNAUTHORIZED
        headers = {"www-authenticate": _REALM} if is_login else None
        content = {"error": self.error, "reason": self.reason}
        return JSONResponse(content, self.status, headers)


def bad_request(reason: str) -> ApiFault:
    """Return the fault for a request that makes no sense."""
    return ApiFault(HTTPStatus.BAD_REQUEST, "bad_request", reason)


def not_found() -> ApiFault:
    """Return the fault for a thing of the path that is not there."""
    return ApiFault(HTTPStatus.NOT_FOUND, "Object Not Found", "Not Found")


def no_destination(reason: str) -> ApiFault:
    """Return the fault for the end of a binding that is not there."""
    return ApiFault(HTTPStatus.NOT_FOUND, "not_found", reason)


def not_authorised(reason: str) -> ApiFault:
    """Return the fault for a user who may not do that."""
    return ApiFault(HTTPStatus.UNAUTHORIZED, "not_authorised", reason)


def to_api_fault(error: errors.GatewayError) -> ApiFault:
    """Return an error of the gateway as the fault that a client is told.

    Faults of AMQP's methods: 404 and 403 have statuses of their own, others are bad requests.
    """
    if isinstance(error, ApiFault):
        return error
    if isinstance(error, errors.Overloaded | errors.ShuttingDown | errors.StorageUnavailable):
        return ApiFault(HTTPStatus.SERVICE_UNAVAILABLE, "service_unavailable", str(error))
    fault = error if isinstance(error, AmqpFault) else to_fault(error)
    if fault.code == ReplyCode.NOT_FOUND:
        return ApiFault(HTTPStatus.NOT_FOUND, "not_found", fault.explanation)
    if isinstance(error, AmqpFault) and fault.code in _REFUSED:
        return not_authorised("Access refused.")
    return bad_request(fault.explanation)
