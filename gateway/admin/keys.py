"""REST for access keys: ``/v1/access-keys`` and ``/v1/users/<name>/keys``.

A secret goes out once, in the answer that makes the key.
"""

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.requests import NotFound, changes, path_text, read_body
from gateway.admin.state import AdminState
from gateway.auth.access_keys import AccessKey, AccessKeys
from gateway.config.base import FrozenConfig


class AccessKeyNotFound(NotFound):
    """Unknown access key id."""


class NewAccessKey(FrozenConfig):
    """Body of ``POST /v1/users/<name>/keys``; null values are generated."""

    account: str = ""
    key_id: str | None = None
    secret: str | None = None


def routes(state: AdminState) -> list[Route]:
    """Return the routes."""

    async def list_all(_: Request) -> Response:
        keys = state.running().access_keys
        return _listing(keys, keys.keys())

    async def list_or_add(request: Request) -> Response:
        keys, user = state.running().access_keys, path_text(request, "user")
        if request.method == "GET":
            return _listing(keys, (key for key in keys.keys() if key.user == user))  # noqa: SIM118
        body = await read_body(request, NewAccessKey)
        with changes(state.running(), request, "key.add", user):
            key = await keys.add(
                user, account=body.account, key_id=body.key_id, secret=body.secret
            )
        return JSONResponse(key._asdict(), 201)

    async def delete(request: Request) -> Response:
        key_id = path_text(request, "key_id")
        with changes(state.running(), request, "key.remove", key_id):
            if not await state.running().access_keys.remove(key_id):
                raise AccessKeyNotFound(f"no access key {key_id!r}")
        return Response(status_code=204)

    return [
        Route("/access-keys", list_all, methods=["GET"]),
        Route("/access-keys/{key_id}", delete, methods=["DELETE"]),
        Route("/users/{user}/keys", list_or_add, methods=["GET", "POST"]),
    ]


def _listing(keys: AccessKeys, listed: Iterable[AccessKey]) -> Response:
    return JSONResponse(
        {
            "keys": [
                {
                    "key_id": key.key_id,
                    "user": key.user,
                    "account": key.account,
                    "origin": "config" if keys.is_declared(key.key_id) else "store",
                }
                for key in listed
            ]
        }
    )
