"""The messages behind offsets: read from the log when they are handed out, kept for a while.

Lanes deal in offsets. Receivers that follow each other want messages of the same batches, so the
batches that were read or written last are kept, encoded until the first record of them is
wanted. What is kept is bounded in octets, an estimate for decoded ones, and in number.
"""

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import chain
from typing import Final

from gateway.broker import Broker
from gateway.errors import CorruptBatch, OffsetOutOfRange, TopicNotFound
from gateway.model import (
    COMPRESSION_MASK,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Octets,
    Record,
    parse_batch_header,
)
from gateway.partition import Partition, Write
from gateway.queues.rows import (
    SHOWN_RUNS_BYTES_MAX,
    Columns,
    Show,
    Shown,
    ShownRun,
    shown_records,
    shown_runs,
)
from gateway.records.codec import RecordRun, decode_batch
from gateway.records.of_runs import records_of_runs

READ_BYTES: Final = 65_536  # from the page cache, at a time
COLD_READ_BYTES: Final = 1_048_576  # from the disk: a backlog is read in large pieces
BATCHES_MAX: Final = 16_384

_BATCH_BYTES: Final = 300  # what keeping a batch takes beside its octets
_RUN_BYTES: Final = 250  # what a run takes beside its values
_RECORD_BYTES: Final = 400  # what a decoded record takes beside its octets


class Unreadable(Enum):
    """Why there is no message at an offset."""

    GONE = "gone"  # removed meanwhile, by retention or compaction
    CORRUPT = "corrupt"  # stored, but nobody can decode it


Body = Record | Unreadable


class _Batch:
    """A batch: octets, or the runs that it was made of, until a record is wanted; then records."""

    __slots__ = (
        "base_offset",
        "is_compressed",
        "is_dense",
        "last_offset",
        "octets",
        "records",
        "runs",
        "shown",
        "size_bytes",
        "stamp_unix_ms",
    )

    def __init__(self, octets: Octets, header: BatchHeader, base_offset: int) -> None:
        self.octets: Octets | None = None if header.is_control else octets
        self.runs: Sequence[RecordRun] | None = None
        self.base_offset = base_offset
        self.last_offset = base_offset + header.last_offset_delta
        self.is_compressed = bool(header.attributes & COMPRESSION_MASK)
        self.is_dense = header.record_count == header.last_offset_delta + 1
        self.records: Sequence[Record] | None = () if header.is_control else None
        self.size_bytes = len(octets) + _BATCH_BYTES
        self.stamp_unix_ms: int | None = None
        self.shown: Shown | None = None

    def keep_runs(self, runs: Sequence[RecordRun], header: BatchHeader) -> None:
        """Keep what the batch was made of in place of its octets."""
        self.octets = None
        self.runs = runs
        self.size_bytes += _RUN_BYTES * len(runs)
        for run in runs:
            if type(run.shown) is ShownRun:
                self.size_bytes += run.shown.size_bytes
        if header.attributes & TIMESTAMP_TYPE_MASK:
            self.stamp_unix_ms = header.max_timestamp_unix_ms

    def decode(self) -> None:
        """Have records; none of a batch that is corrupt, whose octets stay as the sign of it."""
        if self.records is not None:
            return
        runs = self.runs
        if runs is not None:
            records = records_of_runs(
                runs, self.base_offset, append_time_unix_ms=self.stamp_unix_ms
            )
            self.size_bytes -= _RUN_BYTES * len(runs)
        else:
            assert self.octets is not None
            try:
                records = decode_batch(self.octets)
            except CorruptBatch:
                self.records = ()
                return
        # Here and not by the header alone: an index is an offset only if no record is missing.
        self.is_dense = len(records) == self.last_offset - self.base_offset + 1
        if self.is_compressed:
            self.size_bytes += sum(len(record.value or b"") for record in records)
        self.size_bytes += _RECORD_BYTES * len(records)
        self.records = records
        self.octets = self.runs = None

    def show(self, partition: Partition, index: int, show: Show) -> Shown:
        """Have, and return, what the message at an index, and others, look like.

        Most need no records for that. What was shown of others before is given up.
        """
        shown = None
        if (
            self.runs is not None
            and self.stamp_unix_ms is None  # else times are other ones
            and self.size_bytes <= SHOWN_RUNS_BYTES_MAX
        ):
            shown = shown_runs(self.runs, show)
        if shown is None:
            self.decode()
            assert self.records is not None
            shown = shown_records(partition, self.records, index, show)
        if self.shown is not None:
            self.size_bytes -= self.shown.size_bytes
        self.shown = shown
        self.size_bytes += shown.size_bytes
        return shown

    def find(self, offsets: list[int], index: int) -> Sequence[Body]:
        """Return the records of ``offsets[index:]`` up to the first that is another batch's.

        ``decode`` comes before. Offsets in a row, the common case, are one slice.
        """
        records = self.records
        assert records is not None
        base_offset, last_offset = self.base_offset, self.last_offset
        first, last = offsets[index], offsets[-1]
        if records and self.is_dense:
            is_short = last <= last_offset and last - first == len(offsets) - index - 1
            if is_short and list(range(first, last + 1)) == offsets[index:]:
                return records[first - base_offset : last - base_offset + 1]
            return [
                records[one - base_offset] for one in offsets[index : self._end(offsets, index)]
            ]
        return [self._find(records, one) for one in offsets[index : self._end(offsets, index)]]

    def _end(self, offsets: list[int], index: int) -> int:
        """Return the index of the first offset from ``index`` on that lies elsewhere."""
        base_offset, last_offset = self.base_offset, self.last_offset
        for at in range(index, len(offsets)):
            if not base_offset <= offsets[at] <= last_offset:
                return at
        return len(offsets)

    def _find(self, records: Sequence[Record], offset: int) -> Body:
        if self.octets is not None:
            return Unreadable.CORRUPT
        index = bisect_right(records, offset, key=_offset_of) - 1
        if index >= 0 and records[index].offset == offset:
            return records[index]
        return Unreadable.GONE


class Bodies:
    """Finds messages by offset. Loop only."""

    def __init__(self, broker: Broker, *, bytes_max: int) -> None:
        self._broker = broker
        self._bytes_max = bytes_max
        self._shelves: dict[int, list[int]] = {}  # the base offsets kept of a partition, sorted
        self._batches: OrderedDict[tuple[int, int], _Batch] = OrderedDict()  # the idlest first
        self.kept_bytes = 0

    def find(self, partition: Partition, offsets: list[int]) -> list[Body] | None:
        """Return the messages at some offsets, or None when the disk must be waited for."""
        found: list[Body] = []
        batch: _Batch | Unreadable | None = None
        log_start_offset = partition.log_start_offset
        index, count = 0, len(offsets)
        while index < count:
            offset = offsets[index]
            if offset < log_start_offset:  # it may be kept here, but it was deleted
                found.append(Unreadable.GONE)
                index += 1
                continue
            batch = self._at(partition, offset) or self._load(partition, offset)
            if batch is None:
                return None
            if isinstance(batch, Unreadable):
                found.append(batch)
                index += 1
                continue
            # A batch that is taken to have an offset, and does not, must not be asked for ever.
            found += batch.find(offsets, index) or (Unreadable.GONE,)
            index = len(found)
        return found

    def find_shown(
        self,
        partition: Partition,
        row: range,
        show: Show,
        oldest_unix_ms: int,
        *,
        bytes_max: int,
    ) -> Columns | None:
        """Return how messages in a row are shown; None when ``find`` is to say what they are.

        So it is where one of them is not in memory, not plain, or older than ``oldest_unix_ms``,
        or all are more than ``bytes_max``.
        """
        room_bytes = bytes_max
        offset, end = row.start, row.stop
        if offset < partition.log_start_offset:
            return None
        columns: Columns = ()
        while offset < end:
            batch = self._kept(partition, offset)
            if batch is None or not batch.is_dense:
                return None
            index = offset - batch.base_offset
            shown = batch.shown
            if shown is None or not shown.first <= index < shown.end:
                size_bytes = batch.size_bytes
                shown = batch.show(partition, index, show)
                self.kept_bytes += batch.size_bytes - size_bytes
                self._shrink()
            if not shown.columns or shown.oldest_unix_ms < oldest_unix_ms:
                return None
            room_bytes -= batch.size_bytes  # what is shown is part of it
            start = batch.base_offset + shown.first
            first = offset - start
            offset = min(end, batch.base_offset + shown.end)
            last = offset - start
            found = [column[first:last] for column in shown.columns]
            if columns:
                found = [[*one, *more] for one, more in zip(columns, found, strict=True)]
            columns = found
        if room_bytes < 0 and sum(map(len, chain.from_iterable(columns))) > bytes_max:
            return None
        return columns

    async def read(self, partition: Partition, offsets: Sequence[int]) -> list[Body]:
        """Return what ``find`` does, waiting for the disk. Errors: ``StorageUnavailable``."""
        found: list[Body] = []
        for offset in offsets:
            body = self.find(partition, [offset])
            if body is None:
                body = [await self._read_one(partition, offset)]
            found += body
        return found

    def keep(self, partition: Partition, write: Write) -> None:
        """Keep a batch that was just written: most are wanted in a moment."""
        batch = _Batch(write.batch, write.header, write.base_offset)
        if write.runs is not None:
            batch.keep_runs(write.runs, write.header)
        self._put(partition.partition_id, batch)

    def keep_read(
        self, partition: Partition, octets: Octets, header: BatchHeader
    ) -> Sequence[Record]:
        """Keep a batch that was read, and return its records; none of one that is corrupt.

        Whoever has looked at the keys of its messages will want these next.
        """
        # A copy: views of one read would keep all of it as long as any of them.
        batch = _Batch(bytes(octets), header, header.base_offset)
        if batch.records is None:
            batch.decode()
        self._put(partition.partition_id, batch)
        assert batch.records is not None
        return batch.records

    def forget(self, partition_ids: Iterable[int]) -> None:
        """Drop what is kept of partitions that nobody reads any more."""
        for partition_id in partition_ids:
            for base_offset in self._shelves.pop(partition_id, ()):
                gone = self._batches.pop((partition_id, base_offset))
                self.kept_bytes -= gone.size_bytes

    # --- finding

    def _at(self, partition: Partition, offset: int) -> _Batch | None:
        """Return the batch of an offset, decoded, when it is kept."""
        batch = self._kept(partition, offset)
        if batch is not None and batch.records is None:
            size_bytes = batch.size_bytes
            batch.decode()
            self.kept_bytes += batch.size_bytes - size_bytes
            self._shrink()
        return batch

    def _kept(self, partition: Partition, offset: int) -> _Batch | None:
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

    def _load(self, partition: Partition, offset: int) -> _Batch | Unreadable | None:
        try:
            batches = self._broker.read(partition, offset, bytes_max=READ_BYTES)
        except (OffsetOutOfRange, TopicNotFound):
            return Unreadable.GONE
        return None if batches is None else self._keep_read(partition, offset, batches)

    async def _read_one(self, partition: Partition, offset: int) -> Body:
        try:
            batches = await self._broker.read_disk(partition, offset, bytes_max=COLD_READ_BYTES)
        except (OffsetOutOfRange, TopicNotFound):
            return Unreadable.GONE
        batch = self._keep_read(partition, offset, batches)
        return batch if isinstance(batch, Unreadable) else batch.find([offset], 0)[0]

    def _keep_read(
        self, partition: Partition, offset: int, batches: Sequence[Octets]
    ) -> _Batch | Unreadable:
        """Keep what was read; return the batch that an offset is in, decoded."""
        wanted: _Batch | None = None
        for octets in batches:
            # A copy: views of one read would keep all of it as long as any of them.
            header = parse_batch_header(octets)
            batch = _Batch(bytes(octets), header, header.base_offset)
            if wanted is None and batch.base_offset <= offset <= batch.last_offset:
                wanted = batch
                if batch.records is None:
                    batch.decode()
            self._put(partition.partition_id, batch)
        return Unreadable.GONE if wanted is None else wanted

    # --- keeping

    def _put(self, partition_id: int, batch: _Batch) -> None:
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
        self._shrink()

    def _shrink(self) -> None:
        batches = self._batches
        while len(batches) > 1 and (
            self.kept_bytes > self._bytes_max or len(batches) > BATCHES_MAX
        ):
            self._drop(next(iter(batches)))

    def _drop(self, place: tuple[int, int]) -> None:
        batch = self._batches.pop(place)
        self.kept_bytes -= batch.size_bytes
        partition_id, base_offset = place
        shelf = self._shelves[partition_id]
        del shelf[bisect_right(shelf, base_offset) - 1]
        if not shelf:
            del self._shelves[partition_id]


def _offset_of(record: Record) -> int:
    return record.offset
