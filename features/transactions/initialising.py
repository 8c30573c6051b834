"""InitProducerId of a transactional id: the next epoch, which fences all earlier ones.

A producer that starts gets the next epoch. One that goes on after an error sends its own id and
epoch (KIP-360), and is refused when another producer has come meanwhile. After the last epoch
comes a new producer id.
"""

from dataclasses import replace
from typing import NamedTuple

from features.transactions.model import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    State,
    Transaction,
)
from gateway.errors import ConcurrentTransactions, ProducerFenced


class InitRequest(NamedTuple):
    """Request of a producer; its own id and epoch when it goes on after an error."""

    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


def needs_producer_id(current: Transaction | None) -> bool:
    """Return whether ``initialise``, or an end, may need a new producer id."""
    # An open transaction is fenced first, and takes an epoch by that.
    return current is None or current.epoch >= LAST_EPOCH - 1


def initialise(
    current: Transaction | None, request: InitRequest, new_id: int, now_unix_ms: int
) -> Transaction:
    """Return the value with the epoch to be answered. ``current`` has no open transaction.

    ``new_id`` is a producer id that was never used; ``needs_producer_id`` says when one is
    necessary. Errors: ``ProducerFenced``, ``ConcurrentTransactions``.
    """
    if current is None:
        return Transaction(new_id, 0, request.timeout_ms, updated_unix_ms=now_unix_ms)
    check_init(current, request)
    value = replace(
        current, state=State.EMPTY, timeout_ms=request.timeout_ms, updated_unix_ms=now_unix_ms
    )
    expected = request.epoch
    if expected not in {NO_EPOCH, current.epoch}:
        return value  # a request that was answered, and comes again
    if current.epoch >= LAST_EPOCH:
        assert new_id != NO_PRODUCER_ID
        return replace(
            value,
            producer_id=new_id,
            epoch=0,
            previous_producer_id=current.producer_id,
            last_epoch=expected,
        )
    return replace(value, epoch=current.epoch + 1, last_epoch=expected)


def check_init(current: Transaction, request: InitRequest) -> None:
    """Check a producer's own id and epoch, if it gives them.

    Errors: ``ConcurrentTransactions`` while an end is not known in all partitions;
    ``ProducerFenced``.
    """
    if current.state.is_prepared:
        raise ConcurrentTransactions("the end of a transaction is on its way to its partitions")
    if request.epoch == NO_EPOCH:
        return
    producer = request.producer_id, request.epoch
    is_current = producer == (current.producer_id, current.epoch)
    if not is_current and not (current.state.is_idle and current.has_replaced(*producer)):
        raise ProducerFenced(f"epoch {request.epoch}, {current.epoch} is known")
