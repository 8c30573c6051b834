"""Pages of topics and of partitions, for nodes that have 100,000 of them.

A page is read from the storage's catalog, so that no partition gets a live state because somebody
looked at it. To sort all topics by size, all of them are summed up, in slices between which the
event loop has its turn, and the sums are kept for some seconds.
"""

import asyncio
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from gateway.admin.paging import Page
from gateway.clock import Clock
from gateway.kernel import Kernel
from gateway.placement import shard_of
from gateway.topics.manager import Topic

TOPIC_SORTS: Final = ("name", "partitions", "records", "bytes")
PARTITION_SORTS: Final = ("number", "records", "bytes")
SLICE_PARTITIONS: Final = 1_000
KEPT_MS: Final = 5_000


class Size(NamedTuple):
    """Records and bytes of a topic or of a partition, as they are stored."""

    records: int
    bytes: int


class TopicSizes:
    """Sizes of all topics, measured for a page that is sorted by them. Loop only."""

    def __init__(self) -> None:
        self._sizes: dict[int, Size] = {}
        self._measured_ms = -KEPT_MS
        self._lock = asyncio.Lock()

    async def of(self, kernel: Kernel, topics: list[Topic]) -> dict[int, Size]:
        """Return the sizes by ``id`` of the topic."""
        async with self._lock:
            if self._is_old(kernel.clock) or any(id(one) not in self._sizes for one in topics):
                self._sizes = await _measure(kernel, topics)
                self._measured_ms = kernel.clock.monotonic_ms()
        return self._sizes

    def _is_old(self, clock: Clock) -> bool:
        return clock.monotonic_ms() - self._measured_ms > KEPT_MS


async def topic_page(
    kernel: Kernel, topics: list[Topic], page: Page, sizes: TopicSizes
) -> dict[str, Any]:
    """Return a page of topics, with their sizes."""
    found = page.names(topics, lambda topic: topic.name.name)
    if page.sort == "name":
        rows = page.cut(found)
    elif page.sort == "partitions":
        rows = await page.cut_sorted(found, lambda topic: len(topic.partition_ids))
    else:
        known = await sizes.of(kernel, found)
        field = Size._fields.index(page.sort)
        rows = await page.cut_sorted(found, lambda topic: known[id(topic)][field])
    shown = [_row(kernel, topic, await _size(kernel, topic)) for topic in rows]
    return {"topics": shown, "total": len(found)}


async def partition_page(kernel: Kernel, topic: Topic, page: Page) -> dict[str, Any]:
    """Return a page of a topic's partitions."""
    numbers = range(len(topic.partition_ids))
    if page.sort == "number":
        rows = page.cut(numbers)
    else:
        field = Size._fields.index(page.sort)
        rows = await page.cut_sorted(
            numbers, lambda number: partition_size(kernel, topic, number)[field]
        )
    return {
        "partitions": [_partition(kernel, topic, number) for number in rows],
        "total": len(numbers),
    }


def partition_size(kernel: Kernel, topic: Topic, number: int) -> Size:
    """Return a partition's records and bytes, those of other nodes as far as they lie here."""
    partition_id = topic.partition_ids[number]
    bounds = kernel.broker.stored_bounds(partition_id)
    return Size(bounds.end - bounds.start, kernel.broker.stored_bytes(partition_id))


def includes(request: Request, name: str) -> bool:
    """Say whether a part of an answer is asked for; it is unless ``?<name>=false``."""
    return request.query_params.get(name) != "false"


async def _measure(kernel: Kernel, topics: list[Topic]) -> dict[int, Size]:
    return {id(topic): await _size(kernel, topic) for topic in topics}


async def _size(kernel: Kernel, topic: Topic) -> Size:
    """Sum up a topic's partitions, with a turn of the event loop after each slice."""
    records = size_bytes = 0
    for number in range(len(topic.partition_ids)):
        one = partition_size(kernel, topic, number)
        records, size_bytes = records + one.records, size_bytes + one.bytes
        if number % SLICE_PARTITIONS == 0:
            await asyncio.sleep(0)
    return Size(records, size_bytes)


def _row(kernel: Kernel, topic: Topic, size: Size) -> dict[str, Any]:
    return {
        "name": topic.name.name,
        "partitions": len(topic.partition_ids),
        "is_internal": topic.is_internal,
        "is_queue": kernel.queues.find(topic.name) is not None,
        **size._asdict(),
    }


def _partition(kernel: Kernel, topic: Topic, number: int) -> dict[str, Any]:
    partition_id = topic.partition_ids[number]
    bounds = kernel.broker.stored_bounds(partition_id)
    owner = kernel.placement.owner(shard_of(topic, number, kernel.placement))
    return {
        "number": number,
        "start": bounds.start,
        "end": bounds.end,
        **partition_size(kernel, topic, number)._asdict(),
        "owner": None if owner is None else owner.node_id,
        "holders": [hold.name for hold in kernel.broker.retention_holds(partition_id)],
    }
