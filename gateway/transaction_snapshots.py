"""Open and aborted transactions of partitions in the stream of producer snapshots.

Keys begin with the partition's id (u32). After it comes ``t``: what is open; or ``a`` and a number
(u32): a chunk of the aborted transactions. Of the chunks only the last one changes, so a snapshot
writes it and those that are new, and removes those that have gone with the log's start.
"""

import struct
from typing import Final

from features.open_transactions import PartitionTransactions
from gateway.partition import Partition
from gateway.streams import Item

_OPEN_KEY: Final = struct.Struct(">Ic")
_CHUNK_KEY: Final = struct.Struct(">IcI")
_OPEN: Final = b"t"
_ABORTED: Final = b"a"


class StoredTransactions:
    """Transactions of a partition, as a stream has them."""

    __slots__ = ("_chunks", "_open")

    def __init__(self) -> None:
        self._open: bytes | None = None
        self._chunks: dict[int, bytes] = {}

    def add(self, key: bytes, value: bytes) -> None:
        """Add an item of the partition."""
        if len(key) == _OPEN_KEY.size:
            self._open = value
        else:
            self._chunks[_CHUNK_KEY.unpack(key)[2]] = value

    def restore(self, partition: Partition) -> None:
        """Give the partition its state; chunks alone say nothing, and are applied again."""
        transactions = partition.transactions = PartitionTransactions()
        if self._open is not None:
            transactions.restore(self._open, self._chunks)


def transaction_items(partition: Partition) -> list[Item]:
    """Return the items of a snapshot; for a deleted topic, the keys to be removed."""
    transactions = partition.transactions
    partition_id = partition.partition_id
    if transactions is None:
        return []
    transactions.trim(partition.log_start_offset)
    saved, numbers = transactions.saved_chunks, transactions.aborted.chunk_numbers
    transactions.saved_chunks = numbers
    items: list[Item] = [
        (_CHUNK_KEY.pack(partition_id, _ABORTED, number), None)
        for number in range(saved.start, min(numbers.start, saved.stop))
    ]
    items += [
        (_CHUNK_KEY.pack(partition_id, _ABORTED, number), transactions.aborted.chunk(number))
        for number in range(max(saved.stop - 1, numbers.start), numbers.stop)
    ]
    items.append((_OPEN_KEY.pack(partition_id, _OPEN), transactions.snapshot()))
    return items


def forget_snapshot(partition: Partition) -> None:
    """Write all chunks with the next snapshot: the last one failed."""
    if partition.transactions is not None:
        partition.transactions.saved_chunks = range(0)
