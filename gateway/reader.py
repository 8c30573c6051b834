"""Read path: batches below a partition's stable end, from memory or the disk."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from gateway.errors import CorruptBatch, OffsetOutOfRange
from gateway.model import Buffer, parse_batch_header
from gateway.partition import Partition
from gateway.records.aborted import without_aborted
from gateway.records.stored_batches import StoredBatches
from gateway.records.time_lookup import first_record_at
from gateway.storage import StorageAdapter

MAX_INT64: Final = (1 << 63) - 1
_LAST_OFFSET: Final = Struct(">q15xi")  # base offset and last offset delta of a v2 batch


def _check_range(partition: Partition, offset: int) -> None:
    partition.check_present()
    if not partition.log_start_offset <= offset <= partition.log_end_offset:
        msg = (
            f"offset {offset} is outside of "
            f"{partition.log_start_offset}..{partition.log_end_offset}"
        )
        raise OffsetOutOfRange(msg)


def _forgotten_count(partition: Partition) -> int:
    transactions = partition.transactions
    return 0 if transactions is None else transactions.aborted.forgotten_count


class Reader:
    """Reads batches as they are stored; the storage fills base offsets and epochs in."""

    def __init__(self, storage: StorageAdapter) -> None:
        self._storage = storage
        self.stored = StoredBatches()
        self.bytes_read = 0
        self.disk_reads = 0

    def read(
        self, partition: Partition, offset: int, *, bytes_max: int, end: int = MAX_INT64
    ) -> Sequence[Buffer] | None:
        """Return the batches from ``offset`` on, at least one where there is one.

        The first batch may begin before ``offset``: the caller skips its first records. No batch
        begins at or after ``end``, or the partition's ``stable_end``. In place of a batch of an
        aborted transaction comes an empty control batch with its offsets, which readers skip as
        they skip markers. An empty result means that there is nothing yet; None means that the
        disk has to be read (``read_disk``). Errors: ``OffsetOutOfRange`` below the log start or
        above the log end, ``TopicNotFound`` when the topic was deleted meanwhile.
        """
        end = min(end, partition.stable_end)
        batches = self.read_stored(partition, offset, end, bytes_max=bytes_max)
        if batches and partition.transactions is not None:
            return without_aborted(partition.transactions, batches)
        return batches

    async def read_disk(
        self, partition: Partition, offset: int, *, bytes_max: int, end: int = MAX_INT64
    ) -> Sequence[Buffer]:
        """Return the same as ``read``, waiting for the disk.

        Errors: those of ``read``, and ``StorageUnavailable``.
        """
        end = min(end, partition.stable_end)
        batches = await self.read_stored_disk(partition, offset, end, bytes_max=bytes_max)
        return without_aborted(partition.transactions, batches)

    async def read_uncommitted(
        self, partition: Partition, offset: int, end: int, *, bytes_max: int
    ) -> Sequence[Buffer]:
        """Return what ``read`` does, but up to ``end``: with batches of open transactions."""
        batches = self.read_stored(partition, offset, end, bytes_max=bytes_max)
        if batches is None:
            batches = await self.read_stored_disk(partition, offset, end, bytes_max=bytes_max)
        return without_aborted(partition.transactions, batches)

    def read_stored(
        self, partition: Partition, offset: int, end: int, *, bytes_max: int
    ) -> Sequence[Buffer] | None:
        """Return the batches from ``offset`` on as they are stored, of aborted transactions too.

        ``end`` is ``stable_end`` or lower, or for readers of uncommitted data the high watermark.
        Otherwise as ``read``.
        """
        _check_range(partition, offset)
        if offset >= end:
            return ()
        batches = self._storage.read_cached(
            partition.partition_id, offset, end, bytes_max=bytes_max
        )
        if batches:
            self._count(partition, offset, batches)
        return batches

    async def read_stored_disk(
        self, partition: Partition, offset: int, end: int, *, bytes_max: int
    ) -> Sequence[Buffer]:
        """Return the same as ``read_stored``, waiting for the disk."""
        _check_range(partition, offset)
        if offset >= end:
            return ()
        self.disk_reads += 1
        batches = await self._read_remembered(partition, offset, end, bytes_max)
        if batches:
            self._count(partition, offset, batches)
        return batches

    def _count(self, partition: Partition, offset: int, batches: Sequence[Buffer]) -> None:
        """Count a read, not each batch: the last one's header says where it ends."""
        size_bytes = sum(map(len, batches))
        self.bytes_read += size_bytes
        base_offset, last_offset_delta = _LAST_OFFSET.unpack_from(batches[-1])
        traffic = partition.topic.traffic
        traffic.records_out += base_offset + last_offset_delta + 1 - offset
        traffic.bytes_out += size_bytes

    async def read_unchecked(
        self, partition: Partition, offset: int, end: int, *, bytes_max: int
    ) -> Sequence[Buffer]:
        """Return batches as ``read_disk`` does, for readers that check offsets themselves."""
        batches = await self._read_remembered(partition, offset, end, bytes_max)
        return without_aborted(partition.transactions, batches)

    async def _read_remembered(
        self, partition: Partition, offset: int, end: int, bytes_max: int
    ) -> Sequence[Buffer]:
        """Return stored batches; the aborted transactions among them are not forgotten yet.

        They are forgotten when compaction has removed their data, which may be while a slow disk
        reads what was there before: then the read is repeated.
        """
        while True:
            forgotten_count = _forgotten_count(partition)
            batches = await self._storage.read(
                partition.partition_id, offset, end, bytes_max=bytes_max
            )
            if forgotten_count == _forgotten_count(partition):
                return batches

    async def offset_for_time(
        self, partition: Partition, timestamp_unix_ms: int, end: int | None = None
    ) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, leader epoch) of the first record at or after a time.

        None when there is none, or it is not below ``end``, by default the stable end. A batch that
        cannot be decoded answers with its base offset, so that the search never fails because of
        what one producer wrote. As in Kafka, a record of an aborted transaction may be the one.
        """
        end = partition.stable_end if end is None else end
        base_offset = await self._storage.base_offset_for_time(
            partition.partition_id, timestamp_unix_ms
        )
        if base_offset is None or base_offset >= end:
            return None
        offset = max(base_offset, partition.log_start_offset)
        for batch in await self.read_stored_disk(partition, offset, end, bytes_max=1):
            try:
                self.stored.check(partition, batch)
                found = first_record_at(batch, timestamp_unix_ms)
            except CorruptBatch:
                found = None
            if found is None:
                found = (offset, timestamp_unix_ms)
            return max(found[0], offset), found[1], parse_batch_header(batch).leader_epoch
        return None

    async def max_timestamp(
        self, partition: Partition, end: int | None = None
    ) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, leader epoch) of the record with the highest timestamp.

        None when it is not below ``end``, by default the stable end.

        Found by halving the range of timestamps (63 index searches): asked for rarely
        (KIP-734).
        """
        low, high = 0, MAX_INT64
        while low < high:
            middle = (low + high + 1) // 2
            found = await self._storage.base_offset_for_time(partition.partition_id, middle)
            if found is None or found >= partition.high_watermark:
                high = middle - 1
            else:
                low = middle
        return await self.offset_for_time(partition, low, end)
