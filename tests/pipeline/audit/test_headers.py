"""Findings from headers alone: loss, duplicates, disorder, and gaps in producer sequences."""

import struct
from collections.abc import Sequence

import pytest

from gateway.model import stamp
from pipeline.audit import findings as kinds
from pipeline.audit.headers import Raw, Walk, walk
from pipeline.audit.producers import SEQUENCE_MODULUS
from tests.support.batches import NOW_UNIX_MS, patched, sample_batch

_COUNT_AT = 57
_DELTA_AT = 23


def _batch(
    base: int,
    count: int = 10,
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    timestamp_unix_ms: int = NOW_UNIX_MS,
) -> tuple[int, memoryview]:
    data = sample_batch(
        count=count,
        timestamp_unix_ms=timestamp_unix_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )
    stamp(data, base, 0)
    return base, memoryview(data)


def _thinned(base: int, span: int, count: int) -> tuple[int, memoryview]:
    """A batch of which compaction has taken records out."""
    data = patched(sample_batch(count=count), _DELTA_AT, ">i", span - 1)
    stamp(data, base, 0)
    return base, memoryview(data)


def _walk(
    batches: Sequence[tuple[int, memoryview]],
    first: int = 0,
    end: int = 50,
    *,
    may_have_holes: bool = False,
) -> Walk:
    return walk(batches, first, end, may_have_holes=may_have_holes)


def _ranges(found: Walk) -> list[tuple[str, int, int, int]]:
    return [one[:4] for one in found.findings]


def test_what_follows_on_each_other_is_clean_and_counted() -> None:
    found = _walk([_batch(base) for base in range(0, 50, 10)])

    assert found.findings == []
    assert (found.batch_count, found.record_count, found.hole_offsets) == (5, 50, 0)
    assert found.size_bytes == 5 * len(_batch(0)[1])


@pytest.mark.parametrize(
    ("bases", "missing"),
    [
        ([0, 10, 30, 40], (20, 29)),
        ([10, 20, 30, 40], (0, 9)),
        ([0, 10, 20, 30], (40, 49)),
        ([], (0, 49)),
    ],
)
def test_offsets_that_no_batch_has_are_missing(
    bases: list[int], missing: tuple[int, int]
) -> None:
    found = _walk([_batch(base) for base in bases])

    assert _ranges(found) == [(kinds.MISSING, *missing, missing[1] - missing[0] + 1)]


def test_one_offset_alone_can_be_missing() -> None:
    assert _ranges(_walk([_batch(0), _batch(11, 39)])) == [(kinds.MISSING, 10, 10, 1)]


def test_the_same_gap_is_a_hole_where_compaction_has_been() -> None:
    found = _walk([_batch(base) for base in (0, 10, 30, 40)], may_have_holes=True)

    assert _ranges(found) == [(kinds.HOLES, 0, 49, 10)]
    assert found.hole_offsets == 10


def test_a_batch_with_fewer_records_than_offsets_has_holes_and_loses_nothing() -> None:
    found = _walk([_batch(0), _thinned(10, 30, 4), _batch(40)])

    assert _ranges(found) == [(kinds.HOLES, 0, 49, 26)]
    assert found.record_count == 24


def test_what_retention_took_from_the_first_batch_is_neither_missing_nor_twice() -> None:
    found = _walk([_batch(0), _batch(10)], first=4, end=20)

    assert found.findings == []


def test_offsets_that_two_batches_have_are_duplicates() -> None:
    found = _walk([_batch(0), _batch(10), _batch(15), _batch(25, 25)])

    assert _ranges(found) == [(kinds.DUPLICATE, 15, 19, 5)]


def test_a_batch_within_another_is_a_duplicate_as_a_whole() -> None:
    found = _walk([_batch(0, 40), _batch(10), _batch(40)])

    assert _ranges(found) == [(kinds.DUPLICATE, 10, 19, 10)]


def test_batches_in_the_wrong_order_are_disorder_alone() -> None:
    found = _walk([_batch(0), _batch(20), _batch(10), _batch(30, 20)])

    assert _ranges(found) == [(kinds.DISORDER, 10, 10, 1)]


def test_more_records_than_offsets_is_damage_and_not_a_loss_beside_it() -> None:
    base, data = _batch(10)
    lies = patched(bytearray(data), _COUNT_AT, ">i", 11)

    found = _walk([_batch(0), (base, memoryview(lies)), _batch(20, 30)])

    assert _ranges(found) == [(kinds.DAMAGED, 10, 19, 1)]
    assert "11 records in 10 offsets" in found.findings[0].example


def test_a_length_that_is_not_the_batchs_is_damage() -> None:
    base, data = _batch(10)
    lies = bytearray(data)
    struct.pack_into(">i", lies, 8, len(lies))

    found = _walk([_batch(0), (base, memoryview(lies)), _batch(20, 30)])

    assert _ranges(found) == [(kinds.DAMAGED, 10, 19, 1)]


def test_a_time_that_goes_back_is_told_and_is_no_error() -> None:
    batches = [
        _batch(0, timestamp_unix_ms=NOW_UNIX_MS),
        _batch(10, timestamp_unix_ms=NOW_UNIX_MS - 500),
        _batch(20, 30, timestamp_unix_ms=NOW_UNIX_MS + 1),
    ]

    found = _walk(batches)

    assert found.findings == [Raw(kinds.TIME_BACKWARDS, 10, 10, 1, "by 500 ms at most")]
    assert kinds.TIME_BACKWARDS not in kinds.WRONG


def _producers(*sequences: tuple[int, int, int], may_have_holes: bool = False) -> Walk:
    """Batches of ten records one behind the other, of these producers, epochs and sequences."""
    batches = [_batch(at * 10, producer=one) for at, one in enumerate(sequences)]
    return _walk(batches, end=len(batches) * 10, may_have_holes=may_have_holes)


def test_two_producers_in_turns_are_each_in_order() -> None:
    assert _producers((7, 0, 0), (8, 3, 40), (7, 0, 10), (8, 3, 50)).findings == []


@pytest.mark.parametrize(
    ("second", "kind", "count"),
    [
        ((7, 0, 15), kinds.SEQUENCE_GAP, 5),
        ((7, 0, 0), kinds.SEQUENCE_DUPLICATE, 10),
        ((7, 0, 6), kinds.SEQUENCE_DUPLICATE, 4),
        ((7, 1, 10), kinds.EPOCH_START, 1),
    ],
)
def test_sequences_that_do_not_follow_are_found(
    second: tuple[int, int, int], kind: str, count: int
) -> None:
    found = _producers((7, 0, 0), second)

    assert [(one.kind, one.total) for one in found.findings] == [(kind, count)]
    assert "producer 7" in found.findings[0].example


def test_a_new_epoch_begins_at_0_and_an_epoch_never_goes_back() -> None:
    assert _producers((7, 2, 90), (7, 3, 0)).findings == []

    (back,) = _producers((7, 3, 0), (7, 2, 90)).findings
    assert back.kind == kinds.EPOCH_REGRESS


def test_after_the_last_sequence_comes_0() -> None:
    assert _producers((7, 0, SEQUENCE_MODULUS - 10), (7, 0, 0)).findings == []
    assert _producers((7, 0, SEQUENCE_MODULUS - 4), (7, 0, 6)).findings == []

    (gap,) = _producers((7, 0, SEQUENCE_MODULUS - 10), (7, 0, 3)).findings
    assert (gap.kind, gap.total) == (kinds.SEQUENCE_GAP, 3)


def test_sequences_may_jump_over_what_compaction_took_out_and_nowhere_else() -> None:
    batches = [
        _batch(0, producer=(7, 0, 0)),
        _batch(20, producer=(7, 0, 20)),
        _batch(30, producer=(7, 0, 35)),
        _batch(40, producer=(8, 0, 3)),
    ]

    found = _walk(batches, may_have_holes=True)

    wrong = [(one.kind, one.last_offset, one.total) for one in found.findings]
    assert wrong == [(kinds.SEQUENCE_GAP, 30, 5), (kinds.HOLES, 49, 10)]


def test_a_batch_whose_records_are_fewer_keeps_the_sequences_of_all() -> None:
    data = patched(
        sample_batch(count=4, producer_id=7, producer_epoch=0, base_sequence=0),
        _DELTA_AT,
        ">i",
        9,
    )
    found = _walk([(0, memoryview(data)), _batch(10, producer=(7, 0, 10))], end=20)

    assert [one.kind for one in found.findings] == [kinds.HOLES]


def test_the_end_of_a_transaction_has_no_sequence_and_is_no_repetition() -> None:
    marker = patched(
        sample_batch(producer_id=900, producer_epoch=0, base_sequence=-1), 21, ">h", 0x30
    )
    stamp(marker, 10, 0)
    producer = [_batch(0, producer=(900, 0, 0)), _batch(11, producer=(900, 0, 10))]

    found = _walk([producer[0], (10, memoryview(marker)), producer[1]], end=21)

    assert found.findings == []
    assert found.record_count == 20
