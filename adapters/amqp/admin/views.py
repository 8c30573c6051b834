"""Names of the views and of the changes."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from adapters.amqp.admin.connections import channels, close_connection, connections
from adapters.amqp.admin.routes import route
from adapters.amqp.admin.topology import bindings, exchanges, queues
from adapters.amqp.management.endpoint import AmqpEndpoint
from adapters.amqp.node import AmqpNode
from gateway.admin_views import AdminAction, View, ViewQuery


def views(endpoint: AmqpEndpoint) -> Mapping[str, View]:
    """Return the views by name."""
    node = endpoint.node
    return {
        "vhosts": partial(_vhosts, node),
        "exchanges": partial(exchanges, node),
        "bindings": partial(bindings, node),
        "queues": partial(queues, node),
        "route": partial(route, node),
        "connections": partial(connections, endpoint),
        "channels": partial(channels, endpoint),
    }


def actions(endpoint: AmqpEndpoint) -> Mapping[str, AdminAction]:
    """Return the changes by name."""
    return {"close-connection": AdminAction(partial(close_connection, endpoint))}


def _vhosts(node: AmqpNode, _query: ViewQuery) -> dict[str, Any]:
    return {"rows": node.vhosts.names()}
