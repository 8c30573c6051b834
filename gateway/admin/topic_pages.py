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
        rows = page.cut(found, lambda topic: len(topic.partition_ids))
    else:
        known = await sizes.of(kernel, found)
        field = Size._fields.index(page.sort)
        rows = page.cut(found, lambda topic: known[id(topic)][field])
    return {"topics": [_row(kernel, topic) for topic in rows], "total": len(found)}


def partition_page(kernel: Kernel, topic: Topic, page: Page) -> dict[str, Any]:
    """Return a page of a topic's partitions."""
    numbers = range(len(topic.partition_ids))
    if page.sort == "number":
        rows = page.cut(numbers)
    else:
        field = Size._fields.index(page.sort)
        rows = page.cut(numbers, lambda number: partition_size(kernel, topic, number)[field])
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
    sizes, count = {}, 0
    for topic in topics:
        sizes[id(topic)] = _size(kernel, topic)
        count += len(topic.partition_ids)
        if count >= SLICE_PARTITIONS:
            count = 0
            await asyncio.sleep(0)
    return sizes


def _size(kernel: Kernel, topic: Topic) -> Size:
    parts = [partition_size(kernel, topic, at) for at in range(len(topic.partition_ids))]
    return Size(sum(one.records for one in parts), sum(one.bytes for one in parts))


def _row(kernel: Kernel, topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name.name,
        "partitions": len(topic.partition_ids),
        "is_internal": topic.is_internal,
        "is_queue": kernel.queues.find(topic.name) is not None,
        **_size(kernel, topic)._asdict(),
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
