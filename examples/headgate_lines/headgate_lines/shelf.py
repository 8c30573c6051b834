"""The index of one partition, in memory: which batches there are, by offset. Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from operator import attrgetter

from gateway.model import BatchHeader, unpack_batch_header
from gateway.storage import Bounds

_end_offset = attrgetter("end_offset")


class Stored:
    """One batch as the index knows it: its first bytes, its size, when it came.

    ``place`` is its number among the targets of an entry that has several.
    """

    def __init__(self, header: bytes, size_bytes: int, sequence: int, place: int) -> None:
        self.data = header
        self.size_bytes = size_bytes
        self.sequence = sequence
        self.place = place
        self.base_offset = int.from_bytes(header[:8])

    @cached_property
    def header(self) -> BatchHeader:
        """The parsed header."""
        return unpack_batch_header(self.data)

    @property
    def end_offset(self) -> int:
        """One past the last offset."""
        return self.header.last_offset + 1


class Shelf:
    """The batches of one partition in order of their offsets."""

    def __init__(self, start: int = 0) -> None:
        self._start = start
        self._end = start
        self.batches: list[Stored] = []

    @property
    def bounds(self) -> Bounds:
        """The log start offset, and one past the last offset appended."""
        return Bounds(self._start, self._end)

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(batch.size_bytes for batch in self.batches)

    def extend(self, batch: Stored) -> None:
        """Count the offsets of a batch that is on its way; it is not read before ``add``."""
        self._end = max(self._end, batch.end_offset)

    def add(self, batch: Stored) -> bool:
        """Let a batch be read, whose offsets follow the last one's; False below the start."""
        self.extend(batch)
        if batch.end_offset <= self._start:
            return False
        self.batches.append(batch)
        return True

    def select(self, start: int, end: int, *, bytes_max: int) -> Sequence[Stored]:
        """Return what a read of these offsets gives: at least one batch where there is one."""
        start = max(start, self._start)
        first = bisect_right(self.batches, start, key=_end_offset)
        found: list[Stored] = []
        total_bytes = 0
        for batch in self.batches[first:] if start < end else ():
            total_bytes += batch.size_bytes
            if batch.base_offset >= end or (found and total_bytes > bytes_max):
                break
            found.append(batch)
        return found

    def base_offset_for_time(self, timestamp_unix_ms: int) -> int | None:
        """Return the base offset of the first batch with a record at or after a time."""
        for batch in self.batches:
            if batch.header.max_timestamp_unix_ms >= timestamp_unix_ms:
                return batch.base_offset
        return None

    def offset_for_size(self, bytes_max: int) -> int:
        """Return the lowest base offset from which at most ``bytes_max`` bytes follow."""
        offset = self._end
        for batch in reversed(self.batches):
            bytes_max -= batch.size_bytes
            if bytes_max < 0:
                break
            offset = batch.base_offset
        return offset

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to ``leader_epoch``, and where it ends."""
        if not self.batches:
            return -1, -1
        known = leader_epoch  # Older than all that is here: it ends where this begins.
        if self.batches[0].header.leader_epoch <= leader_epoch:
            known = max(e for e in self._epochs() if e <= leader_epoch)
        for batch in self.batches:
            if batch.header.leader_epoch > leader_epoch:
                return known, max(batch.base_offset, self._start)
        return known, self._end

    def _epochs(self) -> set[int]:
        return {batch.header.leader_epoch for batch in self.batches}

    def truncate_before(self, offset: int) -> None:
        """Move the start up, and forget the batches that lie before it as a whole."""
        self._start = max(self._start, min(offset, self._end))
        self.batches = [batch for batch in self.batches if batch.end_offset > self._start]
