"""Transactional batches and markers on the write path: checks, state, and readers."""

from collections.abc import Container
from typing import Final

from features.dedup import NO_COORDINATOR_EPOCH, ProducerSequences
from features.open_transactions import PartitionTransactions
from gateway.errors import InvalidRecord, InvalidTransactionState, OutOfOrderSequence
from gateway.model import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader
from gateway.partition import Partition, Write
from gateway.records.markers import Marker
from gateway.topics.index import Topic

IN_TRANSACTION_MASK: Final = CONTROL_MASK | TRANSACTIONAL_MASK
NO_TRANSACTIONS: Final = 0
"""Transactional batches are refused. Versions of the protocol: 1 (KIP-98) and 2 (KIP-890)."""
EPOCH_PER_TRANSACTION: Final = 2
"""Protocol version from which on each transaction has an epoch of its own."""


def check_transaction(
    partition: Partition, header: BatchHeader, transaction_version: int
) -> None:
    """Check a batch whose producer may have an open transaction in the partition.

    Errors: ``InvalidTransactionState`` for a batch outside of the transaction that its producer has
    open; ``InvalidRecord`` for a transactional batch of a topic that is in memory, or that may
    hold records back;
    ``OutOfOrderSequence`` for the first batch of a producer with an epoch for each transaction
    that does not begin at sequence 0; ``Overloaded`` when too many are open.
    """
    transactions = partition.transactions
    if not header.is_transactional:
        if transactions is not None and header.producer_id in transactions.open:
            msg = f"producer {header.producer_id} has a transaction open in the partition"
            raise InvalidTransactionState(msg)
        return
    check_takes_transactions(partition.topic)
    if partition.topic.settings.has_write_steps:
        raise InvalidRecord("topics with delayed records take no transactional batches")
    if transactions is not None:
        transactions.check_room(header.producer_id)
    if (
        transaction_version >= EPOCH_PER_TRANSACTION
        and header.base_sequence
        and not (partition.producers and partition.producers.knows(header.producer_id))
    ):
        msg = (
            f"the first batch of producer {header.producer_id} has sequence "
            f"{header.base_sequence}, not 0"
        )
        raise OutOfOrderSequence(msg)


def check_takes_transactions(topic: Topic) -> None:
    """Raise ``InvalidRecord`` for a topic in memory: a crash would end half of a transaction."""
    if topic.settings.in_memory:
        raise InvalidRecord("topics in memory take no transactional batches")


def check_marker(partition: Partition, marker: Marker, transaction_version: int) -> bool:
    """Return whether a marker is to be appended; False when it was appended before.

    Errors: those of ``ProducerSequences.check_marker``.
    """
    if partition.producers is None:
        return True
    return partition.producers.check_marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        bumps_epoch=transaction_version >= EPOCH_PER_TRANSACTION,
        is_open=marker.producer_id in pinned_producers(partition),
    )


def pinned_producers(partition: Partition) -> Container[int]:
    """Return the ids of the producers that have a transaction open in the partition."""
    return () if partition.transactions is None else partition.transactions.open


def marker_of(header: BatchHeader, *, is_abort: bool) -> Marker | None:
    """Return the marker that a scan of the log found, None for a batch with records.

    The coordinator's epoch is not in the header: that of the last snapshot stays.
    """
    if not header.is_control:
        return None
    return Marker(header.producer_id, header.producer_epoch, not is_abort, NO_COORDINATOR_EPOCH)


def record_transaction(  # noqa: PLR0917 - a batch, and the state it changes
    partition: Partition,
    producers: ProducerSequences,
    header: BatchHeader,
    base_offset: int,
    now_unix_ms: int,
    marker: Marker | None,
) -> None:
    """Apply a transactional batch or a marker, in order of offsets: appended, or found there."""
    transactions = partition.transactions
    if transactions is None:
        transactions = partition.transactions = PartitionTransactions()
    producer_id = header.producer_id
    if marker is None:
        end_offset = base_offset + header.last_offset_delta + 1
        transactions.add(producer_id, base_offset, end_offset)
        if producer_id in transactions.open:
            transactions.opened_unix_ms.setdefault(producer_id, now_unix_ms)
        producers.record(header, base_offset, now_unix_ms, transactions.open)
        return
    transactions.end(producer_id, base_offset, is_abort=not marker.is_commit)
    producers.record_marker(
        producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        now_unix_ms,
        transactions.open,
    )


def publish_among_transactions(partition: Partition, write: Write) -> None:
    """Make a durable write readable in a partition that has had transactions.

    Readers of committed data get a write itself only when it follows what they may read; after the
    end of a transaction they read from the log, which leaves out what was aborted.
    """
    before = partition.stable_end
    partition.high_watermark = write.end_offset
    is_moved = partition.move_stable_end()
    is_plain = not write.header.attributes & IN_TRANSACTION_MASK
    is_next = is_plain and before == write.base_offset and partition.stable_end > before
    for waiter in tuple(partition.waiters):
        if is_next or waiter.reads_uncommitted:
            waiter.on_appended(write)
        elif is_moved:
            waiter.on_stable()
