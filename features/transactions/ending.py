"""Ends of transactions: by their producer, or by a fence, which gives its epoch to nobody.

In version 2 of the protocol (KIP-890) each end takes the next epoch, so that nothing late can
reach the next transaction. A request that is sent again gets the answer of the first one.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from features.transactions.model import (
    EPOCH_MAX,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    GroupRef,
    PartitionRef,
    State,
    Transaction,
)
from gateway.errors import (
    ConcurrentTransactions,
    GatewayError,
    InvalidTransactionState,
    ProducerFenced,
    UnknownProducerMapping,
)

EPOCH_AT_EACH_END: Final = 2
"""Version of the protocol from which on each end changes the epoch."""


class Ending(NamedTuple):
    """Decided end of a transaction: the next value, and its marker, partitions and groups.

    ``marker_version`` is that of the protocol by which markers are checked: 2 for an epoch that no
    batch has. ``is_new`` is False for a request that was answered before: then nothing is appended.
    """

    value: Transaction
    is_commit: bool
    producer_id: int
    marker_epoch: int
    marker_version: int = 1
    partitions: tuple[PartitionRef, ...] = ()
    groups: tuple[GroupRef, ...] = ()
    is_new: bool = True


def end(  # noqa: PLR0913 - by keyword
    current: Transaction | None,
    producer_id: int,
    epoch: int,
    *,
    is_commit: bool,
    version: int,
    new_id: int,
    now_unix_ms: int,
) -> Ending:
    """Decide the end of a transaction by its producer.

    ``new_id``: as in ``initialise``. Errors: ``UnknownProducerMapping``, ``ProducerFenced``,
    ``InvalidTransactionState``, ``ConcurrentTransactions``.
    """
    changes_epoch = version >= EPOCH_AT_EACH_END
    is_retry = (
        changes_epoch and current is not None and current.has_replaced(producer_id, epoch)
    )
    if current is None or (current.producer_id != producer_id and not is_retry):
        raise UnknownProducerMapping(f"the id is not that of producer {producer_id}")
    if is_retry:
        return _answer_again(current, is_commit=is_commit)
    if current.epoch != epoch:
        raise ProducerFenced(f"epoch {epoch}, {current.epoch} is known")
    is_open = current.state is State.ONGOING
    is_unsure = changes_epoch and not is_commit and current.state.is_idle
    if is_open or is_unsure:
        return _decide(
            current,
            new_id,
            now_unix_ms,
            is_commit=is_commit,
            changes_epoch=changes_epoch,
        )
    if changes_epoch:
        raise _refusal_with_epochs(current.state)
    return _repeat(current, is_commit=is_commit)


def fence(current: Transaction, now_unix_ms: int) -> Ending:
    """Abort an open transaction with an epoch that its producer does not have.

    In version 2 the producer gets it when it aborts, too, if no other one has come meanwhile,
    but for ``EPOCH_MAX``: with that one no transaction could be ended.
    """
    assert current.state is State.ONGOING, current.state
    epoch = current.epoch + 1
    may_go_on = current.version >= EPOCH_AT_EACH_END and epoch < EPOCH_MAX
    value = replace(
        current.emptied(State.COMPLETE_ABORT, now_unix_ms),
        epoch=epoch,
        last_epoch=current.epoch if may_go_on else NO_EPOCH,
    )
    return _ending(current, value, is_commit=False, marker_epoch=epoch)


def prepare(current: Transaction, ending: Ending) -> Transaction:
    """Return the value while partitions or groups in other logs do not have the end yet."""
    return replace(
        ending.value,
        state=State.PREPARE_COMMIT if ending.is_commit else State.PREPARE_ABORT,
        started_unix_ms=current.started_unix_ms,
        partitions=current.partitions,
        groups=current.groups,
    )


def complete(current: Transaction, now_unix_ms: int) -> Transaction:
    """Return the value when all of them have it. ``current`` is prepared."""
    is_commit = current.state is State.PREPARE_COMMIT
    state = State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT
    return current.emptied(state, now_unix_ms)


def _decide(
    current: Transaction,
    new_id: int,
    now_unix_ms: int,
    *,
    is_commit: bool,
    changes_epoch: bool,
) -> Ending:
    state = State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT
    value = current.emptied(state, now_unix_ms)
    marker_epoch = current.epoch
    if changes_epoch:
        marker_epoch = current.epoch + 1
        if current.epoch >= LAST_EPOCH:
            assert new_id != NO_PRODUCER_ID
            marker_epoch = EPOCH_MAX
            value = replace(
                value,
                producer_id=new_id,
                epoch=0,
                previous_producer_id=current.producer_id,
                last_epoch=current.epoch,
            )
        else:
            value = replace(value, epoch=marker_epoch, last_epoch=current.epoch)
    return _ending(current, value, is_commit=is_commit, marker_epoch=marker_epoch)


def _ending(
    current: Transaction, value: Transaction, *, is_commit: bool, marker_epoch: int
) -> Ending:
    return Ending(
        value,
        is_commit,
        current.producer_id,
        marker_epoch,
        EPOCH_AT_EACH_END if marker_epoch != current.epoch else 1,
        current.partitions,
        current.groups,
    )


def _answer_again(current: Transaction, *, is_commit: bool) -> Ending:
    """Answer a request with the epoch before the present one, in version 2 of the protocol."""
    state = current.state
    done = State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT
    under_way = State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT
    if state is done:
        return Ending(current, is_commit, current.producer_id, current.epoch, is_new=False)
    if state is under_way:
        raise ConcurrentTransactions("the end is on its way to the partitions")
    if state is State.COMPLETE_ABORT or state in {State.EMPTY, State.ONGOING}:
        # A commit that comes after a timeout's abort finds its producer fenced (KAFKA-20785).
        raise ProducerFenced(f"epoch {current.epoch} is known")
    raise InvalidTransactionState(f"the transaction has ended: {state.kafka_name}")


def _refusal_with_epochs(state: State) -> GatewayError:
    if state.is_prepared:
        return ProducerFenced("the transaction has ended")
    return InvalidTransactionState(f"there is no transaction: {state.kafka_name}")


def _repeat(current: Transaction, *, is_commit: bool) -> Ending:
    """Answer a request without an open transaction, in version 1 of the protocol."""
    state = current.state
    if state is (State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT):
        return Ending(current, is_commit, current.producer_id, current.epoch, is_new=False)
    if state is (State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT):
        raise ConcurrentTransactions("the end is on its way to the partitions")
    raise InvalidTransactionState(f"there is no such transaction: {state.kafka_name}")
