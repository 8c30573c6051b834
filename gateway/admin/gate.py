"""Gate of the admin endpoint: the token, or the session of a browser."""

import hmac
from importlib import import_module
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import errors
from gateway.admin.error_answers import error_answer
from gateway.admin.requests import ADMIN, CALLER
from gateway.admin.sessions import RequestFacts, Sessions
from gateway.admin.state import AdminState
from gateway.auth.login_throttle import Peer

_CONSOLE: Final = "console.app"
_REST: Final = "/v1/"


class Gate:
    """Middleware that requires the token or a session, except for health and metrics.

    It also matches routes by the path as it came: a group id may hold a ``/``, which is ``%2F``
    in the path; handlers decode their parameters. The console checks its sessions itself.
    """

    OPEN: Final = frozenset({"/healthz", "/readyz", "/metrics"})

    def __init__(self, app: ASGIApp, token: str, state: AdminState, sessions: Sessions) -> None:
        self._app = app
        self._state = state
        self._sessions = sessions
        self._expected = f"Bearer {token}".encode()
        self._console: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on with its caller."""
        if scope["type"] != "http":
            return
        path, headers = scope["path"], dict(scope["headers"])
        app = self._app
        try:
            if path in self.OPEN:
                self._sessions.check_host(headers)
            elif path == "/" or path.startswith("/console"):
                self._sessions.check_host(headers)
                app = self._console_app()
            else:
                scope = self._admit(scope, headers)
        except errors.GatewayError as error:
            await error_answer(errors.as_value(error))(scope, receive, send)
            return
        await app(scope, receive, send)

    def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> dict[str, Any]:
        """Return the scope for a REST call. Errors: ``Unauthenticated``, ``Unauthorized``."""
        raw_path = scope.get("raw_path")
        path = raw_path.decode("ascii", "replace") if raw_path else scope["path"]
        shown = headers.get(b"authorization")
        if shown is None and path.startswith(_REST) and b"cookie" in headers:
            kernel = self._state.running()
            facts = request_facts(scope, headers)
            caller = self._sessions.admit(facts, path.removeprefix(_REST), kernel)
            return {**scope, "path": path, CALLER: caller}
        if not hmac.compare_digest(shown or b"", self._expected):
            error = errors.Unauthenticated("show the token of data_dir/admin.token")
            self._note(scope, error)
            raise error
        return {**scope, "path": path}

    def _console_app(self) -> ASGIApp:
        """Return the console, loaded when it is asked for first."""
        if self._console is None:
            build = import_module(_CONSOLE).build_app
            console: ASGIApp = build(self._state, self._sessions)
            self._console = console
        return self._console

    def _note(self, scope: Scope, error: errors.Unauthenticated) -> None:
        kernel, client = self._state.kernel, scope.get("client")
        if kernel is not None:
            kernel.logins.refuse(Peer(ADMIN, client[0] if client else ""), ADMIN, error)


def request_facts(scope: Scope, headers: dict[bytes, bytes]) -> RequestFacts:
    """Return the parts of a request that decide about it."""
    client, server = scope.get("client"), scope.get("server")
    return RequestFacts(
        scope["method"],
        scope["scheme"],
        client[0] if client else "",
        server[1] or 0 if server else 0,
        headers,
    )
