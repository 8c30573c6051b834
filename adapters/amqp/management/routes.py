"""Calls of the HTTP API: path, method, handler, and the tag that a caller needs."""

from typing import Final, NamedTuple

from adapters.amqp.management import (
    bindings,
    connections,
    definitions,
    exchanges,
    health,
    messages,
    overview,
    parameters,
    permissions,
    policies,
    queues,
    users,
    vhosts,
)
from adapters.amqp.management.call import Handler
from adapters.amqp.management.caller import Need
from gateway.policies.model import PolicyKind

SMALL_BODY_BYTES: Final = 262_144
_FILE_BYTES: Final = 1_073_741_824  # the config bounds a definitions file below it


class Route(NamedTuple):
    """Handler of one method of a path. ``makes_vhost``: the path's vhost need not be there.

    ``is_large``: its answer may be large, and is made while no other such answer is.
    ``body_bytes_max``: of its body, which is read while no other is that is larger than
    ``SMALL_BODY_BYTES``.
    """

    handler: Handler
    need: Need = Need.MANAGEMENT
    makes_vhost: bool = False
    is_large: bool = False
    body_bytes_max: int = SMALL_BODY_BYTES


_ADMIN: Final = Need.ADMINISTRATOR
_Routes = dict[str, dict[str, Route]]

_NODE: Final[_Routes] = {
    "overview": {"GET": Route(overview.get_overview)},
    "whoami": {"GET": Route(overview.whoami)},
    "cluster-name": {"GET": Route(overview.cluster_name)},
    "nodes": {"GET": Route(overview.list_nodes, Need.MONITORING)},
    "nodes/{node}": {"GET": Route(overview.get_node, Need.MONITORING)},
    "aliveness-test/{vhost}": {"GET": Route(health.aliveness)},
    "health/checks/alarms": {"GET": Route(health.alarms, Need.MONITORING)},
    "health/checks/local-alarms": {"GET": Route(health.alarms, Need.MONITORING)},
    "health/checks/port-listener/{port}": {"GET": Route(health.port, Need.MONITORING)},
    "health/checks/protocol-listener/{protocol}": {
        "GET": Route(health.protocol, Need.MONITORING)
    },
    "health/checks/virtual-hosts": {"GET": Route(health.always, Need.MONITORING)},
    "health/checks/node-is-quorum-critical": {"GET": Route(health.always, Need.MONITORING)},
    "health/checks/ready-to-serve-clients": {"GET": Route(health.always, Need.MONITORING)},
}
_VHOSTS: Final[_Routes] = {
    "vhosts": {"GET": Route(vhosts.list_all)},
    "vhosts/{vhost}": {
        "GET": Route(vhosts.get),
        "PUT": Route(vhosts.put, _ADMIN, makes_vhost=True),
        "DELETE": Route(vhosts.delete, _ADMIN),
    },
    "vhosts/{vhost}/connections": {"GET": Route(connections.list_connections)},
    "vhosts/{vhost}/channels": {"GET": Route(connections.list_channels)},
    "vhosts/{vhost}/permissions": {"GET": Route(permissions.list_all, _ADMIN)},
    "vhosts/{vhost}/topic-permissions": {"GET": Route(permissions.list_topics, _ADMIN)},
    "vhost-limits": {"GET": Route(parameters.list_limits)},
    "vhost-limits/{vhost}": {"GET": Route(parameters.list_limits)},
    "vhost-limits/{vhost}/{name}": {
        "PUT": Route(parameters.put_limit, _ADMIN),
        "DELETE": Route(parameters.delete_limit, _ADMIN),
    },
}
_TOPOLOGY: Final[_Routes] = {
    "exchanges": {"GET": Route(exchanges.list_all)},
    "exchanges/{vhost}": {"GET": Route(exchanges.list_all)},
    "exchanges/{vhost}/{exchange}": {
        "GET": Route(exchanges.get),
        "PUT": Route(exchanges.put),
        "DELETE": Route(exchanges.delete),
    },
    "exchanges/{vhost}/{exchange}/bindings/source": {"GET": Route(bindings.from_exchange)},
    "exchanges/{vhost}/{exchange}/bindings/destination": {"GET": Route(bindings.to_exchange)},
    "exchanges/{vhost}/{exchange}/publish": {
        "POST": Route(messages.publish, body_bytes_max=messages.PUBLISH_BODY_BYTES_MAX)
    },
    "queues": {"GET": Route(queues.list_all)},
    "queues/{vhost}": {"GET": Route(queues.list_all)},
    "queues/{vhost}/{queue}": {
        "GET": Route(queues.get),
        "PUT": Route(queues.put),
        "DELETE": Route(queues.delete),
    },
    "queues/{vhost}/{queue}/bindings": {"GET": Route(bindings.to_queue)},
    "queues/{vhost}/{queue}/contents": {"DELETE": Route(queues.purge)},
    "queues/{vhost}/{queue}/get": {"POST": Route(messages.get, is_large=True)},
    "bindings": {"GET": Route(bindings.list_all)},
    "bindings/{vhost}": {"GET": Route(bindings.list_all)},
    "bindings/{vhost}/e/{source}/{kind}/{destination}": {
        "GET": Route(bindings.between),
        "POST": Route(bindings.post),
    },
    "bindings/{vhost}/e/{source}/{kind}/{destination}/{key}": {
        "GET": Route(bindings.get),
        "DELETE": Route(bindings.delete),
    },
}
_CLIENTS: Final[_Routes] = {
    "connections": {"GET": Route(connections.list_connections)},
    "connections/{name}": {
        "GET": Route(connections.get_connection),
        "DELETE": Route(connections.close_connection),
    },
    "connections/{name}/channels": {"GET": Route(connections.list_channels_of)},
    "channels": {"GET": Route(connections.list_channels)},
    "channels/{name}": {"GET": Route(connections.get_channel)},
    "consumers": {"GET": Route(connections.list_consumers)},
    "consumers/{vhost}": {"GET": Route(connections.list_consumers)},
}
_USERS: Final[_Routes] = {
    "users": {"GET": Route(users.list_all, _ADMIN)},
    "users/{user}": {
        "GET": Route(users.get, _ADMIN),
        "PUT": Route(users.put, _ADMIN),
        "DELETE": Route(users.delete, _ADMIN),
    },
    "users/{user}/permissions": {"GET": Route(permissions.list_all, _ADMIN)},
    "users/{user}/topic-permissions": {"GET": Route(permissions.list_topics, _ADMIN)},
    "permissions": {"GET": Route(permissions.list_all, _ADMIN)},
    "permissions/{vhost}/{user}": {
        "GET": Route(permissions.get, _ADMIN),
        "PUT": Route(permissions.put, _ADMIN),
        "DELETE": Route(permissions.delete, _ADMIN),
    },
    "topic-permissions": {"GET": Route(permissions.list_topics, _ADMIN)},
    "topic-permissions/{vhost}/{user}": {
        "GET": Route(permissions.get_topics, _ADMIN),
        "PUT": Route(permissions.put_topic, _ADMIN),
        "DELETE": Route(permissions.delete_topics, _ADMIN),
    },
}


def _policies(path: str, kind: PolicyKind, need: Need) -> _Routes:
    listed = {"GET": Route(policies.lister(kind))}
    return {
        path: listed,
        f"{path}/{{vhost}}": listed,
        f"{path}/{{vhost}}/{{name}}": {
            "GET": Route(policies.getter(kind)),
            "PUT": Route(policies.putter(kind), need),
            "DELETE": Route(policies.deleter(kind), need),
        },
    }


_PARAMETERS: Final[_Routes] = {
    "definitions": {
        "GET": Route(definitions.export, _ADMIN),
        "POST": Route(definitions.load, _ADMIN, body_bytes_max=_FILE_BYTES),
    },
    "definitions/{vhost}": {
        "GET": Route(definitions.export, _ADMIN),
        "POST": Route(definitions.load, _ADMIN, body_bytes_max=_FILE_BYTES),
    },
    "parameters": {"GET": Route(parameters.list_parameters, Need.POLICIES)},
    "parameters/{component}": {"GET": Route(parameters.list_parameters, Need.POLICIES)},
    "parameters/{component}/{vhost}": {"GET": Route(parameters.list_parameters, Need.POLICIES)},
    "parameters/{component}/{vhost}/{name}": {
        "GET": Route(parameters.get_parameter, Need.POLICIES),
        "PUT": Route(parameters.put_parameter, Need.POLICIES),
    },
    "global-parameters": {"GET": Route(parameters.list_globals, Need.POLICIES)},
    "global-parameters/{name}": {
        "GET": Route(parameters.get_global, Need.POLICIES),
        "PUT": Route(parameters.put_global, _ADMIN),
        "DELETE": Route(parameters.delete_global, _ADMIN),
    },
}

ROUTES: Final[_Routes] = {
    **_NODE,
    **_VHOSTS,
    **_TOPOLOGY,
    **_CLIENTS,
    **_USERS,
    **_policies("policies", PolicyKind.POLICY, Need.POLICIES),
    **_policies("operator-policies", PolicyKind.OPERATOR, _ADMIN),
    **_PARAMETERS,
}
