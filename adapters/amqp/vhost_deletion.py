"""Deletion of a vhost with all that is in it."""

import contextlib
from collections.abc import Iterable

from adapters.amqp.names import to_namespace
from adapters.amqp.node import AmqpNode
from adapters.amqp.streams import stream_of
from adapters.amqp.v091.connection import AmqpConnection
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from gateway.errors import TopicNotFound
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.standard import RESERVED, ExchangeNotFound
from gateway.policies.model import PolicyKind


async def delete_vhost(
    node: AmqpNode, vhost: str, connections: Iterable[AmqpConnection]
) -> None:
    """Delete a vhost: first nobody can open it, then its connections end, then what is in it.

    What AMQP has declared goes; topics of other protocols in its namespace stay. Errors:
    ``PolicyViolation`` for a vhost of the config file, ``StorageUnavailable``.
    """
    namespace = to_namespace(vhost)
    await node.vhosts.delete(vhost)
    for connection in connections:
        if connection.vhost == vhost:
            fault = AmqpFault(ReplyCode.CONNECTION_FORCED, f"vhost '{vhost}' is deleted")
            connection.guard(connection.end, fault)
    await _delete_permissions(node, vhost)
    policies = node.policies.policies
    for kind in PolicyKind:
        for policy in list(policies.policies(kind, namespace)):
            await policies.delete(kind, namespace, policy.name)
    await _delete_queues(node, namespace)
    for exchange in node.kernel.exchanges.exchanges(namespace):
        if not exchange.name.startswith(RESERVED):
            with contextlib.suppress(ExchangeNotFound):
                await node.kernel.exchanges.delete(ExchangeName(namespace, exchange.name))


async def _delete_permissions(node: AmqpNode, vhost: str) -> None:
    for row in node.permissions.rows():
        if row.vhost == vhost:
            await node.permissions.clear(row.user, vhost)
    for one in node.topic_permissions.rows():
        if one.vhost == vhost:
            await node.topic_permissions.clear(one.user, vhost)


async def _delete_queues(node: AmqpNode, namespace: str) -> None:
    for queue in node.kernel.queues.queues(namespace):
        if queue.protocol == "amqp":
            with contextlib.suppress(TopicNotFound):  # it went with its connection
                await node.delete_queue(queue)
    for topic in node.kernel.topics.topics(namespace):
        stream = stream_of(topic)
        if stream is not None:
            await node.streams.delete(stream)
