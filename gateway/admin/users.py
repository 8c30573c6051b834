"""REST for users: ``/v1/users``. Passwords are never returned."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.requests import NotFound, changes, path_text, read_body
from gateway.admin.state import AdminState
from gateway.auth.password_hashes import mechanism_of
from gateway.auth.users import StoredUsers
from gateway.config.base import FrozenConfig
from gateway.errors import InvalidRequest


class UserNotFound(NotFound):
    """Unknown user name."""


class NewPassword(FrozenConfig):
    """Body of ``PUT /v1/users/<name>``."""

    password: str
    administrator: bool | None = None


def routes(state: AdminState) -> list[Route]:
    """Return the routes below ``/v1/users``."""

    async def list_users(_: Request) -> Response:
        users = _users(state)
        listed = [
            {
                "name": name,
                "mechanisms": [mechanism_of(one) for one in users.stored(name)],
                "administrator": users.is_super_user(name),
                "origin": "config" if users.is_declared(name) else "store",
            }
            for name in users.names()
        ]
        return JSONResponse({"users": listed})

    async def put(request: Request) -> Response:
        body = await read_body(request, NewPassword)
        users, asked = _users(state), path_text(request, "user")
        with changes(state.running(), request, "user.put", asked):
            added = await users.add_user(asked, body.password, administers=body.administrator)
        return JSONResponse(
            {
                "name": added.name,
                "administrator": added.is_administrator,
                "login_is_new": added.login_is_new,
                "authentication_required": users.required,
            }
        )

    async def delete(request: Request) -> Response:
        name = path_text(request, "user")
        with changes(state.running(), request, "user.remove", name):
            if not await _users(state).remove_user(name):
                raise UserNotFound(f"no user {name!r}")
        return Response(status_code=204)

    return [
        Route("/users", list_users, methods=["GET"]),
        Route("/users/{user}", put, methods=["PUT"]),
        Route("/users/{user}", delete, methods=["DELETE"]),
    ]


def _users(state: AdminState) -> StoredUsers:
    authenticator = state.running().authenticator
    if not isinstance(authenticator, StoredUsers):
        msg = "this node's users are kept elsewhere"
        raise InvalidRequest(msg)
    return authenticator
