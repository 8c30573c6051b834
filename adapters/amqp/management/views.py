"""Queues, exchanges and bindings as JSON."""

import base64
import hashlib
import math
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote_plus

from adapters.amqp.names import to_namespace, to_vhost
from adapters.amqp.node import AmqpNode
from adapters.amqp.queue_arguments import STREAM, queue_type
from adapters.amqp.queues import Declaration, name_of
from adapters.amqp.streams import Stream, stream_of
from adapters.amqp.v091.fields import EMPTY, Field, Table
from features.routing.model import Binding, Destination, Exchange
from gateway.exchanges.model import ExchangeName
from gateway.model import TopicName
from gateway.queues.manager import Queue

_HASH_BYTES: Final = 16
_DIRECT: Final = "direct"

Json = dict[str, Any]


def node_name(node: AmqpNode) -> str:
    """Return the node's name, in RabbitMQ's form."""
    return f"headgate@node-{node.node_id}"


def table_view(table: Table) -> Json:
    """Return a table as plain values."""
    return {name: field_view(field) for name, field in table}


def field_view(field: Field) -> Any:  # noqa: ANN401 - JSON
    """Return a field as a plain value; bytes that are not UTF-8 are base64."""
    value = field.value
    if isinstance(value, Table):
        return table_view(value)
    if isinstance(value, tuple):
        return [field_view(one) for one in value if isinstance(one, Field)]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal | float):
        number = float(value)
        return number if math.isfinite(number) else str(number)  # JSON has no such numbers
    return value


def arguments_view(arguments: Any) -> Any:  # noqa: ANN401 - values of routing, JSON
    """Return arguments of exchanges and bindings as plain values."""
    if isinstance(arguments, dict):
        return {name: arguments_view(value) for name, value in arguments.items()}
    if isinstance(arguments, list):
        return [arguments_view(one) for one in arguments]
    if isinstance(arguments, bytes):
        return base64.b64encode(arguments).decode("ascii")
    return arguments


# --- queues


def declaration_of(queue: Queue) -> Declaration:
    """Return the declaration of a queue; a queue of another protocol is a durable one."""
    plain = Declaration(durable=True, exclusive=False, auto_delete=False, arguments=EMPTY)
    return Declaration.of(queue) or plain


def queue_in(node: AmqpNode, name: TopicName) -> Queue | None:
    """Return a queue of any protocol by the name of its topic; None without it."""
    queue = node.kernel.queues.find(name)
    return None if queue is None or queue.topic.is_internal else queue


def queue_view(node: AmqpNode, queue: Queue) -> Json:
    """Return a queue with its counts."""
    declared = declaration_of(queue)
    counts = queue.counts()
    unacked = counts.in_flight
    ready = counts.ready + counts.delayed
    return {
        "name": name_of(queue),
        "vhost": to_vhost(queue.name.namespace),
        "durable": declared.durable,
        "auto_delete": declared.auto_delete,
        "exclusive": declared.exclusive,
        "arguments": table_view(declared.arguments),
        "type": queue_type(declared.arguments),
        "node": node_name(node),
        "state": "running",
        "consumers": len(queue.consumers),
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        **node.policies.queue_facts(queue),
    }


def stream_view(node: AmqpNode, stream: Stream) -> Json:
    """Return a stream with the number of its messages."""
    count = node.streams.message_count(stream)
    return {
        "name": stream.name,
        "vhost": to_vhost(stream.topic.name.namespace),
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": table_view(stream.declaration.arguments),
        "type": STREAM,
        "node": node_name(node),
        "state": "running",
        "consumers": 0,
        "messages": count,
        "messages_ready": count,
        "messages_unacknowledged": 0,
    }


# --- exchanges


def default_exchange_view(vhost: str) -> Json:
    """Return the default exchange."""
    return {
        "name": "",
        "vhost": vhost,
        "type": _DIRECT,
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
        "user_who_performed_action": "rmq-internal",
    }


def exchange_view(node: AmqpNode, vhost: str, exchange: Exchange) -> Json:
    """Return an exchange."""
    name = ExchangeName(to_namespace(vhost), exchange.name)
    row = node.kernel.exchanges.row(name)
    return {
        "name": exchange.name,
        "vhost": vhost,
        "type": exchange.type.value,
        "durable": row is None or row.is_durable,
        "auto_delete": row is not None and row.auto_delete,
        "internal": row is not None and row.is_internal,
        "arguments": arguments_view(dict(exchange.arguments)),
        **node.policies.exchange_facts(name),
    }


# --- bindings


def destination_name(node: AmqpNode, namespace: str, destination: Destination) -> str:
    """Return the name of a binding's destination, in AMQP."""
    if destination.is_exchange:
        return destination.name
    name = TopicName(namespace, destination.name)
    queue = node.kernel.queues.find(name)
    if queue is not None:
        return name_of(queue)
    topic = node.kernel.topics.find(name)
    stream = None if topic is None else stream_of(topic)
    return destination.name if stream is None else stream.name


def binding_view(node: AmqpNode, vhost: str, binding: Binding) -> Json:
    """Return a binding."""
    kind = "exchange" if binding.destination.is_exchange else "queue"
    return {
        "source": binding.source,
        "vhost": vhost,
        "destination": destination_name(node, to_namespace(vhost), binding.destination),
        "destination_type": kind,
        "routing_key": binding.routing_key,
        "arguments": arguments_view(binding.arguments),
        "properties_key": properties_key(binding.routing_key, binding.arguments_text),
    }


def default_binding_view(queue: Queue) -> Json:
    """Return the binding of a queue to the default exchange, which every queue has."""
    name = name_of(queue)
    return {
        "source": "",
        "vhost": to_vhost(queue.name.namespace),
        "destination": name,
        "destination_type": "queue",
        "routing_key": name,
        "arguments": {},
        "properties_key": properties_key(name, "{}"),
    }


def properties_key(routing_key: str, arguments_text: str) -> str:
    """Return the text that identifies a binding between two ends.

    >>> properties_key("a b~c", "{}"), properties_key("", "{}")
    ('a+b%7Ec', '~')
    """
    key = quote_plus(routing_key).replace("~", "%7E")
    if arguments_text == "{}":
        return key or "~"
    digest = hashlib.sha256(arguments_text.encode()).digest()[:_HASH_BYTES]
    return f"{key}~{base64.urlsafe_b64encode(digest).decode('ascii').rstrip('=')}"
