"""Limits of a micro-batch in rows and bytes, without Spark."""

from uuid import UUID

import pytest

from gateway.model import PartitionIdentity, TopicName
from pipeline.log.views import Extent, PartitionView
from pipeline.source.limits import limited


def _view(number: int, *extents: tuple[int, int, int]) -> PartitionView:
    identity = PartitionIdentity(number, UUID(int=1), TopicName("default", "t"), number)
    held = [Extent("p", number, first, end, size_bytes) for first, end, size_bytes in extents]
    return PartitionView(identity, held[0].first, held[-1].end, held)


_VIEWS = {
    "t/0": _view(0, (0, 100, 1_000), (100, 200, 9_000)),
    "t/1": _view(1, (50, 60, 400)),
}
_START = {"t/0": 0, "t/1": 50}
_GOAL = {"t/0": 200, "t/1": 60}


@pytest.mark.parametrize(
    ("rows_max", "bytes_max", "reached"),
    [
        (0, 0, (200, 60)),
        (50, 0, (40, 60)),  # what the small one does not need goes to the other
        (0, 1_400, (100, 60)),
        (0, 5_900, (150, 60)),
        (0, 400, (20, 55)),
        (0, 1, (1, 51)),  # something is taken, however large
        (20, 1_400, (10, 60)),
        (200, 400, (20, 55)),
        (0, 1_000_000, (200, 60)),
    ],
)
def test_partitions_share_a_limit(
    rows_max: int, bytes_max: int, reached: tuple[int, int]
) -> None:
    found = limited(_VIEWS, _START, _GOAL, rows_max=rows_max, bytes_max=bytes_max)

    assert (found["t/0"], found["t/1"]) == reached


def test_a_partition_without_news_stays_where_it_is() -> None:
    start = _START | {"t/1": 60}

    assert limited(_VIEWS, start, _GOAL, rows_max=0, bytes_max=500) == {"t/0": 50, "t/1": 60}


def test_offsets_that_compaction_removed_are_passed() -> None:
    views = {"t/0": _view(0, (0, 10, 100), (500, 510, 100))}

    found = limited(views, {"t/0": 0}, {"t/0": 510}, rows_max=0, bytes_max=150)

    assert found == {"t/0": 505}
