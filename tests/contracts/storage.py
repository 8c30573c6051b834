"""What every storage adapter must do; a subclass only says how to build one."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from gateway.errors import RunTooLarge, StorageUnavailable
from gateway.model import (
    HEADER_BYTES,
    Buffer,
    PartitionIdentity,
    TopicName,
    parse_batch_header,
)
from gateway.storage import Bounds, CompactingStorage, Entry, StorageAdapter
from tests.contracts.calls import Calls
from tests.contracts.entries import make_batch, make_entry

__all__ = [
    "ALL",
    "CompactingStorageContract",
    "Host",
    "StorageContract",
    "append",
    "delete",
    "make_batch",
    "make_entry",
    "offsets_of",
    "read_all",
    "truncate",
]

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


def _note(finished: list[int], number: int, error: StorageUnavailable | None) -> None:
    assert error is None
    finished.append(number)


class StorageContract:
    """The suite. ``append_bytes_max``: an append above it is too large for the storage."""

    append_bytes_max = 2 * 1024 * 1024

    def new_storage(self, data_dir: Path) -> StorageAdapter:
        raise NotImplementedError

    def new_host(self, data_dir: Path) -> Host:
        del data_dir
        return Host()

    def new_breakable(self, data_dir: Path) -> tuple[StorageAdapter, Callable[[], None]]:
        """Return a storage, and what has its medium fail from then on, where it has one."""
        return self.new_storage(data_dir), lambda: None

    @pytest.fixture
    async def storage(self, tmp_path: Path):  # type: ignore[no-untyped-def]  # noqa: ANN201
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        yield storage
        await storage.close()

    async def test_new_partition_is_empty(self, storage: StorageAdapter) -> None:
        assert storage.bounds(7) == Bounds(0, 0)
        assert await read_all(storage, 7) == []
        assert storage.size_bytes(7) == 0
        assert storage.offset_for_size(7, 10) == 0
        assert storage.end_offset_for_epoch(7, 5) == (-1, -1)
        assert await storage.base_offset_for_time(7, 0) is None

    async def test_what_is_appended_is_read(self, storage: StorageAdapter) -> None:
        first, second = make_entry((7, 0), 3), make_entry((7, 3), size_bytes=200)

        await append(storage, first)
        await append(storage, second)

        assert await read_all(storage, 7) == [first.batch, second.batch]
        assert storage.bounds(7) == Bounds(0, 4)
        assert storage.size_bytes(7) == 300

    async def test_partitions_do_not_mix(self, storage: StorageAdapter) -> None:
        entries = [make_entry((1, 0), size_bytes=90), make_entry((2, 0), size_bytes=110)]

        await append(storage, *entries)

        assert await read_all(storage, 1) == [entries[0].batch]
        assert await read_all(storage, 2) == [entries[1].batch]

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    async def test_any_bytes_are_taken(self, storage: StorageAdapter, kind: type) -> None:
        entry = make_entry((1, 0))

        await append(storage, entry._replace(batch=kind(entry.batch)))

        assert await read_all(storage, 1) == [entry.batch]

    async def test_read_starts_with_the_batch_that_holds_the_offset(
        self, storage: StorageAdapter
    ) -> None:
        for base_offset in (0, 10, 20):
            await append(storage, make_entry((1, base_offset), 10))

        assert offsets_of(await read_all(storage, 1, start=9)) == [0, 10, 20]
        assert offsets_of(await read_all(storage, 1, start=10)) == [10, 20]
        assert offsets_of(await read_all(storage, 1, start=29)) == [20]
        assert await read_all(storage, 1, start=30) == []

    async def test_no_batch_begins_at_the_end(self, storage: StorageAdapter) -> None:
        for base_offset in (0, 10, 20):
            await append(storage, make_entry((1, base_offset), 10))

        assert offsets_of(await read_all(storage, 1, end=20)) == [0, 10]
        assert offsets_of(await read_all(storage, 1, end=21)) == [0, 10, 20]
        assert await read_all(storage, 1, start=5, end=5) == []

    async def test_one_batch_is_read_above_the_limit(self, storage: StorageAdapter) -> None:
        for base_offset in (0, 1, 2):
            await append(storage, make_entry((1, base_offset), size_bytes=100))

        async def count(bytes_max: int) -> int:
            return len(await storage.read(1, 0, ALL, bytes_max=bytes_max))

        assert [await count(n) for n in (1, 199, 200, 299, 300)] == [1, 1, 2, 2, 3]

    async def test_other_targets_get_their_own_base_offset(
        self, storage: StorageAdapter
    ) -> None:
        await append(storage, make_entry((2, 0), 5))
        await append(storage, make_entry([(1, 0), (2, 5), (3, 0)], 2, epoch=4))

        assert await read_all(storage, 1) == [make_batch(0, 2, epoch=4)]
        there = await read_all(storage, 2, start=5)
        assert offsets_of(there) == [5]
        assert there[0][8:] == make_batch(0, 2, epoch=4)[8:]
        assert storage.bounds(3) == Bounds(0, 2)
        assert storage.size_bytes(3) == 100

    async def test_bounds_count_what_is_enqueued_and_reads_do_not(
        self, storage: StorageAdapter
    ) -> None:
        done = asyncio.get_running_loop().create_future()

        storage.enqueue([make_entry((1, 0), 3)], done.set_result)

        assert storage.bounds(1) == Bounds(0, 3)
        assert not done.done()
        assert storage.queued_bytes > 0
        assert storage.read_cached(1, 0, ALL, bytes_max=ALL) == []
        await done
        assert storage.queued_bytes == 0

    async def test_appends_are_done_in_order(self, storage: StorageAdapter) -> None:
        finished: list[int] = []
        done = asyncio.get_running_loop().create_future()

        for base_offset in range(5):
            on_done = partial(_note, finished, base_offset)
            storage.enqueue([make_entry((1, base_offset))], on_done)
        storage.enqueue([make_entry((2, 0))], done.set_result)
        await done

        assert finished == [0, 1, 2, 3, 4]

    async def test_no_callback_runs_within_a_call(self, tmp_path: Path) -> None:
        """Not those of other calls either, also where a call finds that the medium fails."""
        storage, break_medium = self.new_breakable(tmp_path)
        await storage.open(self.new_host(tmp_path))
        calls = Calls(storage)
        calls.append_many(20)
        await calls.all_told()
        break_medium()
        calls.append_many(80)
        calls.make(lambda on_done: storage.truncate_before(1, 5, on_done))
        calls.make(lambda on_done: storage.delete([9], on_done))
        await calls.all_told()
        await storage.close()

        assert calls.told_within == []
        assert sorted(calls.told) == list(range(calls.taken_count))
        assert storage.queued_bytes == 0

    async def test_too_large_an_append_changes_nothing(self, storage: StorageAdapter) -> None:
        sequence = storage.next_sequence

        with pytest.raises(RunTooLarge):
            storage.enqueue(
                [make_entry((1, 0), size_bytes=self.append_bytes_max)], lambda _: None
            )

        assert storage.bounds(1) == Bounds(0, 0)
        assert storage.next_sequence == sequence
        await append(storage, make_entry((1, 0)))

    async def test_truncation_moves_the_start(self, storage: StorageAdapter) -> None:
        for base_offset in (0, 10, 20):
            await append(storage, make_entry((1, base_offset), 10))

        await truncate(storage, 1, 15)

        assert storage.bounds(1) == Bounds(15, 30)
        assert offsets_of(await read_all(storage, 1)) == [10, 20]
        assert storage.size_bytes(1) == 200

    async def test_start_never_goes_back_nor_behind_the_end(
        self, storage: StorageAdapter
    ) -> None:
        await append(storage, make_entry((1, 0), 10))

        await truncate(storage, 1, 5)
        await truncate(storage, 1, 3)
        assert storage.bounds(1) == Bounds(5, 10)
        await truncate(storage, 1, 99)
        assert storage.bounds(1) == Bounds(10, 10)

    async def test_offsets_go_on_when_all_is_truncated(self, storage: StorageAdapter) -> None:
        await append(storage, make_entry((1, 0), 10))
        await truncate(storage, 1, 10)
        assert await read_all(storage, 1) == []

        await append(storage, make_entry((1, 10), 2))

        assert offsets_of(await read_all(storage, 1)) == [10]
        assert storage.bounds(1) == Bounds(10, 12)

    async def test_deleted_partition_is_forgotten(self, storage: StorageAdapter) -> None:
        await append(storage, make_entry((1, 0)), make_entry((2, 0)), make_entry((3, 0)))

        await delete(storage, 1, 3)

        assert storage.bounds(1) == Bounds(0, 0)
        assert await read_all(storage, 3) == []
        assert storage.size_bytes(3) == 0
        assert len(await read_all(storage, 2)) == 1

    async def test_time_finds_the_first_batch_that_reaches_it(
        self, storage: StorageAdapter
    ) -> None:
        for base_offset, timestamp_unix_ms in enumerate((100, 300, 200, 400)):
            entry = make_entry((1, base_offset), timestamp_unix_ms=timestamp_unix_ms)
            await append(storage, entry)

        async def find(timestamp_unix_ms: int) -> int | None:
            return await storage.base_offset_for_time(1, timestamp_unix_ms)

        found = [await find(t) for t in (0, 100, 101, 300, 301, 400, 401)]
        assert found == [0, 0, 1, 1, 3, 3, None]

    async def test_time_is_not_looked_for_below_the_start(
        self, storage: StorageAdapter
    ) -> None:
        for base_offset, timestamp_unix_ms in enumerate((900, 100, 200)):
            entry = make_entry((1, base_offset), timestamp_unix_ms=timestamp_unix_ms)
            await append(storage, entry)

        await truncate(storage, 1, 1)

        assert await storage.base_offset_for_time(1, 150) == 2
        assert await storage.base_offset_for_time(1, 250) is None

    async def test_offset_for_size(self, storage: StorageAdapter) -> None:
        for base_offset in (0, 10, 20):
            await append(storage, make_entry((1, base_offset), 10, size_bytes=100))

        sizes = (0, 99, 100, 199, 200, 299, 300, 1_000)
        found = [storage.offset_for_size(1, size) for size in sizes]
        assert found == [30, 30, 20, 20, 10, 10, 0, 0]

    async def test_epochs_end_where_the_next_begins(self, storage: StorageAdapter) -> None:
        for base_offset, epoch in enumerate((2, 2, 5, 5, 7)):
            await append(storage, make_entry((1, base_offset), epoch=epoch))

        found = [storage.end_offset_for_epoch(1, epoch) for epoch in (1, 2, 4, 5, 6, 7, 9)]
        assert found == [(1, 0), (2, 2), (2, 2), (5, 4), (5, 4), (7, 5), (7, 5)]

    async def test_epoch_below_the_start_ends_there(self, storage: StorageAdapter) -> None:
        for base_offset, epoch in enumerate((2, 2, 5, 5, 7)):
            await append(storage, make_entry((1, base_offset), epoch=epoch))

        await truncate(storage, 1, 3)

        assert storage.end_offset_for_epoch(1, 2) == (2, 3)  # KIP-101
        assert storage.end_offset_for_epoch(1, 5) == (5, 4)

    async def test_closed_storage_takes_nothing(self, tmp_path: Path) -> None:
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        await storage.close()

        with pytest.raises(StorageUnavailable):
            storage.enqueue([make_entry((1, 0))], lambda _: None)
        with pytest.raises(StorageUnavailable):
            storage.truncate_before(1, 0, lambda _: None)

    async def test_closing_waits_for_what_is_enqueued(self, tmp_path: Path) -> None:
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        answers: list[StorageUnavailable | None] = []

        storage.enqueue([make_entry((1, 0))], answers.append)
        await storage.close()

        assert answers == [None]

    async def test_sequences_and_incarnations_grow(self, tmp_path: Path) -> None:
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        before = storage.next_sequence, storage.incarnation
        await append(storage, make_entry((1, 0)), make_entry((2, 0)))
        assert storage.next_sequence >= before[0] + 2

        after = storage.next_sequence
        storage = await self.reopen(storage, tmp_path)

        assert storage.next_sequence >= after
        assert storage.incarnation == before[1] + 1
        await storage.close()

    async def reopen(self, storage: StorageAdapter, data_dir: Path) -> StorageAdapter:
        """Stop and start again on the same data."""
        await storage.close()
        storage = self.new_storage(data_dir)
        await storage.open(self.new_host(data_dir))
        return storage

    async def test_everything_is_there_after_a_restart(self, tmp_path: Path) -> None:
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        shared = make_entry([(1, 0), (2, 0)], 5, timestamp_unix_ms=500)
        await append(storage, shared, make_entry((3, 0), 2))
        await append(storage, make_entry((1, 5), epoch=9))
        await truncate(storage, 2, 4)
        await delete(storage, 3)

        storage = await self.reopen(storage, tmp_path)

        assert storage.bounds(1) == Bounds(0, 6)
        assert storage.bounds(2) == Bounds(4, 5)
        assert storage.bounds(3) == Bounds(0, 0)
        assert await read_all(storage, 1) == [shared.batch, make_batch(5, epoch=9)]
        assert storage.end_offset_for_epoch(1, 3) == (1, 5)
        assert await storage.base_offset_for_time(2, 400) == 0
        assert storage.size_bytes(1) == 200
        await storage.close()

    async def test_scan_tells_all_batches_from_a_sequence_on(self, tmp_path: Path) -> None:
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        await append(storage, make_entry((1, 0), 5))
        sequence = storage.next_sequence
        second, third = make_entry([(1, 5), (2, 0)]), make_entry((1, 6))
        await append(storage, second, third)

        storage = await self.reopen(storage, tmp_path)

        assert len(list(storage.scan(0))) == 3
        found = list(storage.scan(sequence))
        assert [header.targets for header in found] == [second.targets, third.targets]
        assert [header.header for header in found] == [
            bytes(entry.batch[:HEADER_BYTES]) for entry in (second, third)
        ]
        assert sequence <= found[0].sequence < found[1].sequence < storage.next_sequence
        await storage.close()

    # Settling and compaction.


class CompactingStorageContract(StorageContract):
    """What a storage that can also replace what it keeps must do."""

    async def settled(self, storage: CompactingStorage, count: int) -> None:
        """Append large batches to partition 1 until the first ``count`` can be rewritten."""
        for number in range(count + 3):
            await append(storage, make_entry((1, number), size_bytes=400_000))

        async def reach() -> None:
            storage.release_scans_before(storage.next_sequence)
            while storage.settled_offset(1) < count:  # noqa: ASYNC110  # Settling has no event.
                await asyncio.sleep(0)

        await asyncio.wait_for(reach(), 60)

    async def test_released_headers_may_go_and_nothing_else_does(
        self, storage: CompactingStorage
    ) -> None:
        await self.settled(storage, 4)

        sequence = storage.next_sequence
        await append(storage, make_entry((1, 7)))
        storage.release_scans_before(sequence)

        assert offsets_of(await read_all(storage, 1)) == list(range(8))
        assert [header.sequence for header in storage.scan(sequence)] in ([], [sequence])

    async def test_rewrite_leaves_holes(self, storage: CompactingStorage) -> None:
        await self.settled(storage, 4)
        before = storage.size_bytes(1)
        seen = []

        def keep(batch: Buffer) -> Buffer | None:
            seen.append(parse_batch_header(batch).base_offset)
            return batch if seen[-1] in {0, 2} else None

        done = await storage.rewrite(1, 4, keep)

        assert seen == [0, 1, 2, 3]
        assert done.upto_offset == 4
        assert done.before_bytes - done.after_bytes == 800_000
        assert storage.bounds(1) == Bounds(0, 7)
        assert storage.size_bytes(1) == before - 800_000
        assert offsets_of(await read_all(storage, 1)) == [0, 2, 4, 5, 6]
        assert offsets_of(await read_all(storage, 1, start=1)) == [2, 4, 5, 6]
        assert offsets_of(await read_all(storage, 1, start=3, end=5)) == [4]
        assert offsets_of(await storage.read(1, 3, ALL, bytes_max=1)) == [4]

    async def test_rewritten_batches_take_the_place_of_others(
        self, storage: CompactingStorage
    ) -> None:
        await self.settled(storage, 4)
        small = make_batch(1, size_bytes=90, timestamp_unix_ms=5_000)

        def keep(batch: Buffer) -> Buffer | None:
            return small if parse_batch_header(batch).base_offset == 1 else None

        await storage.rewrite(1, 3, keep)

        batches = await read_all(storage, 1)
        assert batches[0] == small
        assert offsets_of(batches) == [1, 3, 4, 5, 6]
        assert await storage.base_offset_for_time(1, 4_000) == 1
        assert storage.end_offset_for_epoch(1, 1) == (1, 7)

    async def test_what_rewrite_is_told_to_drop_is_not_offered(
        self, storage: CompactingStorage
    ) -> None:
        await self.settled(storage, 4)
        asked, seen = [], []

        def drops(base_offset: int, size_bytes: int) -> bool:
            asked.append((base_offset, size_bytes))
            return base_offset in {0, 2}

        def keep(batch: Buffer) -> Buffer | None:
            seen.append(parse_batch_header(batch).base_offset)
            return batch

        done = await storage.rewrite(1, 4, keep, drops)

        assert asked == [(offset, 400_000) for offset in range(4)]
        assert seen == [1, 3]
        assert done.before_bytes - done.after_bytes == 800_000
        assert offsets_of(await read_all(storage, 1)) == [1, 3, 4, 5, 6]
        assert storage.bounds(1) == Bounds(0, 7)

    async def test_rewrite_that_keeps_nothing(self, storage: CompactingStorage) -> None:
        await self.settled(storage, 4)
        await storage.rewrite(1, 4, lambda _: None)
        assert offsets_of(await read_all(storage, 1)) == [4, 5, 6]
        assert storage.bounds(1) == Bounds(0, 7)

    async def test_rewrite_that_fails_changes_nothing(self, storage: CompactingStorage) -> None:
        await self.settled(storage, 4)

        def keep(batch: Buffer) -> Buffer | None:
            raise ValueError(len(batch))

        with pytest.raises(ValueError, match="400000"):
            await storage.rewrite(1, 4, keep)

        assert offsets_of(await read_all(storage, 1)) == list(range(7))

    async def test_rewrite_of_nothing(self, storage: CompactingStorage) -> None:
        done = await storage.rewrite(9, 10, lambda batch: batch)
        assert (done.before_bytes, done.after_bytes) == (0, 0)

    async def test_disk_usage(self, storage: CompactingStorage) -> None:
        before = storage.disk_usage()
        await self.settled(storage, 4)
        after = storage.disk_usage()
        assert after.log_bytes + after.settled_bytes >= 7 * 400_000
        assert before.free_bytes > 0
