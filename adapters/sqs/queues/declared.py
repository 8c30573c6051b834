"""Queues of the config, ``[[adapters.sqs.queues]]``: each is what CreateQueue would make of it."""

from collections.abc import Iterator

from adapters.sqs.config import DeclaredSqsQueue
from adapters.sqs.errors import SqsError
from adapters.sqs.node import SqsNode
from adapters.sqs.queues.changes import target_finder, wanted_queue
from adapters.sqs.queues.names import is_fifo_name
from gateway.config.base import InvalidSettings
from gateway.errors import GatewayError
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.queues.create_queue import make_queue


async def make_declared(node: SqsNode) -> None:
    """Make the queues that are not there; one that is there stays as it is.

    Errors: ``InvalidSettings``; others that may be gone at the next start.
    """
    for declared in _targets_first(node.config.queues):
        name = TopicName(DEFAULT_NAMESPACE, declared.name)
        if node.queues.find(name) is not None:
            continue
        try:
            await _make(node, name, declared)
        except (SqsError, GatewayError) as error:
            if isinstance(error, GatewayError) and error.retriable:
                raise
            raise InvalidSettings(f"adapters.sqs.queues.{declared.name}: {error}") from error


async def _make(node: SqsNode, name: TopicName, declared: DeclaredSqsQueue) -> None:
    wanted = wanted_queue(
        name.name,
        declared.given(),
        declared.tags,
        fifo=is_fifo_name(name.name),
        find_target=target_finder(node, name),
    )
    await make_queue(
        node.queues,
        node.kernel.topics,
        name,
        wanted.settings,
        partitions=node.config.queue_partitions,
        attributes=wanted.attributes,
        tags=wanted.tags,
    )


def _targets_first(queues: tuple[DeclaredSqsQueue, ...]) -> Iterator[DeclaredSqsQueue]:
    """Yield dead-letter queues before those that name them; a ring of them as it stands."""
    waiting = list(queues)
    while waiting:
        names = {queue.name for queue in waiting}
        free = [one for one in waiting if one.target_name() not in names - {one.name}]
        yield from free or waiting
        waiting = [one for one in waiting if free and one not in free]
