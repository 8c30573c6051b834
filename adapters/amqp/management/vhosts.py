"""Vhosts: lists, one vhost, making and deleting."""

from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from adapters.amqp.config import VHOST_BYTES_MAX
from adapters.amqp.management.body_fields import bool_of
from adapters.amqp.management.call import Call
from adapters.amqp.management.errors import bad_request
from adapters.amqp.management.listing import reply, reply_list, rows_as_items
from adapters.amqp.management.queues import totals_of
from adapters.amqp.management.views import node_name
from adapters.amqp.vhost_deletion import delete_vhost
from adapters.amqp.vhosts import metadata_of


async def vhost_view(call: Call, vhost: str) -> dict[str, Any]:
    """Return a vhost with the counts of its queues' messages."""
    totals = await totals_of(call, vhost)
    return {
        "name": vhost,
        **call.node.vhosts.metadata(vhost),
        "metadata": call.node.vhosts.metadata(vhost),
        "tracing": False,
        "cluster_state": {node_name(call.node): "running"},
        **totals.to_messages(),
    }


async def list_all(call: Call) -> Response:
    """Return the vhosts that the caller sees."""
    rows = [await vhost_view(call, vhost) for vhost in call.vhosts()]
    return await reply_list(call, rows_as_items(rows, "name"))


async def get(call: Call) -> Response:
    """Return one vhost."""
    return reply(call, await vhost_view(call, call.vhost))


async def put(call: Call) -> Response:
    """Make a vhost, or change what is said about it."""
    name = call.parts["vhost"]
    if not 1 <= len(name.encode()) <= VHOST_BYTES_MAX:
        raise bad_request(f"a vhost's name has 1 to {VHOST_BYTES_MAX} bytes")
    metadata = metadata_of(await call.body())
    if bool_of(metadata, "tracing"):
        raise bad_request("tracing is not served")
    metadata.pop("tracing", None)
    with call.audit("vhost.put", name):
        is_new = await call.node.vhosts.put(name, metadata)
    return Response(status_code=HTTPStatus.CREATED if is_new else HTTPStatus.NO_CONTENT)


async def delete(call: Call) -> Response:
    """Delete a vhost with its queues, exchanges, permissions and policies."""
    with call.audit("vhost.delete", call.vhost):
        await delete_vhost(call.node, call.vhost, call.endpoint.amqp_connections())
    return Response(status_code=HTTPStatus.NO_CONTENT)
