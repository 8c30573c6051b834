"""Questions that extents and rows answer, over several objects in a real bucket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import StorageUnavailable
from gateway.testing.storage import make_entry
from storage_adapters.s3 import queries
from storage_adapters.s3.queries import (
    base_offset_for_time,
    end_offset_for_epoch,
    rows_below,
)
from storage_adapters.s3.state import Extent, PartitionState
from tests.storage_adapters.s3.stored_objects import KIB, StoredObjects


def add_times(shelf: StoredObjects, first: int, *times_unix_ms: int) -> None:
    shelf.add(
        [
            make_entry((1, offset), timestamp_unix_ms=time_unix_ms)
            for offset, time_unix_ms in enumerate(times_unix_ms, first)
        ]
    )


async def test_time_is_found_over_objects(shelf: StoredObjects) -> None:
    add_times(shelf, 0, 100, 300)
    add_times(shelf, 2, 200, 250)
    add_times(shelf, 4, 400, 350)
    state = shelf.catalog.partition(1)

    found = [await base_offset_for_time(shelf.reader, state, t) for t in (50, 150, 301, 401)]

    assert found == [0, 1, 4, None]
    assert shelf.loads == [1, 3]  # objects that end before a time are not looked at
    assert shelf.bucket.gets == []


async def test_time_below_the_start_hides_nothing_behind_it(shelf: StoredObjects) -> None:
    add_times(shelf, 0, 900, 100, 200, 150)
    add_times(shelf, 4, 120, 500)
    state = shelf.catalog.partition(1)

    state.start = 1

    found = [await base_offset_for_time(shelf.reader, state, t) for t in (50, 150, 250, 600)]
    assert found == [1, 2, 5, None]


async def test_rows_that_went_with_their_object_are_looked_for_anew(
    shelf: StoredObjects,
) -> None:
    add_times(shelf, 0, 100)
    add_times(shelf, 0, 100)
    state = shelf.catalog.partition(1)
    merged = state.extents.pop()
    del shelf.packed[1]
    shelf.on_load = lambda: state.replace([1], [merged])

    assert await base_offset_for_time(shelf.reader, state, 50) == 0
    assert shelf.loads == [1, 2]


async def test_rows_that_stay_away_are_an_error(shelf: StoredObjects) -> None:
    add_times(shelf, 0, 100)
    del shelf.packed[1]
    state = shelf.catalog.partition(1)

    with pytest.raises(StorageUnavailable, match=r"partition 1: .* object 1"):
        await base_offset_for_time(shelf.reader, state, 50)


async def test_rows_below_an_offset(shelf: StoredObjects) -> None:
    shelf.add([make_entry((1, 10 * n), 10, size_bytes=100 + n) for n in range(3)])
    (extent,) = shelf.catalog.partition(1).extents
    rows = await shelf.reader.rows_of(1)

    found = [rows_below(rows, extent, offset) for offset in (0, 9, 10, 19, 20, 30, 99)]

    assert found == [0, 0, 100, 100, 201, 303, 303]


# Epochs.


def reference(
    batches: list[tuple[int, int]], state: PartitionState, epoch: int
) -> tuple[int, int]:
    """Return the same from (epoch, base offset) of each batch, all of one offset."""
    kept = [batch for batch in batches if batch[1] >= state.start]
    lower = [one for one, _ in kept if one <= epoch]
    higher = [base_offset for one, base_offset in kept if one > epoch]
    if higher:
        return (lower[-1] if lower else epoch), max(state.start, higher[0])
    return (lower[-1], state.end) if lower else (-1, -1)


@given(steps=st.lists(st.tuples(st.sampled_from([0, 0, 3]), st.booleans()), max_size=8))
def test_epochs_end_where_the_next_begins(steps: list[tuple[int, bool]]) -> None:
    """``steps``: how much the epoch grows with each batch, and whether an object ends there."""
    state = PartitionState(1)
    state.end = len(steps)
    batches: list[tuple[int, int]] = []
    epochs: list[tuple[int, int]] = []
    first, now = 0, 3
    for offset, (step, ends) in enumerate(steps):
        now += step
        batches.append((now, offset))
        if not epochs or epochs[-1][0] != now:
            epochs.append((now, offset))
        if ends or offset == len(steps) - 1:
            end, count = offset + 1, offset + 1 - first
            state.extents.append(Extent(first, end, end, 0, count, 1, 0, tuple(epochs)))
            first, epochs = end, []

    for state.start in range(len(steps) + 1):
        for epoch in range(now + 2):
            expected = reference(batches, state, epoch)
            assert end_offset_for_epoch(state, epoch) == expected


@pytest.mark.parametrize("block_bytes", [64 * KIB, 1024 * KIB])
async def test_large_batches_below_the_start(
    shelf: StoredObjects, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "READ_BYTES", 150 * KIB)  # two batches at a time
    shelf.start(block_bytes=block_bytes)
    times = (900, 1, 2, 3, 500, 4)
    shelf.add(
        [
            make_entry((1, n), size_bytes=70 * KIB, timestamp_unix_ms=time_unix_ms)
            for n, time_unix_ms in enumerate(times)
        ]
    )
    state = shelf.catalog.partition(1)
    state.start = 1

    assert await base_offset_for_time(shelf.reader, state, 400) == 4
    assert await base_offset_for_time(shelf.reader, state, 600) is None
