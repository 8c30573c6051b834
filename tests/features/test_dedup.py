"""Idempotent producers: once each, in order, and never a guess."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.dedup import BATCHES_KEPT, SEQUENCE_MODULUS, ProducerSequences
from gateway.errors import OutOfOrderSequence, ProducerFenced
from gateway.model import HEADER_BYTES, BatchHeader, parse_batch_header

NOW = 1_700_000_000_000


def header(
    *, sequence: int, count: int = 10, producer_id: int = 7, epoch: int = 0
) -> BatchHeader:
    return parse_batch_header(
        struct.pack(
            ">qiibIhiqqqhii",
            0, HEADER_BYTES - 12, 0, 2, 0, 0, count - 1, NOW, NOW, producer_id, epoch, sequence,
            count,
        )
    )  # fmt: skip


def appended(*sequences: int, count: int = 10, producers_max: int = 8) -> ProducerSequences:
    state = ProducerSequences(producers_max=producers_max)
    for place, sequence in enumerate(sequences):
        state.record(header(sequence=sequence, count=count), place * count, NOW)
    return state


def test_the_next_batch_in_order_is_no_duplicate() -> None:
    assert appended(0, 10).check(header(sequence=20)) is None


def test_a_batch_sent_again_is_answered_with_its_first_offset() -> None:
    duplicate = appended(0, 10, 20).check(header(sequence=10))
    assert duplicate is not None
    assert duplicate.base_offset == 10


def test_five_batches_are_remembered_and_the_sixth_is_out_of_order() -> None:
    state = appended(*range(0, 10 * (BATCHES_KEPT + 1), 10))
    oldest_kept = state.check(header(sequence=10))
    assert oldest_kept is not None
    assert oldest_kept.base_offset == 10
    with pytest.raises(OutOfOrderSequence):
        state.check(header(sequence=0))


def test_a_gap_is_refused() -> None:
    with pytest.raises(OutOfOrderSequence):
        appended(0).check(header(sequence=11))


def test_the_same_sequence_with_another_count_is_refused() -> None:
    with pytest.raises(OutOfOrderSequence):
        appended(0, 10).check(header(sequence=10, count=9))


def test_an_older_epoch_is_fenced() -> None:
    state = ProducerSequences(producers_max=8)
    state.record(header(sequence=0, epoch=3), 0, NOW)
    with pytest.raises(ProducerFenced):
        state.check(header(sequence=10, epoch=2))


def test_a_new_epoch_begins_at_0() -> None:
    state = appended(0)
    assert state.check(header(sequence=0, epoch=1)) is None
    with pytest.raises(OutOfOrderSequence):
        state.check(header(sequence=10, epoch=1))


def test_a_new_epoch_forgets_the_batches_of_the_old() -> None:
    state = appended(0, 10)
    state.record(header(sequence=0, epoch=1), 20, NOW)
    repeated = state.check(header(sequence=0, epoch=1))
    assert repeated is not None
    assert repeated.base_offset == 20


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert appended(0).check(header(sequence=500, producer_id=8)) is None


def test_sequences_wrap_to_0() -> None:
    last = SEQUENCE_MODULUS - 4
    state = ProducerSequences(producers_max=8)
    state.record(header(sequence=last, count=10), 0, NOW)
    assert state.check(header(sequence=6)) is None
    with pytest.raises(OutOfOrderSequence):
        state.check(header(sequence=7))


def test_above_the_bound_the_idlest_producer_is_forgotten() -> None:
    state = ProducerSequences(producers_max=2)
    for producer_id in (1, 2, 1, 3):  # 2 is the idlest when 3 comes
        known = state.check(header(sequence=0, producer_id=producer_id)) is not None
        state.record(header(sequence=10 if known else 0, producer_id=producer_id), 0, NOW)
    assert [producer_id for producer_id, *_ in state.active()] == [1, 3]


def test_idle_producers_expire() -> None:
    state = appended(0)
    assert state.expire(NOW) == 0
    assert state.expire(NOW + 1) == 1
    assert len(state) == 0


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3), st.integers(0, 2), st.integers(1, 500), st.integers(0, 10**12)
        ),
        max_size=40,
    )
)
def test_a_snapshot_restores_the_same_answers(
    appends: list[tuple[int, int, int, int]],
) -> None:
    state = ProducerSequences(producers_max=8)
    for producer_id, epoch, count, base_offset in appends:
        state.record(
            header(sequence=0, count=count, producer_id=producer_id, epoch=epoch),
            base_offset,
            NOW,
        )
    restored = ProducerSequences(producers_max=8)
    restored.restore(state.snapshot())
    assert restored.snapshot() == state.snapshot()
    assert list(restored.active()) == list(state.active())
