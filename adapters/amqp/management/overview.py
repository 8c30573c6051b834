"""Overview, the caller, the node."""

import os
import resource
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response

from adapters.amqp.management.call import Call
from adapters.amqp.management.caller import Need
from adapters.amqp.management.connection_views import channels_of, is_open
from adapters.amqp.management.errors import not_found
from adapters.amqp.management.listing import reply, reply_list, rows_as_items
from adapters.amqp.management.queues import Totals, count_streams, totals_of
from adapters.amqp.management.views import node_name
from adapters.amqp.names import to_namespace
from features.routing.model import ExchangeType
from gateway.admin.live import resident_bytes
from gateway.installation import installed_version

API_VERSION: Final = "3.13.7"
"""Version of RabbitMQ's HTTP API whose fields are given; tools decide by it what they send."""
CLUSTER_NAME: Final = "headgate"


async def whoami(call: Call) -> Response:
    """Return the caller and its tags."""
    tags = sorted(call.caller.tags)
    return reply(call, {"name": call.caller.user_name, "tags": tags})


async def cluster_name(call: Call) -> Response:
    """Return the cluster's name."""
    return reply(call, {"name": CLUSTER_NAME})


async def get_overview(call: Call) -> Response:
    """Return versions, and counts of what the caller sees."""
    node = call.node
    vhosts = call.vhosts()
    totals = await totals_of(call, *vhosts)
    streams = await count_streams(call, *vhosts)
    return reply(
        call,
        {
            "management_version": API_VERSION,
            "rabbitmq_version": node.config.product_version or API_VERSION,
            "product_name": node.config.product,
            "product_version": node.config.product_version or installed_version(),
            "cluster_name": CLUSTER_NAME,
            "node": node_name(node),
            "rates_mode": "none",
            "disable_stats": False,
            "enable_queue_totals": True,
            "is_op_policy_updating_enabled": True,
            "exchange_types": [
                {"name": one.value, "description": "", "enabled": True} for one in ExchangeType
            ],
            "object_totals": _object_totals(call, vhosts, totals, streams),
            "queue_totals": totals.to_messages(),
            "message_stats": _message_stats(call),
            "listeners": _listeners(call),
            "contexts": [],
        },
    )


def _object_totals(
    call: Call, vhosts: list[str], totals: Totals, streams: int
) -> dict[str, int]:
    is_monitor = call.caller.has(Need.MONITORING)
    connections = [
        one
        for one in call.endpoint.amqp_connections()
        if is_open(one) and (is_monitor or one.user_name == call.caller.user_name)
    ]
    exchanges = call.node.kernel.exchanges
    return {
        "channels": sum(len(channels_of(one)) for one in connections),
        "connections": len(connections),
        "consumers": totals.consumers,
        "exchanges": sum(len(exchanges.exchanges(to_namespace(one))) + 1 for one in vhosts),
        "queues": totals.queues + streams,
    }


def _message_stats(call: Call) -> dict[str, int]:
    """Return counters since the start: of publishes by AMQP, of deliveries by all protocols."""
    node = call.node
    counters = node.kernel.queues.counters
    return {
        "publish": node.published,
        "return_unroutable": node.returned,
        "deliver_get": counters.delivered,
        "ack": counters.settled,
    }


def _listeners(call: Call) -> list[dict[str, Any]]:
    config = call.node.config
    management = config.management
    is_tls = config.tls_cert is not None
    has_https = management is not None and management.tls_cert is not None
    found = (
        ("amqp/ssl" if is_tls else "amqp", call.endpoint.amqp_address),
        ("https" if has_https else "http", call.endpoint.management_address),
    )
    return [
        {
            "node": node_name(call.node),
            "protocol": protocol,
            "ip_address": address.host,
            "port": address.port,
            "socket_opts": {},
        }
        for protocol, address in found
    ]


# --- the node


async def list_nodes(call: Call) -> Response:
    """Return the node in a list."""
    return await reply_list(call, rows_as_items([_node_view(call)], "name"))


async def get_node(call: Call) -> Response:
    """Return the node."""
    if call.parts["node"] != node_name(call.node):
        raise not_found()
    return reply(call, _node_view(call))


def _node_view(call: Call) -> dict[str, Any]:
    node = call.node
    config = node.kernel.settings
    disk = os.statvfs(config.node.data_dir)
    descriptors_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return {
        "name": node_name(node),
        "type": "disc",
        "running": True,
        "being_drained": False,
        "os_pid": str(os.getpid()),
        "uptime": node.kernel.clock.monotonic_ms() - node.started_ms,
        "partitions": [],
        "applications": [],
        "processors": os.cpu_count() or 1,
        "mem_used": resident_bytes(),
        "mem_limit": _memory_bytes(),
        "mem_alarm": False,
        "disk_free": disk.f_bavail * disk.f_frsize,
        "disk_free_limit": config.node.disk_reserve_bytes,
        "disk_free_alarm": node.disk_alarm.is_raised,
        "fd_used": _open_descriptors(),
        "fd_total": descriptors_max,
        "sockets_used": sum(1 for _ in call.endpoint.amqp_connections()),
        "sockets_total": node.config.connections_max,
        "proc_used": 1,
        "proc_total": 1_048_576,
        "run_queue": 0,
        "rates_mode": "none",
        "db_dir": str(config.node.data_dir),
        "config_files": [],
        "enabled_plugins": ["rabbitmq_management"],
        "exchange_types": [{"name": one.value, "enabled": True} for one in ExchangeType],
    }


def _open_descriptors() -> int:
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:  # a system without it
        return 0


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
