"""Start of the last bytes of a partition, compared with a count batch by batch."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from storage_adapters.s3 import sizes
from storage_adapters.s3.rows import RowsCache
from storage_adapters.s3.sizes import offset_for_size
from storage_adapters.s3.state import Extent, PartitionState

_BATCH_OFFSETS = 3


async def _none(_number: int) -> bytes | None:
    return None


def _house(objects: list[list[int]]) -> tuple[RowsCache, PartitionState]:
    """Return a partition with objects of batches of so many bytes, and all their rows."""
    rows = RowsCache(_none, bytes_max=1 << 20)
    state = PartitionState(1)
    for number, batches in enumerate(objects, 1):
        first = state.end
        packed = array("q", (9, 0, 99 << 32, 1))  # of another partition
        for size_bytes in batches:
            packed.extend((state.end, 0, size_bytes << 32, _BATCH_OFFSETS))
            state.end += _BATCH_OFFSETS
        packed.extend((9, 0, 99 << 32, 1))
        rows.put(number, packed)
        extent = Extent(first, state.end, number, 1, len(batches), sum(batches), 0, ())
        state.extents.append(extent)
    return rows, state


@given(st.lists(st.lists(st.integers(1, 9), max_size=12), max_size=4), st.integers(0, 200))
def test_it_is_what_counting_from_the_end_gives(
    objects: list[list[int]], bytes_max: int
) -> None:
    rows, state = _house(objects)
    offset, left_bytes = state.end, bytes_max
    for size_bytes in reversed([one for batches in objects for one in batches]):
        left_bytes -= size_bytes
        if left_bytes < 0:
            break
        offset -= _BATCH_OFFSETS

    assert offset_for_size(rows, state, bytes_max) == offset


def test_rows_are_counted_across_steps() -> None:
    count = 2 * sizes._STEP_ROWS + 5
    rows, state = _house([[1] * count])

    found = [
        offset_for_size(rows, state, kept)
        for kept in (0, 1, sizes._STEP_ROWS, sizes._STEP_ROWS + 1, count - 1)
    ]

    assert [(state.end - offset) // _BATCH_OFFSETS for offset in found] == [
        0,
        1,
        sizes._STEP_ROWS,
        sizes._STEP_ROWS + 1,
        count - 1,
    ]
