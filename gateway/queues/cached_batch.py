"""Cached batch of a queue: encoded until one of its messages is needed, then decoded."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import Enum
from typing import Final

from gateway.errors import CorruptBatch
from gateway.model import (
    COMPRESSION_MASK,
    EXPIRES_AT,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Buffer,
    Record,
)
from gateway.partition import Partition
from gateway.queues.shown_forms import (
    SHOWN_RUNS_BYTES_MAX,
    Show,
    Shown,
    ShownRun,
    shown_records,
    shown_runs,
)
from gateway.records.codec import decode_batch
from gateway.records.decoding_cost import LOOP_WORK_MAX, decoding_cost_of
from gateway.records.record_run import RecordRun
from gateway.records.records_from_runs import records_of_runs

# In memory, as a test measures it.
_BATCH_BYTES: Final = 300  # of a batch, beside its bytes
_RUN_BYTES: Final = 200  # of a run, beside its values
_VALUE_BYTES: Final = 41  # of a value of a run, beside its bytes
_RECORD_BYTES: Final = 170  # of a decoded record, beside its bytes
_KEY_BYTES: Final = 40  # of its key
_EXPIRES_AT: Final = EXPIRES_AT.encode()
_HEADER_BYTES: Final = 150  # of a header that it does not share


class Unreadable(Enum):
    """Reason why an offset has no message."""

    GONE = "gone"  # removed meanwhile, by retention or compaction
    CORRUPT = "corrupt"  # stored, but nobody can decode it
    UNREAD = "unread"  # not looked for: those before it are enough for one answer


Body = Record | Unreadable


class SharedRuns:
    """Runs of a batch that is kept for several partitions, and stored once, as it is here.

    ``size_bytes`` are counted once, while it is kept for any of them: ``kept_count``.
    """

    __slots__ = ("kept_count", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.kept_count = 0


class CachedBatch:
    """Batch as bytes or runs until a record is needed, then as records.

    ``size_bytes`` are its own, without those of ``shared``.
    """

    __slots__ = (
        "_limits",
        "base_offset",
        "data",
        "is_compressed",
        "is_dense",
        "is_large",
        "last_offset",
        "records",
        "runs",
        "shared",
        "shown",
        "size_bytes",
        "stamp_unix_ms",
    )

    def __init__(self, data: Buffer, header: BatchHeader, base_offset: int) -> None:
        self.data: Buffer | None = None if header.is_control else data
        self.runs: Sequence[RecordRun] | None = None
        self.base_offset = base_offset
        self.last_offset = base_offset + header.last_offset_delta
        self.is_compressed = bool(header.attributes & COMPRESSION_MASK)
        count = header.record_count
        self.is_dense = count == header.last_offset_delta + 1 and not header.is_control
        self.is_large = decoding_cost_of(header) > LOOP_WORK_MAX
        self.records: Sequence[Record] | None = () if header.is_control else None
        self.size_bytes = len(data) + _BATCH_BYTES
        self.shared: SharedRuns | None = None
        self.stamp_unix_ms: int | None = None
        self.shown: dict[Show, Shown] | None = None
        """Forms of pieces of the batch, at most one of each protocol."""
        self._limits: tuple[int, bool] | None = None

    def keep_runs(self, runs: Sequence[RecordRun], header: BatchHeader) -> None:
        """Keep the runs that the batch was encoded from in place of its bytes."""
        self.data = None
        self.runs = runs
        self.size_bytes += self._run_bytes(runs)
        for run in runs:
            if type(run.shown) is ShownRun:
                self.size_bytes += run.shown.size_bytes
        if header.attributes & TIMESTAMP_TYPE_MASK:
            self.stamp_unix_ms = header.max_timestamp_unix_ms

    def share(self, shared: SharedRuns | None) -> SharedRuns:
        """Share the bytes of the runs with the batches of other partitions; return with which."""
        self.shared = shared or SharedRuns(self.size_bytes - _BATCH_BYTES)
        self.size_bytes = _BATCH_BYTES
        return self.shared

    @property
    def read_bytes(self) -> int:
        """Bytes of memory that its messages take, whoever shares them."""
        return self.size_bytes + (0 if self.shared is None else self.shared.size_bytes)

    def refuse(self) -> None:
        """Mark the batch as corrupt: it has no records, and its bytes stay."""
        self.records = ()

    def _run_bytes(self, runs: Sequence[RecordRun]) -> int:
        """Return the memory of runs in bytes, beside their values."""
        count = self.last_offset - self.base_offset + 1
        return _RUN_BYTES * len(runs) + _VALUE_BYTES * count

    @property
    def needs_thread(self) -> bool:
        """Whether it must be decoded beside the loop, by ``decode_beside``."""
        return self.is_large and self.records is None and self.runs is None

    async def decode_beside(self) -> None:
        """Decode the batch in a thread; otherwise as ``decode``."""
        assert self.data is not None
        decoded = await asyncio.to_thread(_decoded, self.data, sized=self.is_compressed)
        if self.records is None:
            self._have(*decoded)

    def decode(self) -> None:
        """Decode the records; a corrupt batch has none and keeps its bytes."""
        if self.records is not None:
            return
        runs = self.runs
        if runs is None:
            assert self.data is not None
            self._have(*_decoded(self.data, sized=self.is_compressed))
            return
        records = records_of_runs(
            runs, self.base_offset, append_time_unix_ms=self.stamp_unix_ms
        )
        if self.shared is None:
            self.size_bytes -= self._run_bytes(runs)
        self._have(records, 0)

    def _have(self, records: Sequence[Record] | None, value_bytes: int) -> None:
        if records is None:
            self.records = ()
            return
        # Here and not by the header alone: an index is an offset only if no record is missing.
        self.is_dense = len(records) == self.last_offset - self.base_offset + 1
        self.size_bytes += value_bytes + _record_bytes(records)
        self.records = records
        self.data = self.runs = None

    @property
    def is_corrupt(self) -> bool:
        """Whether nobody can decode its records; only known of a decoded batch."""
        return self.data is not None and self.records is not None

    @property
    def limits(self) -> tuple[int, bool]:
        """The oldest timestamp in unix ms, and whether a message may expire by itself.

        ``decode`` comes before, unless its runs are known. A batch without records is corrupt.
        """
        limits = self._limits
        if limits is None:
            limits = self._limits = self._find_limits()
        return limits

    def _find_limits(self) -> tuple[int, bool]:
        may_expire = False
        if self.records is None:
            assert self.runs is not None
            oldest_unix_ms = self.stamp_unix_ms
            if oldest_unix_ms is None:
                oldest_unix_ms = min([run.timestamp_unix_ms for run in self.runs])
            for run in self.runs:
                may_expire = may_expire or _EXPIRES_AT in run.headers
            return oldest_unix_ms, may_expire
        headers: object = ()
        for record in self.records:
            if record[4] is not headers:  # those of one sender are shared
                headers = record[4]
                may_expire = may_expire or any(name == EXPIRES_AT for name, _ in record[4])
        return min((record[1] for record in self.records), default=0), may_expire

    def show(self, partition: Partition, index: int, show: Show) -> Shown:
        """Return a protocol's form of the message at an index and its neighbours.

        Most need no records for that. It takes the place of the protocol's form of other records.
        """
        forms = self.shown
        if forms is None:
            forms = self.shown = {}
        known = forms.get(show)
        if known is not None:
            if known.first <= index < known.end:
                return known
            self.size_bytes -= known.size_bytes
        shown = None
        if (
            self.runs is not None
            and self.stamp_unix_ms is None  # else times are other ones
            and self.read_bytes <= SHOWN_RUNS_BYTES_MAX
        ):
            shown = shown_runs(self.runs, show)
        if shown is None:
            self.decode()
            assert self.records is not None
            shown = shown_records(partition, self.records, index, show)
        forms[show] = shown
        self.size_bytes += shown.size_bytes
        return shown

    def records_of(self, offsets: range) -> Sequence[Record]:
        """Return the records at contiguous offsets, without those that have none.

        ``decode`` comes before.
        """
        records = self.records
        assert records is not None
        if self.is_dense:
            base_offset = self.base_offset
            return records[offsets.start - base_offset : offsets.stop - base_offset]
        first = bisect_left(records, offsets.start, key=_offset_of)
        return records[first : bisect_left(records, offsets.stop, lo=first, key=_offset_of)]

    def find(self, offsets: list[int], index: int) -> Sequence[Body]:
        """Return the records at ``offsets[index:]``, up to the first offset of another batch.

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
        """Return the index of the first offset from ``index`` on that is in another batch."""
        base_offset, last_offset = self.base_offset, self.last_offset
        for at in range(index, len(offsets)):
            if not base_offset <= offsets[at] <= last_offset:
                return at
        return len(offsets)

    def _find(self, records: Sequence[Record], offset: int) -> Body:
        if self.data is not None:
            return Unreadable.CORRUPT
        index = bisect_right(records, offset, key=_offset_of) - 1
        if index >= 0 and records[index].offset == offset:
            return records[index]
        return Unreadable.GONE


def _decoded(data: Buffer, *, sized: bool) -> tuple[Sequence[Record] | None, int]:
    """Return a batch's records, None when it is corrupt, and the bytes of their values.

    Those are 0 when it is not to be ``sized``: its bytes say how large it is.
    """
    try:
        records = decode_batch(data)
    except CorruptBatch:
        return None, 0
    return records, sum(len(record.value or b"") for record in records) if sized else 0


def _record_bytes(records: Sequence[Record]) -> int:
    """Return an estimate of the memory of decoded records beside their bytes."""
    if not records:
        return 0
    first, last = records[0], records[-1]
    size_bytes = _RECORD_BYTES
    if first.key is not None:
        size_bytes += _KEY_BYTES
    if first.headers is not last.headers or len(records) == 1:
        size_bytes += _HEADER_BYTES * len(first.headers)
    return size_bytes * len(records)


def _offset_of(record: Record) -> int:
    return record.offset
