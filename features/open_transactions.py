"""Transactions of one partition: those that are open, and the ranges of those that were aborted.

A transaction opens in a partition with its producer's first transactional batch there, and ends
with a marker (KIP-98). Readers of committed data stop at the last stable offset, the first offset
of a transaction that is open or whose marker is not durable yet, and skip the batches of aborted
transactions. All of it follows from the batches of the log, in their order, so a state is rebuilt
by replaying their headers; what a snapshot knows already is ignored.
"""

import struct
from array import array
from bisect import bisect_left
from collections import OrderedDict, deque
from typing import Final, NamedTuple

from gateway.errors import Overloaded

OPEN_MAX: Final = 10_000
"""Open transactions of a partition."""
ABORTED_MAX: Final = 1_000_000
"""Aborted transactions that a partition remembers; they go with the records at its start."""
CHUNK_RANGES: Final = 1_024
"""Aborted transactions in one chunk of a snapshot."""

_HEAD: Final = struct.Struct(">BqI")
_OPEN: Final = struct.Struct(">qq")
_ABORTED: Final = struct.Struct(">qqqq")
_CHUNK_HEAD: Final = struct.Struct(">BQ")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """Aborted transaction in a partition. ``last_offset`` is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class AbortedTransactions:
    """Aborted transactions of a partition, in the order of their markers.

    Kafka's transaction index (``TransactionIndex``): beside each is the last stable offset after
    its marker, and none that follows begins before that, so a search ends there. 32 bytes each.
    """

    __slots__ = ("_firsts", "_lasts", "_producer_ids", "_stable_ends", "forgotten_count")

    def __init__(self) -> None:
        self._producer_ids = array("q")
        self._firsts = array("q")
        self._lasts = array("q")
        self._stable_ends = array("q")
        self.forgotten_count = 0
        """Transactions that went from the front, a multiple of ``CHUNK_RANGES``."""

    def __len__(self) -> int:
        return len(self._lasts)

    def add(self, aborted: AbortedTransaction, stable_end: int) -> None:
        """Add the transaction that has just ended."""
        self._producer_ids.append(aborted.producer_id)
        self._firsts.append(aborted.first_offset)
        self._lasts.append(aborted.last_offset)
        self._stable_ends.append(stable_end)

    def overlapping(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return those with offsets in [start, end), in the order of their markers."""
        found = []
        firsts, lasts, stable_ends = self._firsts, self._lasts, self._stable_ends
        for at in range(bisect_left(lasts, start), len(lasts)):
            if firsts[at] < end:
                found.append(AbortedTransaction(self._producer_ids[at], firsts[at], lasts[at]))
            if stable_ends[at] >= end:
                break
        return found

    def ranges_before(self, end: int) -> dict[int, list[tuple[int, int]]]:
        """Return (first, last offset) of those that begin below an offset, by producer id."""
        found: dict[int, list[tuple[int, int]]] = {}
        for one in self.overlapping(0, end):
            span = one.first_offset, one.last_offset
            found.setdefault(one.producer_id, []).append(span)
        return found

    def covers(self, producer_id: int, offset: int) -> bool:
        """Return whether a producer's batch at an offset belongs to an aborted transaction."""
        firsts, lasts, stable_ends = self._firsts, self._lasts, self._stable_ends
        for at in range(bisect_left(lasts, offset), len(lasts)):
            if firsts[at] <= offset and self._producer_ids[at] == producer_id:
                return True
            if stable_ends[at] > offset:
                break
        return False

    def trim(self, log_start_offset: int) -> None:
        """Forget those that end before the log start, in whole chunks of a snapshot."""
        count = bisect_left(self._lasts, log_start_offset) // CHUNK_RANGES * CHUNK_RANGES
        if count:
            self.forgotten_count += count
            for column in (self._producer_ids, self._firsts, self._lasts, self._stable_ends):
                del column[:count]

    def forget_from(self, offset: int) -> None:
        """Forget those whose marker is at or after an offset."""
        count = bisect_left(self._lasts, offset)
        for column in (self._producer_ids, self._firsts, self._lasts, self._stable_ends):
            del column[count:]

    @property
    def chunk_numbers(self) -> range:
        """Numbers of the chunks that a snapshot has now; they grow, and lower ones go."""
        start = self.forgotten_count // CHUNK_RANGES
        return range(start, start + -(-len(self._lasts) // CHUNK_RANGES))

    def chunk(self, number: int) -> bytes:
        """Return a chunk of the snapshot. Layout: docs/formats.md."""
        start = number * CHUNK_RANGES - self.forgotten_count
        out = bytearray(_CHUNK_HEAD.pack(_VERSION, number))
        for at in range(start, min(start + CHUNK_RANGES, len(self._lasts))):
            out += _ABORTED.pack(
                self._producer_ids[at], self._firsts[at], self._lasts[at], self._stable_ends[at]
            )
        return bytes(out)

    def restore(self, chunks: dict[int, bytes]) -> None:
        """Take over the chunks of a snapshot, by their numbers.

        Those before a gap had gone; their removal was refused, as on a full disk.
        """
        self.__init__()  # type: ignore[misc]  # as new
        if not chunks:
            return
        end = max(chunks) + 1
        start = end - 1
        while start - 1 in chunks:
            start -= 1
        self.forgotten_count = start * CHUNK_RANGES
        for number in range(start, end):
            rows = _ABORTED.iter_unpack(memoryview(chunks[number])[_CHUNK_HEAD.size :])
            for producer_id, first, last, stable_end in rows:
                self.add(AbortedTransaction(producer_id, first, last), stable_end)


class PartitionTransactions:
    """Open and aborted transactions of one partition.

    Batches are applied when they are appended, in order of offsets; ``stable_end`` takes the high
    watermark, since a marker counts when it is durable.
    """

    __slots__ = (
        "_ended",
        "_undecided",
        "aborted",
        "applied_end",
        "cleaned_end",
        "open",
        "opened_unix_ms",
        "saved_chunks",
    )

    def __init__(self) -> None:
        self.open: OrderedDict[int, int] = OrderedDict()
        """First offset of the open transaction of each producer id, in ascending order."""
        self.aborted = AbortedTransactions()
        self.applied_end = 0
        """One past the last offset of the batches that were applied."""
        self.opened_unix_ms: dict[int, int] = {}
        """Time at which the open transaction of a producer id began, or was loaded."""
        self.cleaned_end = 0
        """Offset below which compaction has removed the data of aborted transactions."""
        self.saved_chunks = range(0)
        """Numbers of the chunks in the last snapshot."""
        # First offsets of those that are open or whose marker may not be durable, ascending.
        self._undecided: OrderedDict[int, None] = OrderedDict()
        self._ended: deque[tuple[int, int]] = deque()  # (offset of the marker, first offset)

    def check_room(self, producer_id: int) -> None:
        """Raise ``Overloaded`` when a transaction of the producer cannot be opened."""
        if producer_id in self.open:
            return
        if len(self.open) >= OPEN_MAX:
            raise Overloaded(f"{OPEN_MAX} transactions are open in the partition")
        if len(self.aborted) >= ABORTED_MAX:
            raise Overloaded(f"{ABORTED_MAX} aborted transactions are in the partition")

    def add(self, producer_id: int, base_offset: int, end_offset: int) -> None:
        """Apply a transactional batch: it opens the producer's transaction, or goes on with it."""
        if base_offset < self.applied_end:
            return
        self.applied_end = end_offset
        if producer_id not in self.open:
            self.open[producer_id] = base_offset
            self._undecided[base_offset] = None

    def end(self, producer_id: int, marker_offset: int, *, is_abort: bool) -> None:
        """Apply a marker; without an open transaction of the producer it changes nothing."""
        if marker_offset < self.applied_end:
            return
        self.applied_end = marker_offset + 1
        first_offset = self.open.pop(producer_id, None)
        self.opened_unix_ms.pop(producer_id, None)
        if first_offset is None:
            return
        self._ended.append((marker_offset, first_offset))
        if is_abort:
            stable_end = next(iter(self.open.values()), marker_offset + 1)
            found = AbortedTransaction(producer_id, first_offset, marker_offset)
            self.aborted.add(found, stable_end)

    def stable_end(self, high_watermark: int) -> int:
        """Return the last stable offset (LSO) for a high watermark that does not go back."""
        ended = self._ended
        while ended and ended[0][0] < high_watermark:
            del self._undecided[ended.popleft()[1]]
        return min(next(iter(self._undecided), high_watermark), high_watermark)

    def trim(self, log_start_offset: int) -> None:
        """Forget aborted transactions without data: before the log start, or compacted."""
        self.aborted.trim(max(log_start_offset, self.cleaned_end))

    def snapshot(self) -> bytes:
        """Return what is open, which ``restore`` reads; aborted ones are in chunks of their own."""
        out = bytearray(_HEAD.pack(_VERSION, self.applied_end, len(self.open)))
        for producer_id, first_offset in self.open.items():
            out += _OPEN.pack(producer_id, first_offset)
        return bytes(out)

    def restore(self, snapshot: bytes, chunks: dict[int, bytes]) -> None:
        """Take over a state that ``snapshot`` and ``AbortedTransactions.chunk`` made."""
        self.open.clear()
        self.opened_unix_ms.clear()
        self._undecided.clear()
        self._ended.clear()
        _, self.applied_end, _ = _HEAD.unpack_from(snapshot)
        for producer_id, first_offset in _OPEN.iter_unpack(memoryview(snapshot)[_HEAD.size :]):
            self.open[producer_id] = first_offset
            self._undecided[first_offset] = None
        self.aborted.restore(chunks)
        self.saved_chunks = self.aborted.chunk_numbers
        self.aborted.forget_from(self.applied_end)  # chunks may be newer, and are applied again
