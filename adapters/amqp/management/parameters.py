"""Runtime parameters, global parameters, and limits of vhosts."""

from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from adapters.amqp.management.call import Call
from adapters.amqp.management.errors import bad_request, not_found
from adapters.amqp.management.listing import reply, reply_list, rows_as_items
from adapters.amqp.parameters import (
    GLOBAL_PARAMETER,
    OPERATOR_POLICY,
    VHOST_LIMITS,
    check_limits,
    component_not_found,
    parameters_of,
)


async def list_parameters(call: Call) -> Response:
    """Return the parameters of all components, of one, or of a vhost."""
    rows = [row for row in parameters_of(call.node) if _is_asked(call, row)]
    rows = [row for row in rows if call.may_see(row["vhost"])]
    return await reply_list(call, rows_as_items(rows, "component", "vhost", "name"))


def _is_asked(call: Call, row: dict[str, Any]) -> bool:
    names = ("component", "vhost", "name")
    return all(row[name] == call.parts.get(name, row[name]) for name in names)


async def get_parameter(call: Call) -> Response:
    """Return one parameter."""
    for row in parameters_of(call.node):
        if _is_asked(call, row):
            return reply(call, row)
    raise not_found()


async def put_parameter(call: Call) -> Response:
    """Refuse: limits and operator policies have calls of their own, other components no plug-in."""
    component = call.parts["component"]
    if component in {VHOST_LIMITS, OPERATOR_POLICY}:
        raise bad_request(f"{component} are set by calls of their own")
    raise component_not_found(component)


# --- global parameters


async def list_globals(call: Call) -> Response:
    """Return the global parameters."""
    found = call.node.documents.of_kind(GLOBAL_PARAMETER)
    rows = [{"name": key.name, "value": value["value"]} for key, value in found.items()]
    return await reply_list(call, rows_as_items(rows, "name"))


async def get_global(call: Call) -> Response:
    """Return one global parameter."""
    return reply(call, {"name": call.parts["name"], "value": _global(call)["value"]})


async def put_global(call: Call) -> Response:
    """Set a global parameter."""
    body = await call.body()
    if "value" not in body:
        raise bad_request("[{key_missing,value}]")
    name = call.parts["name"]
    with call.audit("global_parameter.put", name):
        value = {"value": body["value"]}
        is_new = await call.node.documents.put(GLOBAL_PARAMETER, "", name, value)
    return Response(status_code=HTTPStatus.CREATED if is_new else HTTPStatus.NO_CONTENT)


async def delete_global(call: Call) -> Response:
    """Remove a global parameter."""
    _global(call)
    with call.audit("global_parameter.delete", call.parts["name"]):
        await call.node.documents.delete(GLOBAL_PARAMETER, "", call.parts["name"])
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _global(call: Call) -> dict[str, Any]:
    found: dict[str, Any] | None = call.node.documents.find(
        GLOBAL_PARAMETER, "", call.parts["name"]
    )
    if found is None:
        raise not_found()
    return found


# --- limits of vhosts


async def list_limits(call: Call) -> Response:
    """Return the limits of the vhosts that have some."""
    rows = [
        {"vhost": vhost, "value": limits}
        for vhost in call.vhosts()
        if (limits := call.node.vhosts.limits(vhost))
    ]
    return await reply_list(call, rows_as_items(rows, "vhost"))


async def put_limit(call: Call) -> Response:
    """Set a limit of a vhost."""
    body = await call.body()
    if "value" not in body:
        raise bad_request("[{key_missing,value}]")
    limits = check_limits({call.parts["name"]: body["value"]})
    with call.audit("vhost_limit.put", f"{call.parts['name']} of {call.vhost}"):
        merged = {**call.node.vhosts.limits(call.vhost), **limits}
        await call.node.vhosts.set_limits(call.vhost, merged)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def delete_limit(call: Call) -> Response:
    """Remove a limit of a vhost."""
    limits = {**call.node.vhosts.limits(call.vhost)}
    if limits.pop(call.parts["name"], None) is None:
        raise not_found()
    with call.audit("vhost_limit.delete", f"{call.parts['name']} of {call.vhost}"):
        await call.node.vhosts.set_limits(call.vhost, limits)
    return Response(status_code=HTTPStatus.NO_CONTENT)
