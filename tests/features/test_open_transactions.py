"""Bounds of the transactions of a partition, and what is left of them with the log's start."""

import pytest

from features import open_transactions
from features.open_transactions import AbortedTransaction, PartitionTransactions
from gateway.errors import Overloaded


def with_aborted(count: int) -> PartitionTransactions:
    """Return a state with aborted transactions at offsets (0, 1), (2, 3) and so on."""
    state = PartitionTransactions()
    for number in range(count):
        state.add(number, 2 * number, 2 * number + 1)
        state.end(number, 2 * number + 1, is_abort=True)
    return state


def chunks_of(state: PartitionTransactions) -> dict[int, bytes]:
    return {number: state.aborted.chunk(number) for number in state.aborted.chunk_numbers}


def test_no_more_transactions_are_open_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "OPEN_MAX", 2)
    state = PartitionTransactions()
    for producer_id in (7, 8):
        state.check_room(producer_id)
        state.add(producer_id, producer_id, producer_id + 1)
    state.check_room(8)
    with pytest.raises(Overloaded):
        state.check_room(9)
    state.end(7, 9, is_abort=False)
    state.check_room(9)


def test_no_more_aborted_ones_are_kept_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "ABORTED_MAX", 3)
    state = with_aborted(2)
    state.check_room(9)
    state = with_aborted(3)
    with pytest.raises(Overloaded):
        state.check_room(9)


def test_aborted_ones_go_with_the_log_start_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "CHUNK_RANGES", 4)
    state = with_aborted(10)
    state.trim(2 * 7 + 1)  # the marker of the eighth is still there
    assert (len(state.aborted), state.aborted.chunk_numbers) == (6, range(1, 3))
    assert state.aborted.overlapping(0, 10) == [AbortedTransaction(4, 8, 9)]
    state.trim(100)
    assert (len(state.aborted), state.aborted.chunk_numbers) == (2, range(2, 3))


def test_a_snapshot_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "CHUNK_RANGES", 4)
    state = with_aborted(10)
    state.add(50, 20, 23)
    state.trim(10)
    restored = PartitionTransactions()
    restored.restore(state.snapshot(), chunks_of(state))
    assert restored.snapshot() == state.snapshot()
    assert chunks_of(restored) == chunks_of(state)
    assert restored.stable_end(23) == state.stable_end(23) == 20


def test_chunks_that_are_newer_than_the_rest_of_a_snapshot_are_cut() -> None:
    state = with_aborted(3)
    snapshot = state.snapshot()
    newer = with_aborted(5)
    restored = PartitionTransactions()
    restored.restore(snapshot, chunks_of(newer))
    assert len(restored.aborted) == 3
    for number in (3, 4):  # the start replays them
        restored.add(number, 2 * number, 2 * number + 1)
        restored.end(number, 2 * number + 1, is_abort=True)
    assert chunks_of(restored) == chunks_of(newer)


def test_a_search_passes_a_transaction_that_was_open_for_long() -> None:
    state = PartitionTransactions()
    state.add(1, 0, 1)
    for number in range(1, 5):
        state.add(10 + number, 2 * number, 2 * number + 1)
        state.end(10 + number, 2 * number + 1, is_abort=True)
    state.end(1, 10, is_abort=True)
    found = [one.producer_id for one in state.aborted.overlapping(0, 3)]
    assert found == [11, 1]
    assert state.aborted.covers(1, 0)
    assert not state.aborted.covers(11, 4)
    assert state.aborted.covers(12, 4)


def test_chunks_whose_removal_was_refused_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "CHUNK_RANGES", 4)
    state = PartitionTransactions()
    for number in range(18):
        state.add(7, 2 * number, 2 * number + 1)
        state.end(7, 2 * number + 1, is_abort=True)
    before = chunks_of(state)
    state.trim(2 * 13)
    restored = PartitionTransactions()

    restored.restore(state.snapshot(), {0: before[0]} | chunks_of(state))

    assert chunks_of(restored) == chunks_of(state)
    assert restored.aborted.overlapping(0, 100) == state.aborted.overlapping(0, 100)
