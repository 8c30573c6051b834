"""Route of a message that is not published: the queues it would go to, and why.

The answer is that of the kernel's router. Rules may still deny the publisher, and a full queue may
refuse the message.
"""

import json
from typing import Any, Final

from adapters.amqp.admin.listing import vhost_of
from adapters.amqp.management.views import destination_name
from adapters.amqp.names import to_namespace, to_topic_name
from adapters.amqp.node import AmqpNode
from adapters.amqp.streams import stream_of
from features.routing.hashing import PROPERTIES
from features.routing.model import DEFAULT_EXCHANGE, Destination, Message
from gateway.admin_views import ViewQuery
from gateway.errors import InvalidRequest
from gateway.exchanges.explained import steps_view
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.standard import check_text, named
from gateway.topics.manager import Topic

QUEUES_MAX: Final = 1_000
_CC: Final = ("CC", "BCC")


def route(node: AmqpNode, query: ViewQuery) -> dict[str, Any]:
    """Return where a message would go: its queues, and the exchanges on its way with reasons.

    Parameters: ``vhost``, ``exchange``, ``routing_key``, ``headers`` (a JSON object, of which
    ``CC`` and ``BCC`` are further routing keys), ``message_id``, ``correlation_id``,
    ``timestamp``. Errors: ``ExchangeNotFound``, ``InvalidRequest``, ``PolicyViolation`` for an
    internal exchange.
    """
    values = query.values
    namespace = to_namespace(vhost_of(node, query))
    exchange = named(values.get("exchange", ""))
    headers = _headers(values.get("headers") or "{}")
    keys = [values.get("routing_key", ""), *_further_keys(headers)]
    for key in keys:
        check_text("routing key", key)
    if exchange == DEFAULT_EXCHANGE:  # it routes to topics, by their names
        keys = [to_topic_name(namespace, key).name for key in keys]
    properties = {name: values[name] for name in PROPERTIES if values.get(name)}
    message = Message(keys, headers, properties)
    found = node.kernel.exchanges.explain(ExchangeName(namespace, exchange), message)
    topics = node.kernel.publisher.plans.targets(namespace, found.later)
    return {
        "queues": [_queue_view(node, one) for one in topics[:QUEUES_MAX]],
        "total": len(topics),
        **steps_view(
            found,
            queue_word="queue",
            name_of=lambda one: destination_name(node, namespace, one),
        ),
    }


def _headers(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"headers: {error}") from error
    if not isinstance(found, dict):
        raise InvalidRequest("headers: a JSON object")
    return found


def _further_keys(headers: dict[str, Any]) -> list[str]:
    keys: list[str] = []
    for name in _CC:
        found = headers.get(name, [])
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise InvalidRequest(f"headers: {name} is a list of routing keys")
        keys += found
    return keys


def _queue_view(node: AmqpNode, topic: Topic) -> dict[str, Any]:
    """Return a destination: a queue, a stream, or a topic of which no queue is made."""
    namespace, name = topic.name.namespace, topic.name.name
    if node.kernel.queues.find(topic.name) is not None:
        kind = "queue"
    else:
        kind = "topic" if stream_of(topic) is None else "stream"
    shown = destination_name(node, namespace, Destination(name))
    return {"name": shown, "topic": name, "kind": kind}
