"""Start of the last bytes of a partition, by extents and the rows in memory."""

from array import array

import pytest

from storage_adapters.formats.footer import NO_TIMESTAMP
from storage_adapters.s3.rows import RowsCache
from storage_adapters.s3.sizes import offset_for_size
from storage_adapters.s3.state import Extent, PartitionState


async def _nothing(_number: int) -> bytes | None:
    return None


def _partition(*sizes: list[int]) -> tuple[PartitionState, RowsCache]:
    """Return a partition of ten offsets a batch; each argument is an object's sizes."""
    state, rows = PartitionState(1), RowsCache(_nothing, bytes_max=1 << 20)
    offset = 0
    for number, own in enumerate(sizes, 1):
        table = array("q")
        for at, size_bytes in enumerate(own):
            table.extend((offset + 10 * at, 0, size_bytes << 32, 10))
        end = offset + 10 * len(own)
        state.extents.append(
            Extent(offset, end, number, 0, len(own), sum(own), NO_TIMESTAMP, ())
        )
        rows.put(number, table)
        offset = end
    state.end = offset
    return state, rows


@pytest.mark.parametrize(
    ("bytes_max", "offset"),
    [(0, 50), (99, 50), (100, 40), (300, 30), (301, 30), (600, 20), (700, 10), (1_500, 0)],
)
def test_over_several_objects(bytes_max: int, offset: int) -> None:
    state, rows = _partition([800, 100], [300, 200, 100])
    assert offset_for_size(rows, state, bytes_max) == offset


def test_what_lies_below_the_start_counts_for_nothing() -> None:
    state, rows = _partition([800, 100], [300])
    state.start, state.below_bytes = 10, 800

    assert offset_for_size(rows, state, 400) == 10
    assert offset_for_size(rows, state, 10_000) == 10
    assert offset_for_size(rows, state, 399) == 20


def test_an_object_whose_rows_are_not_here_is_kept_whole() -> None:
    state, rows = _partition([800, 100], [300])
    rows.drop(1)
    assert offset_for_size(rows, state, 450) == 0


def test_an_empty_partition() -> None:
    state, rows = _partition()
    state.start = state.end = 7
    assert offset_for_size(rows, state, 100) == 7
