"""Partitions and groups of a transaction: the first one that is added begins it."""

from collections.abc import Iterable
from dataclasses import replace

from features.transactions.model import GroupRef, PartitionRef, State, Transaction
from gateway.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    Overloaded,
    ProducerFenced,
    UnknownProducerMapping,
)


def check_producer(current: Transaction | None, producer_id: int, epoch: int) -> Transaction:
    """Return the value if it is the producer's.

    Errors: ``UnknownProducerMapping``, ``ProducerFenced``, ``ConcurrentTransactions``.
    """
    if current is None or current.producer_id != producer_id:
        raise UnknownProducerMapping(f"the id is not that of producer {producer_id}")
    if current.epoch != epoch:
        raise ProducerFenced(f"epoch {epoch}, {current.epoch} is known")
    if current.state.is_prepared:
        raise ConcurrentTransactions("the end of a transaction is on its way to its partitions")
    return current


def add(  # noqa: PLR0913 - by keyword
    current: Transaction | None,
    producer_id: int,
    epoch: int,
    *,
    now_unix_ms: int,
    partitions: Iterable[PartitionRef] = (),
    groups: Iterable[GroupRef] = (),
    version: int = 0,
    members_max: int,
) -> Transaction:
    """Return the value with more partitions and groups; the same object if it has them all.

    Errors: those of ``check_producer``; ``Overloaded`` above ``members_max`` partitions and groups.
    """
    value = check_producer(current, producer_id, epoch)
    new_partitions = tuple(dict.fromkeys(partitions))
    new_groups = tuple(dict.fromkeys(groups))
    if value.state is State.ONGOING:
        known = set(value.partitions)
        new_partitions = tuple([one for one in new_partitions if one not in known])
        new_groups = tuple([one for one in new_groups if one not in value.groups])
        if not new_partitions and not new_groups:
            return value
        started_unix_ms = value.started_unix_ms
    else:
        started_unix_ms = now_unix_ms
    count = len(value.partitions) + len(value.groups) + len(new_partitions) + len(new_groups)
    if count > members_max:
        raise Overloaded(f"a transaction has at most {members_max} partitions and groups")
    return replace(
        value,
        state=State.ONGOING,
        version=version,
        started_unix_ms=started_unix_ms,
        updated_unix_ms=now_unix_ms,
        partitions=value.partitions + new_partitions,
        groups=value.groups + new_groups,
    )


def check_written(
    current: Transaction | None, producer_id: int, epoch: int, partition: PartitionRef
) -> None:
    """Check that a batch belongs to the open transaction, before the first one of a partition.

    It keeps out a batch that comes after the end of its transaction (KIP-890, part 1). Errors:
    those of ``check_producer``; ``InvalidTransactionState`` for a partition that was not added.
    """
    value = check_producer(current, producer_id, epoch)
    if value.state is not State.ONGOING or partition not in value.partitions:
        raise InvalidTransactionState("the partition is not part of an open transaction")


def check_group(
    current: Transaction | None, producer_id: int, epoch: int, group: GroupRef
) -> None:
    """Check that a group belongs to the open transaction. Errors: as ``check_written``."""
    value = check_producer(current, producer_id, epoch)
    if value.state is not State.ONGOING or group not in value.groups:
        raise InvalidTransactionState("the group is not part of an open transaction")
