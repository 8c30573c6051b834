"""Views and changes of adapters: who may ask for them, and views that are coroutines."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from gateway.admin.adapter_views import routes
from gateway.admin.requests import CALLER
from gateway.admin.roles import Caller, Role
from gateway.admin_views import Action, AdminAction, View, ViewQuery
from gateway.auth.ports import Principal
from gateway.config.base import FrozenConfig
from gateway.errors import Unauthorized
from tests.gateway.admin.kernel_with_admin import Adapter, Setup, running_admin


class Shown(Adapter):
    """Adapter with two views, and a change for operators and one for administrators."""

    def admin_views(self) -> Mapping[str, View]:
        return {"now": lambda _: {"n": 1}, "later": self._later}

    async def _later(self, query: ViewQuery) -> dict[str, Any]:
        return {"limit": query.limit}

    def admin_actions(self) -> Mapping[str, Action | AdminAction]:
        return {"turn": self._change, "close": AdminAction(self._change)}

    async def _change(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"changed": values["name"]}


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    async with running_admin(tmp_path) as found:
        found.state.adapters["tiny"] = Shown(FrozenConfig(), found.kernel)  # type: ignore[index]
        yield found


async def call(setup: Setup, method: str, name: str, role: Role | None = None) -> bytes:
    """Call a view or a change as a session with a role; None as the holder of the token."""
    (route,) = routes(setup.state)
    body = b'{"values": {"name": "x"}}'
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "headers": [],
        "query_string": b"limit=7",
        "path_params": {"adapter": "tiny", "view": name},
    }
    if role is not None:
        scope[CALLER] = Caller(Principal("u", "console", ""), role)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return bytes((await route.endpoint(Request(scope, receive))).body)


async def test_a_view_may_be_a_coroutine(setup: Setup) -> None:
    assert await call(setup, "GET", "now") == b'{"n":1}'
    assert await call(setup, "GET", "later") == b'{"limit":7}'


async def test_some_changes_are_for_administrators(setup: Setup) -> None:
    assert await call(setup, "POST", "turn", Role.OPERATOR) == b'{"changed":"x"}'
    assert await call(setup, "POST", "close", Role.ADMIN) == b'{"changed":"x"}'
    assert await call(setup, "POST", "close") == b'{"changed":"x"}'
    with pytest.raises(Unauthorized, match="this needs the role admin; yours is operator"):
        await call(setup, "POST", "close", Role.OPERATOR)
