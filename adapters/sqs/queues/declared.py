"""Creation of the queues in the config, ``[[adapters.sqs.queues]]``, as by CreateQueue."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from adapters.sqs.errors import SqsError
from adapters.sqs.queues.changes import dead_letter_finder, new_queue
from adapters.sqs.queues.names import is_fifo_name
from adapters.sqs.queues.ports import QueueNode
from gateway.config.base import InvalidSettings
from gateway.errors import GatewayError
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.queues.create_queue import make_queue
from gateway.topics.manager import TopicManager


class DeclaredQueue(Protocol):
    """A queue of the config; ``DeclaredSqsQueue`` implements it."""

    @property
    def name(self) -> str:
        """The queue's name."""
        ...

    @property
    def tags(self) -> Mapping[str, str]:
        """The queue's tags."""
        ...

    def given(self) -> dict[str, str]:
        """Return the attributes as a request would have them."""
        ...

    def target_name(self) -> str:
        """Return the name of its dead-letter queue, empty without one."""
        ...


async def make_declared(
    node: QueueNode,
    topics: TopicManager,
    declared: Sequence[DeclaredQueue],
    *,
    partitions: int,
) -> None:
    """Make the queues that do not exist; an existing one stays as it is.

    ``partitions``: of the topic of each. Errors: ``InvalidSettings``; others that may be gone at
    the next start.
    """
    for queue in _targets_first(declared):
        name = TopicName(DEFAULT_NAMESPACE, queue.name)
        if node.queues.find(name) is not None:
            continue
        try:
            await _make(node, topics, name, queue, partitions)
        except (SqsError, GatewayError) as error:
            if isinstance(error, GatewayError) and error.retriable:
                raise
            raise InvalidSettings(f"adapters.sqs.queues.{queue.name}: {error}") from error


async def _make(
    node: QueueNode,
    topics: TopicManager,
    name: TopicName,
    declared: DeclaredQueue,
    partitions: int,
) -> None:
    wanted = new_queue(
        name.name,
        declared.given(),
        declared.tags,
        fifo=is_fifo_name(name.name),
        find_target=dead_letter_finder(node, name),
    )
    await make_queue(
        node.queues,
        topics,
        name,
        wanted.settings,
        partitions=partitions,
        attributes=wanted.attributes,
        tags=wanted.tags,
    )


def _targets_first(queues: Sequence[DeclaredQueue]) -> Iterator[DeclaredQueue]:
    """Yield dead-letter queues before the queues that name them; a cycle in its own order."""
    waiting = list(queues)
    while waiting:
        names = {queue.name for queue in waiting}
        free = [one for one in waiting if one.target_name() not in names - {one.name}]
        yield from free or waiting
        waiting = [one for one in waiting if free and one not in free]
