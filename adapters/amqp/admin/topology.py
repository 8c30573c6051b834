"""Views of exchanges, bindings and queues."""

from typing import Any, Final, NamedTuple

from adapters.amqp.admin.listing import listed, vhost_of, vhosts_of
from adapters.amqp.management.queues import queues_of, streams_of
from adapters.amqp.management.views import (
    arguments_view,
    binding_view,
    declaration_of,
    queue_in,
)
from adapters.amqp.names import to_namespace, to_topic_name
from adapters.amqp.node import AmqpNode
from adapters.amqp.queue_arguments import STREAM, queue_type
from adapters.amqp.queues import name_of
from adapters.amqp.streams import Stream
from features.routing.model import (
    DEFAULT_EXCHANGE,
    Binding,
    Destination,
    Exchange,
    ExchangeType,
)
from gateway.admin_views import ViewQuery
from gateway.errors import InvalidRequest
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.standard import ExchangeNotFound, named, shown
from gateway.model import TopicName
from gateway.queues.manager import Queue

_DEFAULT: Final = Exchange(DEFAULT_EXCHANGE, ExchangeType.DIRECT)
_ENDS: Final = ("from_exchange", "to_exchange", "to_queue")


async def exchanges(node: AmqpNode, query: ViewQuery) -> dict[str, Any]:
    """Return a page of exchanges, the default ones included."""
    vhosts = vhosts_of(node, query)
    rows = [
        (vhost, one)
        for vhost in vhosts
        for one in (_DEFAULT, *node.kernel.exchanges.exchanges(to_namespace(vhost)))
    ]
    queue_counts = {
        vhost: len([one async for one in queues_of(node, vhost)]) for vhost in vhosts
    }

    def count_from(vhost: str, exchange: Exchange) -> int:
        """Return how many bindings begin there; the default one has one for each queue."""
        if exchange.name == DEFAULT_EXCHANGE:
            return queue_counts[vhost]
        name = ExchangeName(to_namespace(vhost), exchange.name)
        return node.kernel.exchanges.binding_count_of(name)

    return await listed(
        query,
        rows,
        sorts={
            "name": lambda row: (shown(row[1].name), row[0]),
            "type": lambda row: (row[1].type.value, row[1].name),
            "bindings": lambda row: count_from(*row),
        },
        text=lambda row: shown(row[1].name),
        view=lambda row: {
            **_exchange_view(node, *row),
            "bindings_from": count_from(*row),
        },
    )


def _exchange_view(node: AmqpNode, vhost: str, exchange: Exchange) -> dict[str, Any]:
    namespace = to_namespace(vhost)
    name = ExchangeName(namespace, exchange.name)
    manager = node.kernel.exchanges
    row = manager.row(name)
    leading = manager.bindings_to(namespace, Destination(exchange.name, is_exchange=True))
    return {
        "vhost": vhost,
        "name": shown(exchange.name),
        "type": exchange.type.value,
        "durable": row is None or row.is_durable,
        "auto_delete": row is not None and row.auto_delete,
        "internal": row is not None and row.is_internal,
        "alternate": None if exchange.alternate is None else shown(exchange.alternate),
        "arguments": arguments_view(dict(exchange.arguments)),
        "bindings_to": len(leading),
    }


# --- bindings


async def bindings(node: AmqpNode, query: ViewQuery) -> dict[str, Any]:
    """Return a page of the bindings from or to an exchange, or to a queue, of a vhost.

    Parameters: ``vhost``, and one of ``from_exchange``, ``to_exchange`` and ``to_queue``. Errors:
    ``ExchangeNotFound``, ``InvalidRequest``.
    """
    vhost = vhost_of(node, query)
    return await listed(
        query,
        await _bindings(node, vhost, query),
        sorts={
            "source": lambda one: (one.source, one.destination, one.routing_key),
            "destination": lambda one: (one.destination, one.source, one.routing_key),
            "routing_key": lambda one: (one.routing_key, one.source, one.destination),
        },
        text=lambda one: f"{shown(one.source)} {one.destination.name} {one.routing_key}",
        view=lambda one: {
            **binding_view(node, vhost, one),
            "source": shown(one.source),
        },
    )


async def _bindings(node: AmqpNode, vhost: str, query: ViewQuery) -> list[Binding]:
    namespace, values = to_namespace(vhost), query.values
    ends = {name: values[name] for name in _ENDS if values.get(name)}
    if len(ends) != 1:
        raise InvalidRequest(f"give one of {', '.join(_ENDS)}")
    if queue := ends.get("to_queue"):
        topic = to_topic_name(namespace, queue)
        found = queue_in(node, topic)
        by_name = [] if found is None else [_to_default(found)]
        return [*by_name, *_leading_to(node, namespace, Destination(topic.name))]
    if text := ends.get("to_exchange"):
        exchange = _existing(node, namespace, text)
        return _leading_to(node, namespace, Destination(exchange, is_exchange=True))
    exchange = _existing(node, namespace, ends["from_exchange"])
    if exchange == DEFAULT_EXCHANGE:
        return [_to_default(one) async for one in queues_of(node, vhost)]
    return node.kernel.exchanges.bindings_from(ExchangeName(namespace, exchange))


def _leading_to(node: AmqpNode, namespace: str, destination: Destination) -> list[Binding]:
    return node.kernel.exchanges.bindings_to(namespace, destination)


def _to_default(queue: Queue) -> Binding:
    """Return the binding of a queue to the default exchange, which every queue has."""
    return Binding(DEFAULT_EXCHANGE, Destination(queue.name.name), name_of(queue))


def _existing(node: AmqpNode, namespace: str, text: str) -> str:
    name = named(text)
    known = node.kernel.exchanges.find(ExchangeName(namespace, name))
    if name != DEFAULT_EXCHANGE and known is None:
        raise ExchangeNotFound(f"no exchange {text[:255]!r}")
    return name


# --- queues


class _ListedQueue(NamedTuple):
    """Queue or stream of a vhost."""

    vhost: str
    name: str
    topic: TopicName
    queue: Queue | None
    stream: Stream | None


async def queues(node: AmqpNode, query: ViewQuery) -> dict[str, Any]:
    """Return a page of queues and streams, with the number of their bindings."""
    rows = [row for vhost in vhosts_of(node, query) for row in await _rows(node, vhost)]
    return await listed(
        query,
        rows,
        sorts={
            "name": lambda row: (row.name, row.vhost),
            "ready": lambda row: _counts(node, row)[0],
            "unacked": lambda row: _counts(node, row)[1],
            "bindings": lambda row: _binding_count(node, row),
        },
        text=lambda row: row.name,
        view=lambda row: _queue_view(node, row),
    )


async def _rows(node: AmqpNode, vhost: str) -> list[_ListedQueue]:
    rows = [
        _ListedQueue(vhost, name_of(one), one.name, one, None)
        async for one in queues_of(node, vhost)
    ]
    rows += [
        _ListedQueue(vhost, one.name, one.topic.name, None, one)
        async for one in streams_of(node, vhost)
    ]
    return rows


def _counts(node: AmqpNode, row: _ListedQueue) -> tuple[int, int]:
    """Return the number of ready and of unacknowledged messages."""
    if row.queue is None:
        assert row.stream is not None
        return node.streams.message_count(row.stream), 0
    counts = row.queue.counts()
    return counts.ready + counts.delayed, counts.in_flight


def _binding_count(node: AmqpNode, row: _ListedQueue) -> int:
    """Return the number of bindings, that to the default exchange left out."""
    return len(_leading_to(node, row.topic.namespace, Destination(row.topic.name)))


def _queue_view(node: AmqpNode, row: _ListedQueue) -> dict[str, Any]:
    ready, unacked = _counts(node, row)
    queue = row.queue
    declared = None if queue is None else declaration_of(queue)
    return {
        "vhost": row.vhost,
        "name": row.name,
        "topic": row.topic.name,
        "type": STREAM if declared is None else queue_type(declared.arguments),
        "durable": declared is None or declared.durable,
        "auto_delete": declared is not None and declared.auto_delete,
        "exclusive": declared is not None and declared.exclusive,
        "bindings": _binding_count(node, row),
        "consumers": None if queue is None else len(queue.consumers),
        "ready": ready,
        "unacked": unacked,
    }
