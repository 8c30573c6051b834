"""Health checks: 200 with ``{"status": "ok"}``, or 503 with the reason."""

from http import HTTPStatus

from starlette.responses import JSONResponse, Response

from adapters.amqp.management.call import Call
from adapters.amqp.management.errors import bad_request
from adapters.amqp.management.listing import reply
from gateway.errors import ShuttingDown

_AMQP = frozenset({"amqp", "amqp091", "amqp0-9-1", "amqp/ssl", "amqps"})
_HTTP = frozenset({"http", "https", "management"})


async def aliveness(call: Call) -> Response:
    """Say that a vhost is served."""
    return reply(call, {"status": "ok"})


async def always(call: Call) -> Response:
    """Say that the node serves: no vhost is down by itself, and no quorum is to be lost."""
    if not call.node.kernel.broker.shards.owned():
        raise ShuttingDown("no shard is open")
    return reply(call, {"status": "ok"})


async def alarms(call: Call) -> Response:
    """Say whether publishers are blocked because the disk is full."""
    if not call.node.disk_alarm.is_raised:
        return reply(call, {"status": "ok"})
    content = {"status": "failed", "reason": "the disk is full", "alarms": ["disk"]}
    return JSONResponse(content, HTTPStatus.SERVICE_UNAVAILABLE)


async def port(call: Call) -> Response:
    """Say whether a port is listened on."""
    try:
        asked = int(call.parts["port"])
    except ValueError:
        raise bad_request("Invalid port") from None
    here = {call.endpoint.amqp_address.port, call.endpoint.management_address.port}
    if asked in here:
        return reply(call, {"status": "ok", "port": asked})
    content = {"status": "failed", "reason": "No active listener", "missing": asked}
    return JSONResponse(content | {"ports": sorted(here)}, HTTPStatus.SERVICE_UNAVAILABLE)


async def protocol(call: Call) -> Response:
    """Say whether a protocol is served."""
    asked = call.parts["protocol"].lower()
    if asked in _AMQP | _HTTP:
        return reply(call, {"status": "ok", "protocol": asked})
    content = {"status": "failed", "reason": "No active listener", "missing": asked}
    listed = {"protocols": ["http", "amqp"]}
    return JSONResponse(content | listed, HTTPStatus.SERVICE_UNAVAILABLE)
