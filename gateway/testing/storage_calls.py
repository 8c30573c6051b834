"""Calls of a storage that wait for their result, and the node that a storage is opened by."""

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from gateway.errors import StorageUnavailable
from gateway.model import Buffer, PartitionIdentity, TopicName, parse_batch_header
from gateway.storage import Entry, StorageAdapter

ALL: Final = 1 << 30


class Host:
    """A node whose partition ``n`` is partition 0 of topic ``t<n>``; it remembers its faults."""

    node_id = 1

    def __init__(self, metadata_url: str = "") -> None:
        self.metadata_url = metadata_url
        self.faults: list[BaseException] = []

    def identify(self, partition_id: int) -> PartitionIdentity:
        topic = TopicName("default", f"t{partition_id}")
        return PartitionIdentity(partition_id, UUID(int=partition_id), topic, 0)

    def on_fault(self, error: BaseException) -> None:
        self.faults.append(error)


async def append(storage: StorageAdapter, *entries: Entry) -> None:
    """Append ``entries`` as one append and wait for it."""
    done: asyncio.Future[StorageUnavailable | None] = asyncio.get_running_loop().create_future()
    storage.enqueue(entries, done.set_result)
    error = await done
    if error is not None:
        raise error


async def truncate(storage: StorageAdapter, partition_id: int, offset: int) -> None:
    """Truncate and wait for it."""
    done: asyncio.Future[StorageUnavailable | None] = asyncio.get_running_loop().create_future()
    storage.truncate_before(partition_id, offset, done.set_result)
    assert await done is None


async def delete(storage: StorageAdapter, *partition_ids: int) -> None:
    """Delete and wait for it."""
    done: asyncio.Future[StorageUnavailable | None] = asyncio.get_running_loop().create_future()
    storage.delete(partition_ids, done.set_result)
    assert await done is None


async def read_all(
    storage: StorageAdapter, partition_id: int, start: int = 0, end: int = ALL
) -> list[bytes]:
    """Return the batches of a partition, read both ways."""
    batches = await storage.read(partition_id, start, end, bytes_max=ALL)
    cached = storage.read_cached(partition_id, start, end, bytes_max=ALL)
    assert cached is None or list(map(bytes, cached)) == list(map(bytes, batches))
    return [bytes(batch) for batch in batches]


def offsets_of(batches: Sequence[Buffer]) -> list[int]:
    """Return the base offsets that batches bear."""
    return [parse_batch_header(batch).base_offset for batch in batches]
