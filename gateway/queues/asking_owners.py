"""Questions about a queue to the owners of its partitions, by the service ``queue``.

Errors of all: those of the service; ``NotOwner`` while nobody serves a partition;
``OutcomeUnknown`` when an answer is lost. To ask again does no harm.
"""

import asyncio
from collections import defaultdict
from typing import cast

from gateway.broker import Broker
from gateway.placement import shard_of
from gateway.queues.browsing import Browsed
from gateway.queues.call_payloads import (
    BrowsedMessages,
    BrowseMessages,
    CountedPartitions,
    CountMessages,
    PartitionCounts,
    QueueRef,
)
from gateway.queues.queue import Queue
from gateway.queues.queue_calls import SERVICE


async def count_messages(broker: Broker, queue: Queue) -> list[PartitionCounts]:
    """Return the messages of each partition by state, in no order."""
    by_shard: defaultdict[int, list[int]] = defaultdict(list)
    for number in range(len(queue.topic.partition_ids)):
        by_shard[shard_of(queue.topic, number, broker.placement)].append(number)
    ref = _ref_of(queue)
    replies = await asyncio.gather(
        *(
            broker.shard_calls.ask(shard, SERVICE, CountMessages(ref, tuple(numbers)))
            for shard, numbers in by_shard.items()
        )
    )
    counted = cast("list[CountedPartitions]", replies)
    return [one for reply in counted for one in reply.partitions]


async def first_message(broker: Broker, queue: Queue, number: int) -> Browsed | None:
    """Return the lowest message of a partition that is not settled."""
    reply = await _browse(broker, queue, number, None, 1)
    return reply.messages[0] if reply.messages else None


async def browse_messages(
    broker: Broker, queue: Queue, count: int, *, number: int = 0, from_offset: int | None = None
) -> list[Browsed]:
    """Return messages without taking them, as ``Queue.browse``, from a partition on.

    ``from_offset``: where to begin in the first partition.
    """
    found: list[Browsed] = []
    while number < len(queue.topic.partition_ids) and len(found) < count:
        reply = await _browse(broker, queue, number, from_offset, count - len(found))
        found += reply.messages
        if reply.is_cut:
            from_offset = found[-1].record.offset + 1
        else:
            number, from_offset = number + 1, None
    return found


async def _browse(
    broker: Broker, queue: Queue, number: int, from_offset: int | None, count: int
) -> BrowsedMessages:
    shard = shard_of(queue.topic, number, broker.placement)
    request = BrowseMessages(_ref_of(queue), number, from_offset, count)
    reply = await broker.shard_calls.ask(shard, SERVICE, request)
    assert isinstance(reply, BrowsedMessages)
    return reply


def _ref_of(queue: Queue) -> QueueRef:
    return QueueRef(queue.topic.uuid, queue.group)
