"""CompactingStorageContract: the suite of a storage that can rewrite what it keeps."""

import asyncio

import pytest

from gateway.model import Buffer, parse_batch_header
from gateway.storage import Bounds, CompactingStorage
from gateway.testing.entries import make_batch, make_entry
from gateway.testing.storage import StorageContract
from gateway.testing.storage_calls import ALL, append, offsets_of, read_all


class CompactingStorageContract(StorageContract):
    """The suite, and what a rewrite of a partition must do."""

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
