"""Permissions of users in vhosts, and those for routing keys of topic exchanges."""

from http import HTTPStatus

from starlette.responses import Response

from adapters.amqp.management.body_fields import need, text_of
from adapters.amqp.management.call import Call
from adapters.amqp.management.errors import bad_request, not_found
from adapters.amqp.management.listing import reply, reply_list, rows_as_items
from adapters.amqp.management.users import find_user
from adapters.amqp.topic_permissions import TopicPermission
from adapters.amqp.vhost_permissions import VhostPermission
from gateway.regexes import InvalidRegex, compile_regex

EXPRESSION_CHARS_MAX = 200


async def list_all(call: Call) -> Response:
    """Return the permissions of all users, of one of the path, or of a vhost."""
    if "user" in call.parts:
        find_user(call)
    rows = [row._asdict() for row in call.node.permissions.rows() if _is_asked(call, row)]
    return await reply_list(call, rows_as_items(rows, "vhost", "user"))


def _is_asked(call: Call, row: VhostPermission | TopicPermission) -> bool:
    return all(getattr(row, name) == call.parts.get(name, getattr(row, name)) for name in _ENDS)


_ENDS = ("user", "vhost")


async def get(call: Call) -> Response:
    """Return the permission of a user in a vhost."""
    row = call.node.permissions.find(find_user(call), call.vhost)
    if row is None:
        raise not_found()
    return reply(call, row._asdict())


async def put(call: Call) -> Response:
    """Set the permission of a user in a vhost."""
    user = call.parts["user"]
    if user not in call.node.users.names():
        raise bad_request("vhost_or_user_not_found")
    body = await call.body()
    need(body, "configure", "write", "read")
    configure, write, read = (
        check_expression(text_of(body, name)) for name in ("configure", "write", "read")
    )
    row = VhostPermission(user, call.vhost, configure, write, read)
    with call.audit("permission.put", f"{user} in {call.vhost}"):
        is_new = await call.node.permissions.put(row)
    return Response(status_code=HTTPStatus.CREATED if is_new else HTTPStatus.NO_CONTENT)


async def delete(call: Call) -> Response:
    """Remove the permission of a user in a vhost."""
    user = find_user(call)
    with call.audit("permission.delete", f"{user} in {call.vhost}"):
        if not await call.node.permissions.clear(user, call.vhost):
            raise not_found()
    return Response(status_code=HTTPStatus.NO_CONTENT)


def check_expression(text: str) -> str:
    """Return an expression that can be compiled. Error: ``ApiFault`` 400."""
    if len(text) > EXPRESSION_CHARS_MAX:
        raise bad_request(f"an expression has at most {EXPRESSION_CHARS_MAX} characters")
    try:
        compile_regex(text or "^$")
    except InvalidRegex as error:
        raise bad_request(f"{{invalid_regexp,{text!r},{error}}}") from error
    return text


# --- routing keys


async def list_topics(call: Call) -> Response:
    """Return the permissions for routing keys."""
    found = call.node.topic_permissions.rows()
    rows = [row._asdict() for row in found if _is_asked(call, row)]
    return await reply_list(call, rows_as_items(rows, "vhost", "user", "exchange"))


async def get_topics(call: Call) -> Response:
    """Return the permissions of a user in a vhost for routing keys."""
    find_user(call)
    if not any(_is_asked(call, row) for row in call.node.topic_permissions.rows()):
        raise not_found()
    return await list_topics(call)


async def put_topic(call: Call) -> Response:
    """Set the permission of a user for the routing keys of an exchange."""
    user = call.parts["user"]
    if user not in call.node.users.names():
        raise bad_request("vhost_or_user_not_found")
    body = await call.body()
    need(body, "exchange", "write", "read")
    write, read = (check_expression(text_of(body, name)) for name in ("write", "read"))
    row = TopicPermission(user, call.vhost, text_of(body, "exchange"), write, read)
    with call.audit("topic_permission.put", f"{user} in {call.vhost}"):
        is_new = await call.node.topic_permissions.put(row)
    return Response(status_code=HTTPStatus.CREATED if is_new else HTTPStatus.NO_CONTENT)


async def delete_topics(call: Call) -> Response:
    """Remove the permissions of a user in a vhost for routing keys."""
    user = find_user(call)
    with call.audit("topic_permission.delete", f"{user} in {call.vhost}"):
        if not await call.node.topic_permissions.clear(user, call.vhost):
            raise not_found()
    return Response(status_code=HTTPStatus.NO_CONTENT)
