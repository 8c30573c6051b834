"""HTTP application of the admin endpoint: health and metrics are open, REST needs the token.

An error is ``{"error": "TopicNotFound", "message": "...", "retriable": true}`` with an HTTP
status from ``STATUS``, in which the nearest base class wins. A partition or a group of another
node is answered with status 421 and ``"owner": {"node_id": 2, "epoch": 7}``; the number is -1
while nobody owns it.
"""

import hmac
from collections.abc import Collection, Mapping
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import errors
from gateway.admin import (
    backup,
    dlq,
    exchanges,
    find,
    groups,
    keys,
    node,
    queues,
    rules,
    scrub,
    topics,
    users,
)
from gateway.admin.requests import ADMIN, NotFound
from gateway.admin.state import AdminState
from gateway.auth.access_keys import AccessKeyExists
from gateway.auth.login_throttle import Peer
from gateway.exchanges.standard import (
    BindingNotFound,
    ExchangeExists,
    ExchangeInUse,
    ExchangeNotFound,
)
from gateway.http_origin import is_known_host
from gateway.metrics import CONTENT_TYPE

STATUS: Final[Mapping[type[errors.GatewayError], int]] = {
    errors.GatewayError: 500,
    errors.PeerError: 400,
    errors.RequestError: 400,
    errors.TopicNotFound: 404,
    errors.GroupNotFound: 404,
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
    errors.NotLeader: 421,
    errors.NotCoordinator: 421,
    errors.CoordinatorLoading: 503,
    errors.StorageUnavailable: 503,
    errors.StorageFull: 507,
    errors.Overloaded: 429,
    errors.ShuttingDown: 503,
}


def build_app(state: AdminState, token: str, hosts: Collection[str] = ()) -> Starlette:
    """Return the application for a node. ``hosts``: see ``AdminConfig``."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        if state.is_ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse("not ready\n", status_code=503)

    async def metrics(_: Request) -> Response:
        return Response(state.metrics.render(), headers={"content-type": CONTENT_TYPE})

    rest = [
        *node.routes(state),
        *topics.routes(state),
        *find.routes(state),
        *backup.routes(state),
        *scrub.routes(state),
        *groups.routes(state),
        *queues.routes(state),
        *exchanges.routes(state),
        *dlq.routes(state),
        *users.routes(state),
        *keys.routes(state),
        *rules.routes(state),
    ]
    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Mount("/v1", routes=rest),
        ],
        middleware=[Middleware(_Gate, token=token, state=state, hosts=hosts)],
        exception_handlers={
            errors.GatewayError: _answer_gateway_error,
            HTTPException: _answer_http_error,
            ClientDisconnect: _answer_nobody,
        },
    )


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


async def _answer_gateway_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, errors.GatewayError)
    return error_answer(error)


async def _answer_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    content = {"error": "Http", "message": error.detail, "retriable": False}
    return JSONResponse(content, error.status_code, error.headers)


async def _answer_nobody(_: Request, _error: Exception) -> Response:
    """Return a response for a client that left during its request; it is never sent."""
    return Response(status_code=400)


class _Gate:
    """Middleware that requires the token, except for health and metrics.

    It also matches routes by the path as it came: a group id may hold a ``/``, which is ``%2F``
    in the path; handlers decode their parameters.
    """

    OPEN: Final = frozenset({"/healthz", "/readyz", "/metrics"})

    def __init__(
        self, app: ASGIApp, token: str, state: AdminState, hosts: Collection[str]
    ) -> None:
        self._hosts = hosts
        self._app = app
        self._state = state
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        if scope["path"] in self.OPEN:
            host = headers.get(b"host")
            if not is_known_host(host and host.decode("latin-1"), self._hosts):
                refusal = errors.Unauthorized("the host name is not in admin.hosts")
                await error_answer(refusal)(scope, receive, send)
                return
        else:
            shown = headers.get(b"authorization", b"")
            if not hmac.compare_digest(shown, self._expected):
                error = errors.Unauthenticated("show the token of data_dir/admin.token")
                self._note(scope, error)
                await error_answer(error)(scope, receive, send)
                return
            raw_path = scope.get("raw_path")
            if raw_path:
                scope = {**scope, "path": raw_path.decode("ascii", "replace")}
        await self._app(scope, receive, send)

    def _note(self, scope: Scope, error: errors.Unauthenticated) -> None:
        kernel, client = self._state.kernel, scope.get("client")
        if kernel is not None:
            kernel.logins.refuse(Peer(ADMIN, client[0] if client else ""), ADMIN, error)
