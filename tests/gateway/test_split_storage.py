"""Memory beside a durable storage: the contract holds, and appends to both are one."""

import asyncio
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.clock import ManualClock
from gateway.errors import StorageFull, StorageUnavailable
from gateway.split_storage import OFFSETS_PER_START, SplitStorage
from gateway.storage import Bounds, StorageAdapter, StorageHost
from gateway.testing.compacting_storage import CompactingStorageContract
from gateway.testing.storage import (
    Host,
    append,
    delete,
    make_batch,
    make_entry,
    offsets_of,
    read_all,
    truncate,
)
from storage_adapters.memory import BATCH_OVERHEAD_BYTES, MemoryConfig, MemoryStorage
from tests.support.held_storage import HeldStorage
from tests.support.waiting import turns

DURABLE = (1, 2)
IN_MEMORY = (11, 12)


def new_memory(**config: int) -> MemoryStorage:
    options = MemoryConfig(**{"reserve_bytes": 0, **config})
    return MemoryStorage(options, data_dir=Path(), clock=ManualClock())


async def new_split(
    durable: StorageAdapter, memory: MemoryStorage | None = None
) -> SplitStorage:
    """Return an open storage with ``IN_MEMORY`` in memory."""
    memory = memory or new_memory()
    await durable.open(Host())
    await memory.open(Host())
    split = SplitStorage(durable, memory)
    split.keep_in_memory(IN_MEMORY)
    return split


def new_held() -> HeldStorage:
    return HeldStorage(HeldStorage.Config(), data_dir=Path(), clock=ManualClock())


class _Opened(SplitStorage):
    """Opens its parts, as the contract has it; partition 999 is in memory."""

    async def open(self, host: StorageHost) -> None:
        await self._durable.open(host)
        await self._memory.open(host)
        self.keep_in_memory([999])


class TestDurablePartitions(CompactingStorageContract):
    def new_storage(self, data_dir: Path) -> StorageAdapter:
        del data_dir
        return _Opened(new_memory(append_bytes_max=self.append_bytes_max - 1), new_memory())

    async def reopen(self, storage: StorageAdapter, data_dir: Path) -> StorageAdapter:
        del data_dir
        await storage.close()
        await storage.open(Host())
        return storage


async def test_an_append_to_both_shows_in_memory_when_it_is_durable() -> None:
    durable = new_held()
    split = await new_split(durable)
    durable.held = True
    done: list[StorageUnavailable | None] = []

    split.enqueue([make_entry([(1, 0), (11, 0)], 3)], done.append)
    await turns(5)
    assert await read_all(split, 11) == []
    assert split.bounds(11) == Bounds(0, 3)
    durable.release()

    assert done == [None]
    assert await read_all(split, 1) == [make_batch(0, 3)]
    assert await read_all(split, 11) == [make_batch(0, 3)]


async def test_memory_keeps_its_order_behind_an_append_to_both() -> None:
    durable = new_held()
    split = await new_split(durable)
    durable.held = True
    done: list[int] = []

    split.enqueue([make_entry((11, 0))], lambda _: done.append(0))
    split.enqueue([make_entry((1, 0)), make_entry((11, 1))], lambda _: done.append(1))
    split.enqueue([make_entry((11, 2))], lambda _: done.append(2))
    await turns(5)
    assert done == [0]
    assert offsets_of(await split.read(11, 0, 10, bytes_max=1 << 20)) == [0]
    durable.release()
    await turns(1)

    assert done == [0, 1, 2]
    assert offsets_of(await split.read(11, 0, 10, bytes_max=1 << 20)) == [0, 1, 2]


async def test_memory_alone_does_not_wait_for_the_disk() -> None:
    durable = new_held()
    split = await new_split(durable)
    durable.held = True
    done: list[str] = []

    split.enqueue([make_entry((1, 0))], lambda _: done.append("durable"))
    split.enqueue([make_entry((11, 0))], lambda _: done.append("memory"))
    await turns(3)
    assert done == ["memory"]

    durable.release()
    assert done == ["memory", "durable"]


async def test_targets_of_both_kinds_get_their_own_base_offset() -> None:
    split = await new_split(new_held())
    await append(split, make_entry((1, 0), 5), make_entry((11, 0), 7))

    await append(split, make_entry([(11, 7), (1, 5), (12, 0), (2, 0)], 2, epoch=4))

    for partition_id, offset in ((1, 5), (2, 0), (11, 7), (12, 0)):
        found = await read_all(split, partition_id, start=offset)
        assert offsets_of(found) == [offset]
        assert found[0][8:] == make_batch(7, 2, epoch=4)[8:]


async def test_full_memory_refuses_all_of_an_append() -> None:
    durable = new_held()
    split = await new_split(durable, new_memory(bytes_max=1 << 20))
    await append(split, make_entry((11, 0), size_bytes=900_000))

    with pytest.raises(StorageFull):
        split.enqueue(
            [make_entry((1, 0)), make_entry((11, 1), size_bytes=200_000)], lambda _: None
        )

    assert split.bounds(1) == Bounds(0, 0)
    assert split.bounds(11) == Bounds(0, 1)
    assert split.memory_refusals == 1
    await truncate(split, 11, 1)
    await append(split, make_entry((11, 1), size_bytes=900_000))


async def test_a_refusal_of_the_disk_takes_back_what_memory_has() -> None:
    class Full(MemoryStorage):
        def enqueue(self, *_args: object, **_kwargs: object) -> None:
            raise StorageFull("the disk")

    full = Full(MemoryConfig(), data_dir=Path(), clock=ManualClock())
    split = await new_split(full)

    with pytest.raises(StorageFull):
        split.enqueue([make_entry([(1, 0), (11, 0)])], lambda _: None)

    assert split.bounds(11) == Bounds(0, 0)
    assert split.memory_used_bytes == 0
    assert split.queued_bytes == 0
    assert split.memory_refusals == 0
    await append(split, make_entry((11, 0)))
    assert offsets_of(await read_all(split, 11)) == [0]


async def test_a_batch_for_many_partitions_is_kept_once() -> None:
    split = await new_split(new_held())
    ids = range(100, 300)
    split.keep_in_memory(ids)

    await append(split, make_entry([(n, 0) for n in ids], size_bytes=100_000))
    assert split.memory_used_bytes == 100_000 + 200 * BATCH_OVERHEAD_BYTES
    await delete(split, *ids[1:])
    assert split.memory_used_bytes == 100_000 + BATCH_OVERHEAD_BYTES
    assert await read_all(split, 100) == [make_batch(0, 1, size_bytes=100_000)]

    await truncate(split, 100, 1)
    assert split.memory_used_bytes == 0


async def test_a_deleted_partition_takes_nothing_of_what_is_on_its_way() -> None:
    durable = new_held()
    split = await new_split(durable)
    durable.held = True
    split.enqueue([make_entry([(1, 0), (11, 0)])], lambda _: None)
    split.delete([11], lambda _: None)
    durable.release()
    await turns(2)

    assert split.memory_used_bytes == 0


async def test_offsets_of_an_earlier_start_do_not_come_again() -> None:
    durable = new_held()
    await (await new_split(durable)).close()
    split = await new_split(durable)

    first = split.bounds(11).start
    assert first == OFFSETS_PER_START
    assert split.offset_for_size(11, 0) == first
    await append(split, make_entry((11, first), 3))

    assert split.bounds(11) == Bounds(first, first + 3)
    assert split.bounds(1) == Bounds(0, 0)
    assert offsets_of(await split.read(11, first, first + 3, bytes_max=1 << 20)) == [first]


async def test_nothing_in_memory_is_scanned() -> None:
    split = await new_split(new_held())

    await append(split, make_entry((1, 0)), make_entry((11, 0)))

    assert [stored.targets for stored in split.scan(0)] == [((1, 0),)]


def _note(done: list[int], number: int, _error: StorageUnavailable | None) -> None:
    done.append(number)


TARGETS = st.sets(st.sampled_from(DURABLE + IN_MEMORY), min_size=1)


Step = set[int] | Literal["release", "turn"]
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(TARGETS, st.just("release"), st.just("turn")), max_size=30
)


@given(steps=STEPS)
def test_what_is_done_is_there_in_order_and_whole(steps: list[Step]) -> None:
    asyncio.run(_walk(steps))


async def _walk(steps: list[Step]) -> None:
    """Append to any partitions while the disk is held; compare with plain lists."""
    durable = new_held()
    split = await new_split(durable)
    durable.held = True
    sent: dict[int, list[int]] = defaultdict(list)
    done: list[int] = []

    async def check() -> None:
        for partition_id, numbers in sent.items():
            seen = [n for n in numbers if n in done]
            there = offsets_of(await split.read(partition_id, 0, 1 << 20, bytes_max=1 << 20))
            if partition_id in IN_MEMORY:  # of the other, the held disk has more than is done
                assert there == list(range(len(seen)))
            assert seen == numbers[: len(seen)], "a later append was done before an earlier one"

    for number, step in enumerate(steps):
        if step == "release":
            durable.release()
            durable.held = True
        elif step == "turn":
            await turns(2)
        else:
            targets = [(one, len(sent[one])) for one in sorted(step)]
            split.enqueue([make_entry(targets)], partial(_note, done, number))
            for one, _ in targets:
                sent[one].append(number)
        await check()
    durable.release()
    await turns(3)
    await check()
    assert sorted(done) == [n for n, step in enumerate(steps) if not isinstance(step, str)]
    assert split.queued_bytes == 0
