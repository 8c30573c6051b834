"""REST for adapters: ``/v1/adapters/<adapter>/<view>``, as far as an adapter has such views."""

from inspect import isawaitable
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.paging import LIMIT_MAX, whole_number
from gateway.admin.requests import NotFound, changes, check_admin, path_text, read_body
from gateway.admin.state import AdminState
from gateway.admin_views import AdminAction, HasAdminViews, ViewQuery
from gateway.config.base import FrozenConfig
from gateway.errors import InvalidRequest


class ViewNotFound(NotFound):
    """No running adapter has such a view."""


class ActionBody(FrozenConfig):
    """Body of a change; ``values`` has the keys that the adapter knows."""

    values: dict[str, Any] = Field(default_factory=dict)


def routes(state: AdminState) -> list[Route]:
    """Return the route."""

    async def view_or_action(request: Request) -> Response:
        kernel = state.running()
        name, asked = path_text(request, "adapter"), path_text(request, "view")
        adapter: object = state.adapters.get(name)
        if not isinstance(adapter, HasAdminViews):
            raise ViewNotFound(f"no adapter {name!r} with views is running")
        if request.method == "POST":
            action = adapter.admin_actions().get(asked)
            if action is None:
                raise ViewNotFound(f"adapter {name!r} has no change {asked!r}")
            if isinstance(action, AdminAction):
                check_admin(request)
                action = action.run
            body = await read_body(request, ActionBody)
            with changes(kernel, request, f"{name}.{asked}", str(body.values)[:100]):
                return JSONResponse(await action(body.values))
        view = adapter.admin_views().get(asked)
        if view is None:
            raise ViewNotFound(f"adapter {name!r} has no view {asked!r}")
        found = view(_query(request))
        return JSONResponse(await found if isawaitable(found) else found)

    path = "/adapters/{adapter}/{view}"
    return [Route(path, view_or_action, methods=["GET", "POST"])]


def _query(request: Request) -> ViewQuery:
    values = request.query_params
    limit, offset = whole_number(values, "limit", 50), whole_number(values, "offset", 0)
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidRequest(f"limit: 1 to {LIMIT_MAX}")
    return ViewQuery(values, limit, offset, values.get("contains", ""))
