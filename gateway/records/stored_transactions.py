"""Open and aborted transactions of partitions in an internal topic, and in headers of the log.

The topic ``__partition_transactions`` has items for each partition that has ever had a transaction.
Keys begin with the partition's id (u32). After it comes ``t``: what is open, up to an offset; or
``a`` and a number (u32): a chunk of the aborted transactions. Of the chunks only the last one
changes, so a snapshot writes it and those that are new, and removes those that have gone with the
log's start. The first item of a partition is before its first transactional batch in the log: one
without items has none, and readers outside the node need not look at its batches.
"""

import struct
from typing import Final

from features.open_transactions import AbortedTransaction, PartitionTransactions
from gateway.model import BatchHeader

__all__ = [
    "AbortedTransaction",
    "PartitionTransactions",
    "StoredTransactions",
    "apply_batch",
    "partition_id_of",
    "removal_items",
    "transaction_items",
]

TRANSACTIONS_TOPIC: Final = "__partition_transactions"

_Item = tuple[bytes, bytes | None]

_ID: Final = struct.Struct(">I")
_OPEN_KEY: Final = struct.Struct(">Ic")
_CHUNK_KEY: Final = struct.Struct(">IcI")
_OPEN: Final = b"t"
_ABORTED: Final = b"a"


class StoredTransactions:
    """Transactions of a partition, as the topic has them."""

    __slots__ = ("_chunks", "_open")

    def __init__(self) -> None:
        self._open: bytes | None = None
        self._chunks: dict[int, bytes] = {}

    def add(self, key: bytes, value: bytes | None) -> None:
        """Add an item of the partition; a later one replaces it, None removes it."""
        if len(key) == _OPEN_KEY.size:
            self._open = value
        elif value is None:
            self._chunks.pop(_CHUNK_KEY.unpack(key)[2], None)
        else:
            self._chunks[_CHUNK_KEY.unpack(key)[2]] = value

    def restore(self) -> PartitionTransactions | None:
        """Return the state; None without what is open: then chunks say nothing."""
        if self._open is None:
            return None
        transactions = PartitionTransactions()
        transactions.restore(self._open, self._chunks)
        return transactions


def partition_id_of(key: bytes) -> int:
    """Return the partition of an item."""
    (partition_id,) = _ID.unpack_from(key)
    return int(partition_id)


def transaction_items(
    partition_id: int, transactions: PartitionTransactions, log_start_offset: int
) -> list[_Item]:
    """Return the items of a snapshot of a partition."""
    transactions.trim(log_start_offset)
    saved, numbers = transactions.saved_chunks, transactions.aborted.chunk_numbers
    transactions.saved_chunks = numbers
    items: list[_Item] = [
        (_CHUNK_KEY.pack(partition_id, _ABORTED, number), None)
        for number in range(saved.start, min(numbers.start, saved.stop))
    ]
    items += [
        (_CHUNK_KEY.pack(partition_id, _ABORTED, number), transactions.aborted.chunk(number))
        for number in range(max(saved.stop - 1, numbers.start), numbers.stop)
    ]
    items.append((_OPEN_KEY.pack(partition_id, _OPEN), transactions.snapshot()))
    return items


def removal_items(partition_id: int, transactions: PartitionTransactions) -> list[_Item]:
    """Return the items that remove a deleted partition."""
    return [
        (_OPEN_KEY.pack(partition_id, _OPEN), None),
        *(
            (_CHUNK_KEY.pack(partition_id, _ABORTED, number), None)
            for number in transactions.saved_chunks
        ),
    ]


def apply_batch(
    transactions: PartitionTransactions,
    header: BatchHeader,
    base_offset: int,
    *,
    is_abort: bool,
) -> None:
    """Apply a batch with a producer id; a plain one changes nothing."""
    if header.is_control:
        transactions.end(header.producer_id, base_offset, is_abort=is_abort)
    elif header.is_transactional:
        end_offset = base_offset + header.last_offset_delta + 1
        transactions.add(header.producer_id, base_offset, end_offset)
