"""HTTP answers for errors of the admin endpoint.

An error is ``{"error": "TopicNotFound", "message": "...", "retriable": true}`` with an HTTP
status from ``STATUS``, in which the nearest base class wins. A partition or a group of another
node is answered with status 421 and ``"owner": {"node_id": 2, "epoch": 7}``; the number is -1
while nobody owns it.
"""

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from gateway import errors
from gateway.admin.requests import NotFound
from gateway.auth.access_keys import AccessKeyExists
from gateway.exchanges.standard import (
    BindingNotFound,
    ExchangeExists,
    ExchangeInUse,
    ExchangeNotFound,
)

STATUS: Final[Mapping[type[errors.GatewayError], int]] = {
    errors.GatewayError: 500,
    errors.PeerError: 400,
    errors.RequestError: 400,
    errors.TopicNotFound: 404,
    errors.GroupNotFound: 404,
    errors.TransactionNotFound: 404,
    errors.TopicExists: 409,
    AccessKeyExists: 409,
    ExchangeExists: 409,
    ExchangeInUse: 409,
    ExchangeNotFound: 404,
    BindingNotFound: 404,
    NotFound: 404,
    errors.GroupNotEmpty: 409,
    errors.GroupSubscribed: 409,
    errors.RebalanceInProgress: 409,
    errors.Unauthenticated: 401,
    errors.Unauthorized: 403,
    errors.PolicyViolation: 403,
    errors.NotOwner: 421,
    errors.CoordinatorLoading: 503,
    errors.StorageUnavailable: 503,
    errors.StorageFull: 507,
    errors.Overloaded: 429,
    errors.ShuttingDown: 503,
}


def error_answer(error: errors.GatewayError) -> Response:
    """Return the REST response for an error."""
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    content: dict[str, Any] = {
        "error": type(error).__name__,
        "message": str(error) or (type(error).__doc__ or "").splitlines()[0],
        "retriable": error.retriable,
    }
    if isinstance(error, errors.NotOwner):
        content["owner"] = {"node_id": error.owner_id, "epoch": error.epoch}
    return JSONResponse(content, status)
