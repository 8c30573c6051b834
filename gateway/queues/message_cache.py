"""Cache of messages by offset: read from the log when handed out, and kept for a while.

Lanes know offsets only. Consecutive receives need messages of the same batches, so the batches
last read or written are kept, encoded until their first record is needed. The cache is bounded
in bytes, an estimate for decoded batches, and in number.
"""

import asyncio
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from features.queue.model import TakenRange
from gateway.broker import Broker
from gateway.errors import OffsetOutOfRange, TopicNotFound
from gateway.fan_out_write import FanOutWrite
from gateway.model import BatchHeader, Buffer, Record, parse_batch_header
from gateway.partition import Partition, Write
from gateway.queues.cached_batch import Body, CachedBatch, SharedRuns, Unreadable
from gateway.queues.delivered_ranges import DeliveredRange, FoundRange
from gateway.queues.shown_forms import Columns, Show

__all__ = ["Body", "MessageCache", "Unreadable"]

READ_BYTES: Final = 65_536  # from the page cache, at a time
COLD_READ_BYTES: Final = 1_048_576  # from the disk: a backlog is read in large pieces
BATCHES_MAX: Final = 16_384


class MessageCache:
    """Cache of batches that finds messages by offset. Loop only."""

    def __init__(self, broker: Broker, *, bytes_max: int) -> None:
        self._broker = broker
        self._bytes_max = bytes_max
        self._shelves: dict[int, list[int]] = {}  # sorted base offsets by partition
        self._batches: OrderedDict[tuple[int, int], CachedBatch] = (
            OrderedDict()
        )  # the idlest first
        self._large = asyncio.Lock()  # two at once would take twice the memory
        self.kept_bytes = 0

    def find(self, partition: Partition, offsets: list[int]) -> list[Body] | None:
        """Return the messages at some offsets, or None when ``read`` must wait for them."""
        found: list[Body] = []
        batch: CachedBatch | Unreadable | None = None
        log_start_offset = partition.log_start_offset
        index, count = 0, len(offsets)
        while index < count:
            offset = offsets[index]
            if offset < log_start_offset:  # deleted, though it may still be cached
                found.append(Unreadable.GONE)
                index += 1
                continue
            batch = self._at(partition, offset) or self._load(partition, offset)
            if isinstance(batch, Unreadable):
                found.append(batch)
                index += 1
                continue
            if batch is None or batch.needs_thread:
                return None
            # Without this, an offset missing from its batch would loop for ever.
            found += batch.find(offsets, index) or (Unreadable.GONE,)
            index = len(found)
        return found

    def find_ranges(
        self, partition: Partition, taken: Sequence[TakenRange], *, bytes_max: int
    ) -> list[FoundRange] | None:
        """Return ranges cut at the ends of their batches; None when ``read_ranges`` must wait.

        A batch is as it is kept, decoded or not. Behind the batch that reaches ``bytes_max``
        messages are ``Unreadable.UNREAD``, and all are where it is not above 0.
        """
        found: list[FoundRange] = []
        batch: CachedBatch | Unreadable | None
        for one in taken:
            start = one.offsets.start
            while start < one.offsets.stop:
                batch = Unreadable.UNREAD
                if bytes_max > 0:
                    batch = self._batch_of(partition, start)
                if batch is None:
                    return None
                bytes_max -= _new_bytes(found, batch)
                start = _add_found(found, partition, one, start, batch)
        return found

    async def read_ranges(
        self, partition: Partition, taken: Sequence[TakenRange], *, bytes_max: int
    ) -> list[FoundRange]:
        """Return ranges as ``find_ranges``, waiting for the disk and for large batches.

        Errors: ``StorageUnavailable``.
        """
        found: list[FoundRange] = []
        batch: CachedBatch | Unreadable | None
        for one in taken:
            start = one.offsets.start
            while start < one.offsets.stop:
                batch = Unreadable.UNREAD
                if bytes_max > 0:
                    batch = self._batch_of(partition, start)
                if batch is None:
                    batch = await self._read_batch_of(partition, start)
                bytes_max -= _new_bytes(found, batch)
                start = _add_found(found, partition, one, start, batch)
        return found

    def decode(self, partition: Partition, batch: CachedBatch) -> None:
        """Decode a batch that was found, if nobody has."""
        if batch.records is None:
            size_bytes = batch.size_bytes
            batch.decode()
            self._resize(partition, batch, size_bytes)

    def show(self, delivered: DeliveredRange, show: Show) -> Columns | None:
        """Return contiguous messages in a protocol's form; None when one of them is not plain."""
        partition, offsets, _, _, _, batch = delivered
        if not batch.is_dense:
            return None
        index, end = offsets.start - batch.base_offset, offsets.stop - batch.base_offset
        columns: Columns = ()
        while index < end:
            size_bytes = batch.size_bytes
            shown = batch.show(partition, index, show)
            if batch.size_bytes != size_bytes:
                self._resize(partition, batch, size_bytes)
            if not shown.columns:
                return None
            first, last = index - shown.first, min(end, shown.end) - shown.first
            found = [column[first:last] for column in shown.columns]
            if columns:
                found = [[*one, *more] for one, more in zip(columns, found, strict=True)]
            columns = found
            index = shown.end
        return columns

    def _resize(self, partition: Partition, batch: CachedBatch, before_bytes: int) -> None:
        """Count a batch, if it is kept, as it is now."""
        if self._batches.get((partition.partition_id, batch.base_offset)) is batch:
            self.kept_bytes += batch.size_bytes - before_bytes
            self._shrink()

    def _batch_of(self, partition: Partition, offset: int) -> CachedBatch | Unreadable | None:
        """Return the batch of an offset without waiting; None when that is not possible."""
        if offset < partition.log_start_offset:  # deleted, though it may still be cached
            return Unreadable.GONE
        batch = self._kept(partition, offset) or self._load(partition, offset)
        if isinstance(batch, CachedBatch) and batch.needs_thread:
            return None
        return batch

    async def read(self, partition: Partition, offsets: Sequence[int]) -> list[Body]:
        """Return messages as ``find``, waiting for the disk and for large batches to be decoded.

        Errors: ``StorageUnavailable``.
        """
        found: list[Body] = []
        for offset in offsets:
            body = self.find(partition, [offset])
            if body is None:
                body = [await self._read_one(partition, offset)]
            found += body
        return found

    def keep(self, partition: Partition, write: Write) -> None:
        """Keep a batch that was just written: most are received at once."""
        stored = write.stored
        if write.runs is None:
            batch = CachedBatch(write.batch, write.header, write.base_offset)
        else:
            batch = CachedBatch(stored.batch, write.header, write.base_offset)
            batch.keep_runs(write.runs, write.header)
            if isinstance(stored, FanOutWrite):
                known = stored.shared
                stored.shared = batch.share(known if isinstance(known, SharedRuns) else None)
        self._put(partition.partition_id, batch)

    def keep_read(
        self, partition: Partition, data: Buffer, header: BatchHeader
    ) -> Sequence[Record]:
        """Keep a batch that was read and return its records; none if it is corrupt.

        Whoever has looked at the keys of its messages will want these next.
        """
        batch = self._read_batch(partition, data, header)
        if batch.records is None:
            batch.decode()
        self._put(partition.partition_id, batch)
        assert batch.records is not None
        return batch.records

    def forget(self, partition_ids: Iterable[int]) -> None:
        """Drop the batches of partitions that are not read any more."""
        for partition_id in partition_ids:
            for base_offset in self._shelves.pop(partition_id, ()):
                self._uncount(self._batches.pop((partition_id, base_offset)))

    def handed_out(self, partition_id: int, next_offset: int) -> list[tuple[int, int]]:
        """Return first and last offset of each kept batch that ends before ``next_offset``."""
        shelf = self._shelves.get(partition_id, ())
        batches = self._batches
        found = [(base, batches[partition_id, base].last_offset) for base in shelf]
        return [one for one in found if one[1] < next_offset]

    def drop(self, partition_id: int, base_offset: int) -> None:
        """Drop a batch, if it is kept."""
        if (partition_id, base_offset) in self._batches:
            self._drop((partition_id, base_offset))

    # --- finding

    def _at(self, partition: Partition, offset: int) -> CachedBatch | None:
        """Return the batch of an offset, decoded if not ``needs_thread``, when it is kept."""
        batch = self._kept(partition, offset)
        if batch is not None and not batch.needs_thread:
            self.decode(partition, batch)
        return batch

    def _kept(self, partition: Partition, offset: int) -> CachedBatch | None:
        """Return the batch of an offset when it is kept."""
        shelf = self._shelves.get(partition.partition_id)
        if not shelf:
            return None
        index = bisect_right(shelf, offset) - 1
        if index < 0:
            return None
        place = (partition.partition_id, shelf[index])
        batch = self._batches[place]
        if offset > batch.last_offset:
            return None
        self._batches.move_to_end(place)  # so that it is the last to go
        return batch

    def _load(self, partition: Partition, offset: int) -> CachedBatch | Unreadable | None:
        try:
            batches = self._broker.read(partition, offset, bytes_max=READ_BYTES)
        except (OffsetOutOfRange, TopicNotFound):
            return Unreadable.GONE
        return None if batches is None else self._keep_read(partition, offset, batches)

    async def _read_one(self, partition: Partition, offset: int) -> Body:
        batch = await self._read_batch_of(partition, offset)
        return batch if isinstance(batch, Unreadable) else batch.find([offset], 0)[0]

    async def _read_batch_of(
        self, partition: Partition, offset: int
    ) -> CachedBatch | Unreadable:
        """Return the decoded batch of an offset, read from the disk if it must be."""
        batch: CachedBatch | Unreadable | None = self._kept(partition, offset)
        if batch is None:
            try:
                batches = await self._broker.read_disk(
                    partition, offset, bytes_max=COLD_READ_BYTES
                )
            except (OffsetOutOfRange, TopicNotFound):
                return Unreadable.GONE
            batch = self._keep_read(partition, offset, batches)
        if isinstance(batch, CachedBatch) and batch.needs_thread:
            batch = await self._decode_large(partition, offset, batch)
        return batch

    async def _decode_large(
        self, partition: Partition, offset: int, batch: CachedBatch
    ) -> CachedBatch:
        """Return the batch of an offset decoded: ``batch``, or as another receiver has it."""
        async with self._large:
            batch = self._at(partition, offset) or batch
            if batch.needs_thread:
                size_bytes = batch.size_bytes
                await batch.decode_beside()
                self._resize(partition, batch, size_bytes)
        return batch

    def _keep_read(
        self, partition: Partition, offset: int, batches: Sequence[Buffer]
    ) -> CachedBatch | Unreadable:
        """Keep the batches that were read; return the one with an offset, as ``_at`` does."""
        wanted: CachedBatch | None = None
        for data in batches:
            header = parse_batch_header(data)
            batch = self._read_batch(partition, data, header)
            if wanted is None and batch.base_offset <= offset <= batch.last_offset:
                wanted = batch
                if batch.records is None and not batch.needs_thread:
                    batch.decode()
            self._put(partition.partition_id, batch)
        return Unreadable.GONE if wanted is None else wanted

    def _read_batch(
        self, partition: Partition, data: Buffer, header: BatchHeader
    ) -> CachedBatch:
        # A copy: views of one read would keep all of it as long as any of them.
        batch = CachedBatch(bytes(data), header, header.base_offset)
        if batch.records is None and not self._broker.stored.is_intact(partition, data):
            batch.refuse()
        return batch

    # --- keeping

    def _put(self, partition_id: int, batch: CachedBatch) -> None:
        place = (partition_id, batch.base_offset)
        known = self._batches.get(place)
        if known is not None:
            if known.last_offset == batch.last_offset:
                self._batches.move_to_end(place)
                return
            self._drop(place)
        shelf = self._shelves.setdefault(partition_id, [])
        if shelf and shelf[-1] > batch.base_offset:
            insort(shelf, batch.base_offset)
        else:
            shelf.append(batch.base_offset)
        self._batches[place] = batch
        self.kept_bytes += batch.size_bytes
        if (shared := batch.shared) is not None:
            shared.kept_count += 1
            if shared.kept_count == 1:
                self.kept_bytes += shared.size_bytes
        self._shrink()

    def _uncount(self, gone: CachedBatch) -> None:
        """Count a batch no more; what it shares, with the last of those that share it."""
        self.kept_bytes -= gone.size_bytes
        if (shared := gone.shared) is not None:
            shared.kept_count -= 1
            if not shared.kept_count:
                self.kept_bytes -= shared.size_bytes

    def _shrink(self) -> None:
        batches = self._batches
        while len(batches) > 1 and (
            self.kept_bytes > self._bytes_max or len(batches) > BATCHES_MAX
        ):
            self._drop(next(iter(batches)))

    def _drop(self, place: tuple[int, int]) -> None:
        self._uncount(self._batches.pop(place))
        partition_id, base_offset = place
        shelf = self._shelves[partition_id]
        del shelf[bisect_right(shelf, base_offset) - 1]
        if not shelf:
            del self._shelves[partition_id]


def found_bytes(found: Sequence[FoundRange]) -> int:
    """Return the bytes of the batches of ranges, as ``find_ranges`` counts them."""
    return sum(
        _new_bytes(found[max(index - 1, 0) : index], one.batch)
        for index, one in enumerate(found)
    )


def _new_bytes(found: Sequence[FoundRange], batch: CachedBatch | Unreadable) -> int:
    """Return the bytes of a batch, 0 if the range found last is of it, too."""
    if isinstance(batch, Unreadable) or (found and found[-1].batch is batch):
        return 0
    return batch.read_bytes


def _add_found(
    found: list[FoundRange],
    partition: Partition,
    taken: TakenRange,
    start: int,
    batch: CachedBatch | Unreadable,
) -> int:
    """Add the part of a range that a batch has, from ``start`` on; return its end."""
    end = start + 1
    if isinstance(batch, CachedBatch):
        end = min(taken.offsets.stop, batch.last_offset + 1)
    elif batch is Unreadable.UNREAD:
        end = taken.offsets.stop
    _, attempt, first_taken_unix_ms, failed_count = taken
    found.append(
        FoundRange(
            partition, range(start, end), attempt, first_taken_unix_ms, failed_count, batch
        )
    )
    return end
