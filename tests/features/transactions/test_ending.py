"""Ends of transactions: the outcome for each state, version and repetition of a request."""

from dataclasses import replace
from uuid import UUID

import pytest

from features.transactions import (
    EPOCH_MAX,
    Ending,
    PartitionRef,
    State,
    Transaction,
    end,
    fence,
)
from gateway.errors import (
    ConcurrentTransactions,
    GatewayError,
    InvalidTransactionState,
    ProducerFenced,
    UnknownProducerMapping,
)

PLACE = PartitionRef(UUID(int=5), 3)
PRODUCER_ID, EPOCH, NEW_ID = 41, 7, 99
V1, V2 = 1, 2
OK, SAME = "ok", "same"
INVALID, FENCED, CONCURRENT = InvalidTransactionState, ProducerFenced, ConcurrentTransactions

Expected = str | type[GatewayError]


def value(state: State, epoch: int = EPOCH) -> Transaction:
    has_partitions = state in {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}
    return Transaction(
        PRODUCER_ID,
        epoch,
        60_000,
        state=state,
        last_epoch=epoch - 1,
        started_unix_ms=1_000 if has_partitions else -1,
        partitions=(PLACE,) if has_partitions else (),
    )


def finish(
    current: Transaction | None,
    producer_id: int,
    epoch: int,
    *,
    is_commit: bool,
    version: int,
    new_id: int = NEW_ID,
) -> Ending:
    return end(
        current,
        producer_id,
        epoch,
        is_commit=is_commit,
        version=version,
        new_id=new_id,
        now_unix_ms=2_000,
    )


# Kafka's TransactionCoordinator.endTransaction, with KAFKA-20785.
V1_TABLE: list[tuple[State, Expected, Expected]] = [
    (State.ONGOING, OK, OK),
    (State.EMPTY, INVALID, INVALID),
    (State.PREPARE_COMMIT, CONCURRENT, INVALID),
    (State.PREPARE_ABORT, INVALID, CONCURRENT),
    (State.COMPLETE_COMMIT, SAME, INVALID),
    (State.COMPLETE_ABORT, INVALID, SAME),
]
V2_CURRENT: list[tuple[State, Expected, Expected]] = [
    (State.ONGOING, OK, OK),
    (State.EMPTY, INVALID, OK),
    (State.PREPARE_COMMIT, FENCED, FENCED),
    (State.PREPARE_ABORT, FENCED, FENCED),
    (State.COMPLETE_COMMIT, INVALID, OK),
    (State.COMPLETE_ABORT, INVALID, OK),
]
V2_RETRY: list[tuple[State, Expected, Expected]] = [
    (State.ONGOING, FENCED, FENCED),
    (State.EMPTY, FENCED, FENCED),
    (State.PREPARE_COMMIT, CONCURRENT, INVALID),
    (State.PREPARE_ABORT, INVALID, CONCURRENT),
    (State.COMPLETE_COMMIT, SAME, INVALID),
    (State.COMPLETE_ABORT, FENCED, SAME),
]
CASES = [
    (version, epoch, state, is_commit, expected)
    for version, epoch, table in (
        (V1, EPOCH, V1_TABLE),
        (V2, EPOCH, V2_CURRENT),
        (V2, EPOCH - 1, V2_RETRY),
    )
    for state, commit, abort in table
    for is_commit, expected in ((True, commit), (False, abort))
]


@pytest.mark.parametrize(("version", "epoch", "state", "is_commit", "expected"), CASES)
def test_outcome_depends_on_state_version_and_epoch(
    version: int,
    epoch: int,
    state: State,
    is_commit: bool,  # noqa: FBT001 - a parameter
    expected: Expected,
) -> None:
    current = value(state)

    if isinstance(expected, type):
        with pytest.raises(expected):
            finish(current, PRODUCER_ID, epoch, is_commit=is_commit, version=version)
        return
    ending = finish(current, PRODUCER_ID, epoch, is_commit=is_commit, version=version)

    assert ending.is_new is (expected == OK)
    assert ending.value.state is (State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT)
    bump = 1 if version == V2 and expected == OK else 0
    assert ending.value.epoch == EPOCH + bump
    assert ending.marker_epoch == EPOCH + bump
    assert ending.partitions == (current.partitions if expected == OK else ())
    assert ending.value.partitions == ()


def test_retry_in_version_one_with_another_epoch_is_fenced() -> None:
    for epoch in (EPOCH - 1, EPOCH + 1):
        with pytest.raises(ProducerFenced):
            finish(value(State.COMPLETE_COMMIT), PRODUCER_ID, epoch, is_commit=True, version=V1)


def test_unknown_id_and_other_producer_have_no_mapping() -> None:
    for current in (None, value(State.ONGOING)):
        with pytest.raises(UnknownProducerMapping):
            finish(current, PRODUCER_ID + 1, EPOCH, is_commit=True, version=V2)


def test_last_epoch_ends_with_a_new_producer_id() -> None:
    current = value(State.ONGOING, epoch=EPOCH_MAX - 1)

    ending = finish(current, PRODUCER_ID, EPOCH_MAX - 1, is_commit=True, version=V2)
    again = finish(
        ending.value, PRODUCER_ID, EPOCH_MAX - 1, is_commit=True, version=V2, new_id=77
    )

    assert (ending.producer_id, ending.marker_epoch) == (PRODUCER_ID, EPOCH_MAX)
    assert (ending.value.producer_id, ending.value.epoch) == (NEW_ID, 0)
    assert (again.value, again.is_new) == (ending.value, False)


@pytest.mark.parametrize(("version", "last_epoch"), [(V1, -1), (V2, EPOCH)])
def test_fence_takes_one_epoch(version: int, last_epoch: int) -> None:
    ending = fence(replace(value(State.ONGOING), version=version), 2_000)

    assert (ending.value.epoch, ending.value.last_epoch) == (EPOCH + 1, last_epoch)
    assert (ending.marker_epoch, ending.is_commit) == (EPOCH + 1, False)
    assert ending.partitions == (PLACE,)


def test_producer_of_version_two_aborts_after_its_timeout_and_goes_on() -> None:
    fenced = fence(replace(value(State.ONGOING), version=V2), 2_000).value

    ending = finish(fenced, PRODUCER_ID, EPOCH, is_commit=False, version=V2)

    assert (ending.value, ending.is_new) == (fenced, False)


def test_epoch_of_another_producer_is_no_repeated_request() -> None:
    current = replace(value(State.COMPLETE_COMMIT), last_epoch=-1)

    with pytest.raises(ProducerFenced):
        finish(current, PRODUCER_ID, EPOCH - 1, is_commit=True, version=V2)


def test_epoch_that_is_given_to_nobody_is_not_given_by_a_repeated_abort() -> None:
    current = replace(value(State.ONGOING, epoch=EPOCH_MAX - 1), version=V2)
    fenced = fence(current, 2_000).value
    assert fenced.epoch == EPOCH_MAX

    with pytest.raises(ProducerFenced):
        finish(fenced, PRODUCER_ID, EPOCH_MAX - 1, is_commit=False, version=V2)
