"""Writing of settled segments: the batches of each partition in a row, then a footer."""

import os
import struct
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from gateway.model import MAX_TIMESTAMP_AT, Buffer
from storage_adapters.formats.bodies import with_bounds
from storage_adapters.formats.footer import (
    NO_TIMESTAMP,
    ROW_STRIDE,
    FooterPart,
    decode_trailer,
    encode_footer,
)
from storage_adapters.formats.manifest import SHARED, FileRecord
from storage_adapters.formats.segment import (
    KIND_SETTLED,
    SEGMENT_HEADER_BYTES,
    decode_segment_header,
    encode_segment_header,
)
from storage_adapters.segment_log.failpoints import hit
from storage_adapters.segment_log.files import Files, write_all
from storage_adapters.segment_log.segments import (
    SETTLED_DIRECTORY,
    Segment,
    settled_path,
)

ROWS_MAX: Final = 1_000_000  # of a file: 32 MB in memory while it is written
_PART_ROWS: Final = 8  # memory of a partition, in rows
QUEUED_BYTES_HIGH: Final = 4 * 1_048_576  # of appends; less is one write of the disk
LOOK_S: Final = 0.005
LOOKS_MAX: Final = 20  # for each piece of 256 KiB: so at least 2.5 MB/s are copied
_WAIT_S_MIN: Final = 0.002
_PIECE_COST_BYTES: Final = 4_096  # processor time of a piece, in bytes
SYNC_EVERY_BYTES: Final = 4 * 1_048_576  # a large sync at the end would delay the log's

_MAX_TIMESTAMP: Final = struct.Struct(">q")


class Stopped(Exception):
    """The log is being closed: unfinished files are removed."""


class Pace:
    """Rate limit of copying, in bytes per second; it also stops it.

    Appends come first: while more than ``QUEUED_BYTES_HIGH`` of them wait for the disk
    (``queued_bytes``), each piece waits a while longer. The further copying falls behind
    (``factor``), the less it waits: copying must keep up with appends in the long run.
    """

    def __init__(
        self, bytes_per_s_max: int, queued_bytes: Callable[[], int] = lambda: 0
    ) -> None:
        self._bytes_per_s_max = bytes_per_s_max
        self._queued_bytes = queued_bytes
        self.factor = 1.0  # above 1 while copying falls behind appends
        self.stop = threading.Event()
        self._due_s = 0.0

    def spend(self, size_bytes: int) -> None:
        """Account for a copied piece; wait for the time that it should have taken. In a thread.

        Errors: ``Stopped``.
        """
        now_s = perf_counter()
        cost_bytes = size_bytes + _PIECE_COST_BYTES
        due_s = max(self._due_s, now_s) + cost_bytes / (self._bytes_per_s_max * self.factor)
        self._due_s = due_s
        # Small pieces share one wait, which takes longer than copying one.
        wait_s = due_s - now_s
        if self.stop.wait(wait_s) if wait_s >= _WAIT_S_MIN else self.stop.is_set():
            raise Stopped
        self._give_way()

    def _give_way(self) -> None:
        looks = int(LOOKS_MAX / self.factor**2)
        while looks > 0 and self._queued_bytes() > QUEUED_BYTES_HIGH:
            looks -= 1
            if self.stop.wait(LOOK_S):
                raise Stopped


class OutputBatch(NamedTuple):
    """A batch to be written, with its offset count and leader epoch.

    ``damaged_unix_ms``: the highest timestamp in the row of a damaged one.
    """

    batch: Buffer
    base_offset: int
    span: int  # offsets + epoch << 32, as in a row
    damaged_unix_ms: int | None = None

    @property
    def is_damaged(self) -> bool:
        """Whether its CRC does not match."""
        return self.damaged_unix_ms is not None


def timestamp_of(item: OutputBatch) -> int:
    """Return the highest timestamp of a batch, or of a damaged one's row."""
    if item.damaged_unix_ms is not None:
        return item.damaged_unix_ms
    (timestamp,) = _MAX_TIMESTAMP.unpack_from(item.batch, MAX_TIMESTAMP_AT)
    return int(timestamp)


class OutputSpec(NamedTuple):
    """Properties of all new files of a change."""

    files: Files
    data_dir: Path
    data_uuid: UUID
    incarnation: int
    created_unix_ms: int
    settled_bytes_max: int
    own_bytes: int
    pace: Pace


class OutputFile:
    """One new settled segment. In a thread."""

    def __init__(self, spec: OutputSpec, number: int, owner: int) -> None:
        self.owner = owner
        self.rows_count = 0
        self.damaged_count = 0
        self._spec = spec
        self._files = spec.files
        self._parts: list[FooterPart] = []
        self._open: FooterPart | None = None
        self._rows = array("q")
        self._introduction: bytes | None = None
        self._max_timestamp = NO_TIMESTAMP
        self._unsynced_bytes = 0
        header = encode_segment_header(
            data_uuid=spec.data_uuid,
            number=number,
            previous=0,
            first_sequence=0,
            incarnation=spec.incarnation,
            created_unix_ms=spec.created_unix_ms,
            kind=KIND_SETTLED,
        )
        path = settled_path(spec.data_dir, number)
        self.segment = Segment(path, decode_segment_header(header))
        self._fd = self._files.create(path)
        hit("settle.begun")
        write_all(self._files, self._fd, [header], 0)
        self.position = SEGMENT_HEADER_BYTES

    def has_room(self, size_bytes: int, rows: int) -> bool:
        """Return whether the file has room for that much more."""
        return (
            self.position + size_bytes <= self._spec.settled_bytes_max
            and self.rows_count + rows <= ROWS_MAX
        )

    def begin_part(self, partition_id: int, start: int, introduction: bytes | None) -> None:
        """Begin a partition; partitions come in order of their ids."""
        self._rows = array("q")
        self._max_timestamp = NO_TIMESTAMP
        self._introduction = introduction
        self.rows_count += _PART_ROWS
        self._open = FooterPart(partition_id, start, start, False, None, 0, self._rows)  # noqa: FBT003

    def add(self, placed: Sequence[OutputBatch]) -> None:
        """Write batches, in order of offset."""
        assert self._open is not None
        rows, position, max_timestamp = self._rows, self.position, self._max_timestamp
        for batch, base_offset, span, damaged_unix_ms in placed:
            if damaged_unix_ms is None:
                (timestamp,) = _MAX_TIMESTAMP.unpack_from(batch, MAX_TIMESTAMP_AT)
                max_timestamp = max(max_timestamp, timestamp)
            else:
                max_timestamp = max(max_timestamp, damaged_unix_ms)
                self.damaged_count += 1
            size_bytes = len(batch)
            rows.extend((base_offset, max_timestamp, position + (size_bytes << 32), span))
            position += size_bytes
        self.rows_count += len(placed)
        self._max_timestamp = max_timestamp
        self.write_batches([item.batch for item in placed])

    def write_batches(self, batches: Sequence[Buffer]) -> int:
        """Write batches without rows; return the position of the first."""
        start = self.position
        write_all(self._files, self._fd, batches, start)
        written = sum(map(len, batches))
        self.position = start + written
        self._unsynced_bytes += written
        if self._unsynced_bytes >= SYNC_EVERY_BYTES:
            self._unsynced_bytes = 0
            self._files.sync(self._fd)
        return start

    def end_part(self, end: int) -> None:
        """End the partition at this offset, up to which the file covers it also without batches."""
        assert self._open is not None
        partition_id, start, *_ = self._open
        self._open = None
        self._keep_part(partition_id, (start, end), self._introduction, self._rows)

    def add_part(
        self,
        partition_id: int,
        bounds: tuple[int, int],
        introduction: bytes | None,
        rows: "array[int]",
    ) -> None:
        """Add a partition whose batches are written already; partitions come in order."""
        self.rows_count += _PART_ROWS + len(rows) // ROW_STRIDE
        self._keep_part(partition_id, bounds, introduction, rows)

    def _keep_part(
        self,
        partition_id: int,
        bounds: tuple[int, int],
        introduction: bytes | None,
        rows: "array[int]",
    ) -> None:
        start, end = bounds
        if introduction is not None:
            introduction = with_bounds(introduction, start, end)
        size_bytes = sum(place >> 32 for place in rows[2::ROW_STRIDE])
        self._parts.append(
            FooterPart(partition_id, start, end, False, introduction, size_bytes, rows)  # noqa: FBT003
        )

    def finish(self) -> Segment:
        """Write the footer, sync, and return the segment with its record."""
        rows_bytes = sum(part.size_bytes for part in self._parts)
        buffers = encode_footer(
            self._parts,
            number=self.segment.number,
            entries_end=self.position,
            first_sequence=0,
            next_sequence=0,
            incarnation=self._spec.incarnation,
            repeated_bytes=rows_bytes - (self.position - SEGMENT_HEADER_BYTES),
        )
        write_all(self._files, self._fd, buffers, self.position)
        self._files.sync(self._fd)
        self.close()
        trailer = decode_trailer(buffers[-1])
        self.segment.close_with(trailer)
        self.segment.record = FileRecord(
            self.segment.number,
            self.owner,
            self.segment.disk_bytes,
            len(self._parts),
            crc32c(buffers[-1]),
        )
        return self.segment

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Output:
    """All new files of one change: a shared one, and those that one partition owns.

    ``made`` are the finished ones. On an error ``discard`` removes all.
    """

    def __init__(self, spec: OutputSpec, first_number: int) -> None:
        self.spec = spec
        self.next_number = first_number
        self.made: list[Segment] = []
        self.damaged_count = 0
        self._paths: list[Path] = []
        self._shared: OutputFile | None = None
        self._open: list[OutputFile] = []

    def write_part(
        self,
        partition_id: int,
        bounds: tuple[int, int],
        introduction: bytes | None,
        groups: Iterator[list[OutputBatch]],
        *,
        owner: int,
    ) -> None:
        """Write a partition's batches to its own or to the shared file, and to further ones.

        ``bounds``: the offsets that they cover. ``groups``: some 100 KiB each.
        """
        start, end = bounds
        target: OutputFile | None = None
        for group in groups:
            size_bytes = sum(len(item.batch) for item in group)
            if target is None:
                target = self._target(owner, size_bytes, len(group))
                target.begin_part(partition_id, start, introduction)
            elif group and not target.has_room(size_bytes, len(group)):
                start = group[0].base_offset
                target.end_part(start)
                self._finish(target)
                target = self._target(owner, size_bytes, len(group))
                target.begin_part(partition_id, start, introduction)
            target.add(group)
            self.spec.pace.spend(size_bytes)
        if target is None:
            target = self._target(owner, 0, 0)
            target.begin_part(partition_id, start, introduction)
        target.end_part(end)
        if owner != SHARED:
            self._finish(target)

    def write_directory(self, rows: Iterator[tuple[int, int, int, bytes]]) -> Segment:
        """Write a segment without batches: (partition id, start, end, introduction) each."""
        target = self._new_file(SHARED)
        for partition_id, start, end, introduction in rows:
            target.begin_part(partition_id, start, introduction)
            target.end_part(end)
        self._finish(target)
        return self.made.pop()

    def _target(self, owner: int, size_bytes: int, rows: int) -> OutputFile:
        if owner != SHARED:
            return self._new_file(owner)
        shared = self._shared
        if shared is not None and not shared.has_room(size_bytes, rows):
            self._finish(shared)
        if self._shared is None:
            self._shared = self._new_file(SHARED)
        return self._shared

    def shared_file(self, size_bytes: int, rows: int) -> OutputFile:
        """Return the shared file, another one if that has no room for that much more."""
        return self._target(SHARED, size_bytes, rows)

    def end_shared(self) -> None:
        """Finish the shared file; the next partition that shares a file begins another."""
        if self._shared is not None:
            self._finish(self._shared)

    def _new_file(self, owner: int) -> OutputFile:
        number = self.next_number
        self.next_number += 1
        self._paths.append(settled_path(self.spec.data_dir, number))
        target = OutputFile(self.spec, number, owner)
        self._open.append(target)
        return target

    def _finish(self, target: OutputFile) -> None:
        self._open.remove(target)
        if target is self._shared:
            self._shared = None
        self.damaged_count += target.damaged_count
        try:
            self.made.append(target.finish())
        finally:
            target.close()

    def finish(self) -> None:
        """Finish the shared file and sync the names of all files."""
        hit("settle.written")
        self.end_shared()
        self.spec.files.sync_directory(self.spec.data_dir / SETTLED_DIRECTORY)
        hit("settle.synced")

    def discard(self) -> None:
        """Remove all new files; none is in use."""
        for target in self._open:
            target.close()
        for path in self._paths:
            if path.exists():
                self.spec.files.unlink(path)
