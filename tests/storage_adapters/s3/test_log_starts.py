"""Log starts and deletions: everyone gets an answer, whatever the index says of rows."""

import asyncio
import sqlite3
from array import array
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from gateway.clock import ManualClock
from gateway.errors import StorageUnavailable
from storage_adapters.formats.object_index import pack_rows
from storage_adapters.s3.change import BoundsRow, Change, NewObject, ObjectPart
from storage_adapters.s3.committer import Committer
from storage_adapters.s3.index import Index
from storage_adapters.s3.log_starts import LogStarts
from storage_adapters.s3.opening import catalog_of
from storage_adapters.s3.rows import RowsCache
from storage_adapters.s3.state import KIND_LOG, Catalog, Extent, StoredObject

Answer: TypeAlias = "asyncio.Future[StorageUnavailable | None]"
_SIZE_BYTES = 1_000  # of a batch, which holds ten offsets


class MergingSetup:
    """A node whose partitions 1 to 3 have two batches each, all in one object."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "metadata.sqlite"
        self.index = Index(f"sqlite:///{self.path}", clock=ManualClock(unix_ms=1_000_000))
        self.index.open()
        owned = self.index.take_over(1, reserve=1)
        self._add_object(owned.epoch, owned.reserved[0])
        self.committer = Committer(
            self.index, epoch=owned.epoch, reserved=[], reserve=4, on_fault=lambda _: None
        )
        self.catalog = catalog_of(self.index.load())
        self.rows = RowsCache(
            lambda number: self.committer.run(lambda index: index.rows(number)),
            bytes_max=1 << 20,
        )
        self.starts = LogStarts(self.catalog, self.rows, self.committer)

    def _add_object(self, epoch: int, number: int) -> None:
        rows = array("q")
        parts = []
        for at, partition_id in enumerate((1, 2, 3)):
            extent = Extent(0, 20, number, 2 * at, 2, 2 * _SIZE_BYTES, 5, ((1, 0),))
            parts.append(ObjectPart(partition_id, extent))
            for row in (2 * at, 2 * at + 1):
                place = 64 + _SIZE_BYTES * row + (_SIZE_BYTES << 32)
                rows.extend((row % 2 * 10, 5, place, 10 + (1 << 32)))
        stored = StoredObject(
            number, KIND_LOG, epoch, 0, 6, 9_000, "etag", 1, frozenset({1, 2, 3})
        )
        self.index.commit(epoch, Change((NewObject(stored, parts, pack_rows(rows)),)))

    def bounds(self) -> list[BoundsRow]:
        """Return what the index says of bounds, in order."""
        return sorted(self.index.load().bounds)

    def restarted(self) -> Catalog:
        """Return what a node that starts now would know."""
        return catalog_of(self.index.load())

    def damage_rows(self) -> None:
        """Let the index hold something else than rows."""
        with closing(sqlite3.connect(self.path)) as database:
            database.execute("UPDATE s3_objects SET rows = x'00'")
            database.commit()

    def truncate(self, partition_id: int, offset: int) -> Answer:
        """Begin to truncate."""
        answer = asyncio.get_running_loop().create_future()
        self.starts.truncate_before(partition_id, offset, partial(_answer, answer))
        return answer

    def delete(self, *partition_ids: int) -> Answer:
        """Begin to delete."""
        answer = asyncio.get_running_loop().create_future()
        self.starts.delete(partition_ids, partial(_answer, answer))
        return answer


def _answer(answer: Answer, error: StorageUnavailable | None) -> None:
    assert not answer.done()
    answer.set_result(error)


@pytest.fixture
def setup(tmp_path: Path) -> MergingSetup:
    return MergingSetup(tmp_path)


async def test_a_start_within_an_object_counts_what_lies_below_it(setup: MergingSetup) -> None:
    assert await setup.truncate(1, 15) is None

    assert setup.bounds() == [BoundsRow(1, 15, _SIZE_BYTES, is_deleted=False)]
    assert setup.restarted().partition(1).size_bytes() == _SIZE_BYTES
    await setup.committer.stop()


async def test_rows_that_cannot_be_had_hold_no_truncation_up(setup: MergingSetup) -> None:
    setup.damage_rows()

    answers = [setup.truncate(1, 15), setup.delete(2)]

    async with asyncio.timeout(60):
        assert await asyncio.gather(*answers) == [None, None]
        assert await setup.truncate(3, 20) is None
    assert setup.bounds() == [
        BoundsRow(1, 15, 0, is_deleted=False),
        BoundsRow(2, 0, 0, is_deleted=True),
        BoundsRow(3, 20, 0, is_deleted=False),
    ]
    await setup.committer.stop()


async def test_what_lies_below_is_never_said_of_another_extent(setup: MergingSetup) -> None:
    state = setup.catalog.partition(1)
    state.end, state.extents = 40, [*state.extents, state.extents[0]._replace(first=20, end=40)]
    await setup.truncate(1, 15)

    moving = setup.truncate(1, 25)  # out of the first extent, whose bytes were counted

    assert [extent.first for extent in state.extents] == [20]
    assert (state.below_bytes, state.size_bytes()) == (0, 2 * _SIZE_BYTES)
    await moving
    await setup.committer.stop()


async def test_a_refusal_is_for_those_whose_change_it_was(setup: MergingSetup) -> None:
    committer, turn = setup.committer, setup.committer._turn
    await turn.acquire()
    refused = setup.truncate(1, 15)
    await _until(lambda: bool(turn._waiters))
    kept = setup.truncate(2, 15)
    behind = asyncio.create_task(turn.acquire())
    await _until(lambda: len(turn._waiters or ()) == 2)

    committer.fault = StorageUnavailable("for now")
    turn.release()
    await behind
    committer.fault = None
    turn.release()
    first, second = await asyncio.gather(refused, kept)

    assert isinstance(first, StorageUnavailable)
    assert second is None
    await setup.committer.stop()


async def test_a_mistake_of_ours_leaves_nobody_without_an_answer(setup: MergingSetup) -> None:
    setup.rows._load = None  # type: ignore[assignment]

    async with asyncio.timeout(60):
        assert isinstance(await setup.truncate(1, 15), StorageUnavailable)
        assert await setup.truncate(2, 20) is None
    await setup.committer.stop()


async def test_what_lies_below_is_never_more_than_what_there_is(setup: MergingSetup) -> None:
    # As a merge leaves it that was committed, and not seen by the node that ended.
    below = BoundsRow(1, 15, 5_000, is_deleted=False)
    await setup.committer.commit(Change(bounds=(below, BoundsRow(2, 20, 9, is_deleted=False))))

    catalog = setup.restarted()

    assert [catalog.partition(1).size_bytes(), catalog.partition(2).size_bytes()] == [0, 0]
    await setup.committer.stop()


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - there is no event of it
            await asyncio.sleep(0)
