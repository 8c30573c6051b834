"""Definitions as RabbitMQ's ``definitions.json`` has them: of the whole node, or of one vhost.

Left out are exclusive queues, queues and exchanges named ``amq.*``, and what another protocol has
made. https://www.rabbitmq.com/docs/definitions
"""

from collections.abc import Iterator
from typing import Any, Final

from adapters.amqp.management.policies import policy_view
from adapters.amqp.management.views import (
    arguments_view,
    binding_view,
    table_view,
)
from adapters.amqp.names import to_namespace
from adapters.amqp.node import AmqpNode
from adapters.amqp.parameters import GLOBAL_PARAMETER, parameters_of
from adapters.amqp.queues import Declaration, name_of
from adapters.amqp.streams import stream_of
from adapters.amqp.vhosts import NO_METADATA
from features.routing.model import Destination
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.standard import RESERVED
from gateway.model import TopicName
from gateway.policies.model import PolicyKind

API_VERSION: Final = "3.10.8"
Json = dict[str, Any]


def whole(node: AmqpNode) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a definitions file, with lists or iterators of their entries."""
    vhosts = node.vhosts.names()
    yield from _head(node)
    yield "users", (node.users.view(name) for name in node.users.names())
    yield "vhosts", (_vhost(node, vhost) for vhost in vhosts)
    yield "permissions", (row._asdict() for row in node.permissions.rows())
    yield "topic_permissions", (row._asdict() for row in node.topic_permissions.rows())
    yield "parameters", parameters_of(node)
    found = node.documents.of_kind(GLOBAL_PARAMETER)
    yield (
        "global_parameters",
        [{"name": key.name, "value": value["value"]} for key, value in sorted(found.items())],
    )
    for name, entries_of in _SECTIONS.items():
        yield name, (entry for vhost in vhosts for entry in entries_of(node, vhost))


def of_vhost(node: AmqpNode, vhost: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys of the definitions of one vhost, whose entries do not name it."""
    yield from _head(node)
    yield (
        "parameters",
        [_without_vhost(one) for one in parameters_of(node) if one["vhost"] == vhost],
    )
    for name, entries_of in _SECTIONS.items():
        yield name, (_without_vhost(entry) for entry in entries_of(node, vhost))


def _head(node: AmqpNode) -> Iterator[tuple[str, Any]]:
    yield "rabbit_version", API_VERSION
    yield "rabbitmq_version", API_VERSION
    yield "product_name", node.config.product
    yield "product_version", node.config.product_version or API_VERSION


def _without_vhost(entry: Json) -> Json:
    return {name: value for name, value in entry.items() if name != "vhost"}


def _vhost(node: AmqpNode, vhost: str) -> Json:
    metadata = node.vhosts.metadata(vhost)
    return {"name": vhost} if metadata == NO_METADATA else {"name": vhost, **metadata}


def _policies(node: AmqpNode, vhost: str) -> Iterator[Json]:
    for policy in node.policies.policies.policies(PolicyKind.POLICY, to_namespace(vhost)):
        yield policy_view(policy)


def _queues(node: AmqpNode, vhost: str) -> Iterator[Json]:
    for queue in node.kernel.queues.queues(to_namespace(vhost)):
        declared = Declaration.of(queue)
        name = name_of(queue)
        if declared is None or declared.exclusive or name.startswith(RESERVED):
            continue
        yield {
            "name": name,
            "vhost": vhost,
            "durable": declared.durable,
            "auto_delete": declared.auto_delete,
            "arguments": table_view(declared.arguments),
        }
    for topic in node.kernel.topics.topics(to_namespace(vhost)):
        stream = stream_of(topic)
        if stream is not None:
            yield {
                "name": stream.name,
                "vhost": vhost,
                "durable": True,
                "auto_delete": False,
                "arguments": table_view(stream.declaration.arguments),
            }


def _exchanges(node: AmqpNode, vhost: str) -> Iterator[Json]:
    namespace = to_namespace(vhost)
    for exchange in node.kernel.exchanges.exchanges(namespace):
        row = node.kernel.exchanges.row(ExchangeName(namespace, exchange.name))
        if row is None:  # one that every vhost has
            continue
        yield {
            "name": exchange.name,
            "vhost": vhost,
            "type": exchange.type.value,
            "durable": row.is_durable,
            "auto_delete": row.auto_delete,
            "internal": row.is_internal,
            "arguments": arguments_view(dict(exchange.arguments)),
        }


def _bindings(node: AmqpNode, vhost: str) -> Iterator[Json]:
    namespace = to_namespace(vhost)
    for binding in node.kernel.exchanges.bindings(namespace):
        if _is_exported(node, namespace, binding.destination):
            view = binding_view(node, vhost, binding)
            del view["properties_key"]
            yield view


def _is_exported(node: AmqpNode, namespace: str, destination: Destination) -> bool:
    """Say whether a binding's destination is exported itself."""
    if destination.is_exchange:
        return True
    name = TopicName(namespace, destination.name)
    queue = node.kernel.queues.find(name)
    declared = None if queue is None else Declaration.of(queue)
    if queue is None or declared is None:
        topic = node.kernel.topics.find(name)
        return topic is not None and stream_of(topic) is not None
    return not declared.exclusive and not name_of(queue).startswith(RESERVED)


_SECTIONS: Final = {
    "policies": _policies,
    "queues": _queues,
    "exchanges": _exchanges,
    "bindings": _bindings,
}
