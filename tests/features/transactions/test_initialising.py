"""InitProducerId: epochs, fencing, repeated requests, and what follows the last epoch."""

from dataclasses import replace

import pytest

from features.transactions import (
    EPOCH_MAX,
    InitRequest,
    State,
    Transaction,
    fence,
    initialise,
    needs_producer_id,
)
from gateway.errors import ConcurrentTransactions, ProducerFenced

PRODUCER_ID, NEW_ID = 41, 99
IDLE = Transaction(PRODUCER_ID, 7, 60_000, state=State.COMPLETE_COMMIT, last_epoch=6)
START = InitRequest(30_000)


def test_first_request_gets_epoch_0() -> None:
    value = initialise(None, START, NEW_ID, 1_000)

    assert (value.producer_id, value.epoch, value.timeout_ms) == (NEW_ID, 0, 30_000)
    assert needs_producer_id(None)


def test_new_producer_gets_the_next_epoch() -> None:
    value = initialise(IDLE, START, NEW_ID, 1_000)

    assert (value.producer_id, value.epoch, value.last_epoch) == (PRODUCER_ID, 8, -1)
    assert value.state is State.EMPTY
    assert not needs_producer_id(IDLE)


def test_producer_that_goes_on_gets_the_next_epoch_and_the_same_one_again() -> None:
    request = InitRequest(30_000, PRODUCER_ID, 7)

    value = initialise(IDLE, request, NEW_ID, 1_000)
    again = initialise(value, request, NEW_ID, 2_000)

    assert (value.epoch, value.last_epoch) == (8, 7)
    assert (again.producer_id, again.epoch, again.last_epoch) == (PRODUCER_ID, 8, 7)


@pytest.mark.parametrize(
    ("producer_id", "epoch"), [(PRODUCER_ID, 5), (PRODUCER_ID, 8), (PRODUCER_ID + 1, 7)]
)
def test_producer_with_another_id_or_epoch_is_fenced(producer_id: int, epoch: int) -> None:
    with pytest.raises(ProducerFenced):
        initialise(IDLE, InitRequest(30_000, producer_id, epoch), NEW_ID, 1_000)


def test_decided_end_is_waited_for() -> None:
    for state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
        with pytest.raises(ConcurrentTransactions):
            initialise(replace(IDLE, state=state), START, NEW_ID, 1_000)


@pytest.mark.parametrize("request_", [START, InitRequest(30_000, PRODUCER_ID, EPOCH_MAX - 1)])
def test_after_the_last_epoch_comes_a_new_producer_id(request_: InitRequest) -> None:
    current = replace(IDLE, epoch=EPOCH_MAX - 1)

    value = initialise(current, request_, NEW_ID, 1_000)

    assert needs_producer_id(current)
    assert (value.producer_id, value.epoch) == (NEW_ID, 0)
    if request_.epoch >= 0:
        assert initialise(value, request_, 77, 2_000).producer_id == NEW_ID


def test_epoch_that_is_given_to_nobody_is_not_given_to_a_fenced_producer() -> None:
    fenced = fence(
        replace(IDLE, state=State.ONGOING, epoch=EPOCH_MAX - 1, version=2), 1_000
    ).value

    with pytest.raises(ProducerFenced):
        initialise(fenced, InitRequest(30_000, PRODUCER_ID, EPOCH_MAX - 1), NEW_ID, 2_000)
    assert initialise(fenced, START, NEW_ID, 2_000).producer_id == NEW_ID


def test_repeated_request_is_answered_though_the_epoch_before_was_not_the_last() -> None:
    # An open transaction of the last epoch but one was fenced first, which took the last.
    value = replace(
        IDLE,
        producer_id=NEW_ID,
        epoch=0,
        previous_producer_id=PRODUCER_ID,
        last_epoch=EPOCH_MAX - 2,
    )

    again = initialise(value, InitRequest(30_000, PRODUCER_ID, EPOCH_MAX - 2), 77, 2_000)

    assert (again.producer_id, again.epoch) == (NEW_ID, 0)
