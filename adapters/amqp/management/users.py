"""Users: lists, one user, adding, changing, removing."""

from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from adapters.amqp.management.call import Call
from adapters.amqp.management.errors import bad_request, not_found
from adapters.amqp.management.listing import Item, reply, reply_list
from adapters.amqp.user_tags import parse_tags
from adapters.amqp.users import AmqpUsers, Password


def users_of(call: Call) -> AmqpUsers:
    """Return the users of the node."""
    return call.node.users


def find_user(call: Call) -> str:
    """Return the user of the path, who is there. Error: ``ApiFault`` 404."""
    name = call.parts["user"]
    if name not in users_of(call).names():
        raise not_found()
    return name


async def list_all(call: Call) -> Response:
    """Return all users."""
    users = users_of(call)
    items = [Item((name,), lambda name=name: users.view(name)) for name in users.names()]  # type: ignore[misc]
    return await reply_list(call, items)


async def get(call: Call) -> Response:
    """Return one user."""
    return reply(call, users_of(call).view(find_user(call)))


async def put(call: Call) -> Response:
    """Add a user, or change password and tags."""
    name = call.parts["user"]
    body = await call.body()
    if "tags" not in body:
        raise bad_request("tags_not_present")
    tags = parse_tags(body["tags"])
    users = users_of(call)
    is_new = name not in users.names()
    with call.audit("user.put", name):
        await users.put(name, _password(body), tags)
    return Response(status_code=HTTPStatus.CREATED if is_new else HTTPStatus.NO_CONTENT)


def _password(body: dict[str, Any]) -> Password:
    """Return the password of a body; without one nobody can log in as the user."""
    for field in ("password", "password_hash"):
        value = body.get(field)
        if value is None:
            continue
        if not isinstance(value, str):
            raise bad_request(f"{field} is not a string")
        algorithm = body.get("hashing_algorithm")
        return Password(
            value,
            is_hash=field == "password_hash",
            algorithm=algorithm if isinstance(algorithm, str) else "",
        )
    return Password("", is_hash=True)


async def delete(call: Call) -> Response:
    """Remove a user with its permissions; its connections are closed."""
    name = find_user(call)
    with call.audit("user.remove", name):
        await users_of(call).remove(name)
    return Response(status_code=HTTPStatus.NO_CONTENT)
