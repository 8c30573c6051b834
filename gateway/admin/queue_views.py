"""JSON views of queues and their messages for the admin endpoint."""

from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request

from features.queue.model import Counts, Order
from gateway.admin.requests import bytes_as_text, namespace_of, path_text
from gateway.errors import TopicNotFound
from gateway.futures import await_done
from gateway.kernel import Kernel
from gateway.model import DLQ_PREFIX, TopicName
from gateway.queues.asking_owners import browse_messages, count_messages, first_message
from gateway.queues.browsing import Browsed
from gateway.queues.call_payloads import PartitionCounts
from gateway.queues.manager import Queue
from gateway.queues.model import DEFAULT_GROUP
from gateway.queues.purge_offsets import PURGED

LANES_MAX: Final = 256  # looked at for the oldest message; of a wider queue it is near enough


class QueueNotFound(TopicNotFound):
    """No queue of this name and group."""


def queue_of(kernel: Kernel, request: Request) -> Queue:
    """Return the queue that path and query name. Errors: ``QueueNotFound``."""
    name = TopicName(namespace_of(request), path_text(request, "queue"))
    group = request.query_params.get("group", DEFAULT_GROUP)
    queue = kernel.queues.find(name, group)
    if queue is None:
        suffix = "" if group == DEFAULT_GROUP else f" of group {group[:80]!r}"
        raise QueueNotFound(f"no queue {name.name[:249]!r}{suffix}")
    return queue


async def queue_summary(kernel: Kernel, queue: Queue) -> dict[str, Any]:
    """Return a queue's name, settings, counts by state, and the age of its oldest message.

    What waits for a time of its own, which no group has seen, counts as delayed. Of a queue that
    lies with several nodes only the partitions of this one count.
    """
    return _summary(kernel, queue, queue.counts(), await _oldest_unix_ms(queue))


def _summary(
    kernel: Kernel, queue: Queue, by_state: Counts, oldest_unix_ms: int | None
) -> dict[str, Any]:
    counts = by_state._asdict()
    counts["delayed"] += kernel.delays.count(queue.topic)
    age_ms = None if oldest_unix_ms is None else kernel.clock.unix_ms() - oldest_unix_ms
    return {
        "namespace": queue.name.namespace,
        "name": queue.name.name,
        "group": queue.group,
        "partitions": len(queue.topic.partition_ids),
        "settings": queue.settings.model_dump(mode="json"),
        "counts": counts,
        "oldest_age_ms": None if age_ms is None else max(0, age_ms),
        "receivers_waiting": queue.waiting_count,
    }


async def queue_details(kernel: Kernel, queue: Queue) -> dict[str, Any]:
    """Return ``queue_summary`` with all other facts of a queue, wherever its partitions are.

    Errors: as ``gateway.queues.asking_owners``.
    """
    if queue.is_away:
        by_state, oldest_unix_ms = await _ask_summary(kernel, queue)
        summary = _summary(kernel, queue, by_state, oldest_unix_ms)
    else:
        summary = await queue_summary(kernel, queue)
    return {
        **summary,
        "topic_uuid": str(queue.topic.uuid),
        "owns_topic": queue.owns_topic,
        "attributes": {
            name: value for name, value in queue.attributes.items() if name != PURGED
        },
        "tags": queue.tags,
        "created_unix_ms": queue.created_unix_ms,
        "changed_unix_ms": queue.changed_unix_ms,
        "dead_letter_sources": [
            source.name.name for source in kernel.queues.sources_of(queue.name)
        ],
    }


async def letters_of(kernel: Kernel, queue: Queue, count: int) -> dict[str, Any]:
    """Return a queue's first messages, with the values of their ``dlq.*`` headers."""
    now_unix_ms = kernel.clock.unix_ms()
    found = await queue.browse(count)
    return {
        "total": sum(queue.counts()),
        "messages": [letter_view(browsed, now_unix_ms) for browsed in found],
    }


async def purge_queue(kernel: Kernel, queue: Queue) -> None:
    """Drop a queue's messages, and delayed ones of its topic if it has no other queue.

    Errors: ``StorageUnavailable``; ``NotLeader`` when another node owns a partition.
    """
    queue.check_here()  # before delayed messages are dropped
    others = [one for one in kernel.queues.everything() if one.topic is queue.topic]
    if others == [queue]:
        await await_done(lambda on_done: kernel.delays.purge(queue.topic, on_done))
    await await_done(queue.purge)
    if (
        queue.settings.order is Order.KEY
    ):  # then senders' ids are known, but those of what was purged
        await kernel.queues.keep_purge(queue)


async def _oldest_unix_ms(queue: Queue) -> int | None:
    """Return the lowest timestamp of the first unsettled message of each partition."""
    oldest: int | None = None
    for lane in queue.lanes[:LANES_MAX]:
        if lane.lane.floor >= lane.partition.stable_end:
            continue
        record = await queue.get(lane.number, lane.lane.floor)
        if record is not None and (oldest is None or record.timestamp_unix_ms < oldest):
            oldest = record.timestamp_unix_ms
    return oldest


async def messages_of(
    kernel: Kernel, queue: Queue, count: int, *, number: int, offset: int
) -> tuple[Sequence[Browsed], int]:
    """Return messages from a partition and an offset on, and how many the queue has.

    ``offset``: 0 for the lowest. Errors: ``StorageUnavailable``; of a queue that lies with other
    nodes, as ``gateway.queues.asking_owners``.
    """
    if queue.is_away:
        start = offset or None
        found = await browse_messages(
            kernel.broker, queue, count, number=number, from_offset=start
        )
        return found, sum(_total(await count_messages(kernel.broker, queue)))
    starts = {
        lane.number: lane.partition.stable_end for lane in queue.lanes if lane.number < number
    }
    if offset:
        starts[number] = offset
    return await queue.browse(count, from_offsets=starts), sum(queue.counts())


async def _ask_summary(kernel: Kernel, queue: Queue) -> tuple[Counts, int | None]:
    """Return the counts and the lowest timestamp of the first messages, from the owners."""
    counted = await count_messages(kernel.broker, queue)
    times = []
    for one in sorted(counted)[:LANES_MAX]:
        if one.ready + one.in_flight + one.delayed:
            first = await first_message(kernel.broker, queue, one.number)
            times += [] if first is None else [first.record.timestamp_unix_ms]
    return _total(counted), min(times, default=None)


def _total(counted: Sequence[PartitionCounts]) -> Counts:
    return Counts(
        sum(one.ready for one in counted),
        sum(one.in_flight for one in counted),
        sum(one.delayed for one in counted),
    )


def letter_view(browsed: Browsed, now_unix_ms: int) -> dict[str, Any]:
    """Return a message of a queue, with the values of its ``dlq.*`` headers."""
    record = browsed.record
    return {
        "partition": browsed.number,
        "offset": record.offset,
        "state": browsed.state,
        "timestamp_unix_ms": record.timestamp_unix_ms,
        "age_ms": max(0, now_unix_ms - record.timestamp_unix_ms),
        **bytes_as_text("key", record.key),
        **bytes_as_text("value", record.value),
        "headers": [
            {"name": name, **bytes_as_text("value", value)}
            for name, value in record.headers
            if not name.startswith(DLQ_PREFIX)
        ],
        "dlq": {
            name.removeprefix(DLQ_PREFIX): (value or b"").decode(errors="replace")
            for name, value in record.headers
            if name.startswith(DLQ_PREFIX)
        },
    }
