"""HTTP application of the admin endpoint: health, metrics, REST and the console.

Health and metrics are open. REST needs the token, or the session of a browser
(``gateway.admin.gate``). The calls of REST (``gateway.admin.rest``) and the console (package
``console``) are loaded at their first request: an idle node pays for neither.
"""

from collections.abc import Collection

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import Receive, Scope, Send

from gateway import errors
from gateway.admin.error_answers import error_answer
from gateway.admin.gate import Gate
from gateway.admin.sessions import Sessions
from gateway.admin.state import AdminState
from gateway.metrics import CONTENT_TYPE


def build_app(state: AdminState, token: str, hosts: Collection[str] = ()) -> Starlette:
    """Return the application for a node. ``hosts``: see ``AdminConfig``."""
    sessions = Sessions(token, hosts)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        if state.is_ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse("not ready\n", status_code=503)

    async def metrics(_: Request) -> Response:
        await state.metrics.prepare()
        return Response(state.metrics.render(), headers={"content-type": CONTENT_TYPE})

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Mount("/v1", app=_LateRest(state)),
        ],
        middleware=[Middleware(Gate, token=token, state=state, sessions=sessions)],
        exception_handlers={
            errors.GatewayError: _answer_gateway_error,
            HTTPException: _answer_http_error,
            ClientDisconnect: _answer_nobody,
        },
    )


class _LateRest:
    """The REST interface, loaded at its first request."""

    def __init__(self, state: AdminState) -> None:
        self._state = state
        self._router: Router | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call below ``/v1/``."""
        if self._router is None:
            from gateway.admin.rest import rest_routes

            self._router = Router(rest_routes(self._state))
        await self._router(scope, receive, send)


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
