"""Creation of segment files in advance, and their closing with a footer.

Both happen in threads of their own, so that neither a roll to the next segment nor the sync of
the one before it blocks the loop.
"""

import errno
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from gateway import descriptors
from gateway.clock import Clock
from gateway.errors import as_value
from storage_adapters.formats.footer import Trailer, decode_trailer, encode_footer
from storage_adapters.formats.segment import (
    SEGMENT_HEADER_BYTES,
    decode_segment_header,
    encode_segment_header,
)
from storage_adapters.segment_log.files import Files, write_all
from storage_adapters.segment_log.index import LiveIndex
from storage_adapters.segment_log.segments import Segment, segment_path

RETRY_MS: Final = 1_000
SHORT_BYTES_MIN: Final = 65_536  # of the first segment of a start on a full disk
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_log = structlog.get_logger()


class SegmentMaker:
    """Maker of the next segment: name, space and header are on the disk before its first entry.

    ``on_error`` gets any error except a lack of space or of descriptors, after which the maker
    tries again.
    """

    def __init__(  # noqa: PLR0913  # What the header says, and where it goes.
        self,
        *,
        files: Files,
        data_dir: Path,
        data_uuid: UUID,
        incarnation: int,
        segment_bytes: int,
        clock: Clock,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._files = files
        self._data_dir = data_dir
        self._data_uuid = data_uuid
        self._incarnation = incarnation
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._on_error = on_error
        self._executor = ThreadPoolExecutor(1, "headgate-segments")
        self._allocated: Future[int] | None = None
        self._next: Segment | None = None
        self._retry_at_ms = 0
        self.is_short_of_descriptors = False
        """The last try failed for want of a descriptor, not of space."""

    @property
    def is_secured(self) -> bool:
        """Whether the next segment has its space."""
        return self._allocated is not None and self._allocated.done() and self.secure()

    def begin(self, previous: int, first_sequence: int) -> None:
        """Begin to make the segment after ``previous``, unless under way or failed just now."""
        if self._allocated is not None or self._clock.monotonic_ms() < self._retry_at_ms:
            return
        number = previous + 1
        path = segment_path(self._data_dir, number)
        header = encode_segment_header(
            data_uuid=self._data_uuid,
            number=number,
            previous=previous,
            first_sequence=first_sequence,
            incarnation=self._incarnation,
            created_unix_ms=self._clock.unix_ms(),
        )
        segment = Segment(path, decode_segment_header(header))
        self._allocated = self._executor.submit(
            allocate_segment, self._files, path, self._segment_bytes
        )
        segment.ready = self._executor.submit(
            _install_header, self._files, self._allocated, header, path.parent
        )
        self._next = segment

    def secure(self) -> bool:
        """Wait until the next segment has its space; False when the disk is full.

        Waits for the file system to note an allocation, not for the disk to write.
        """
        if self._allocated is None:
            return False
        try:
            fd = self._allocated.result()
        except OSError as error:
            self._allocated = self._next = None
            self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
            self.is_short_of_descriptors = descriptors.is_shortage(error)
            if self.is_short_of_descriptors:
                descriptors.SHORTAGES.note(error)
            elif error.errno not in NO_SPACE:
                self._on_error(as_value(error))
            return False
        assert self._next is not None
        self._next.fd = fd
        return True

    def retry_soon(self) -> None:
        """Allow the next try at once, since space was freed."""
        self._retry_at_ms = 0

    def take(self) -> Segment:
        """Return the next segment, which has its space. Its ``ready`` may not be done yet."""
        segment = self._next
        assert segment is not None
        segment.live = LiveIndex()
        segment.holders = 1
        segment.entries_end = SEGMENT_HEADER_BYTES
        segment.disk_bytes = self._segment_bytes
        self._allocated = self._next = None
        return segment

    def stop(self) -> None:
        """Wait for work under way, and remove a segment that was made and never used."""
        self._executor.shutdown(wait=True)
        if self._next is not None and self.secure():
            os.close(self._next.fd)
            self._files.unlink(self._next.path)
        self._allocated = self._next = None


def make_first(files: Files, path: Path, header: bytes, segment_bytes: int) -> Segment:
    """Make the first segment of a start, on the disk with its name. In a thread.

    On a full disk it is short (half of the free room), for truncations and deletions.
    """
    segment = Segment(path, decode_segment_header(header))
    try:
        segment.fd = allocate_segment(files, path, segment_bytes)
    except OSError as error:
        room_bytes = min(files.room_bytes(path.parent) // 2, segment_bytes)
        if error.errno not in NO_SPACE or room_bytes < SHORT_BYTES_MIN:
            raise
        segment_bytes = room_bytes
        segment.fd = allocate_segment(files, path, segment_bytes)
        _log.error(
            "the disk is full: the log takes no records until there is room",
            file=str(path),
            error=str(error),
        )
    write_all(files, segment.fd, [header], 0)
    files.sync(segment.fd)
    files.sync_directory(path.parent)
    segment.live = LiveIndex()
    segment.holders = 1
    segment.entries_end = SEGMENT_HEADER_BYTES
    segment.disk_bytes = segment_bytes
    return segment


def allocate_segment(files: Files, path: Path, segment_bytes: int) -> int:
    """Return a descriptor of a new file with space for a whole segment, or leave no file."""
    fd = files.create(path)
    try:
        files.allocate(fd, segment_bytes)
    except BaseException as error:
        os.close(fd)
        files.unlink(path)
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    return fd


def _install_header(
    files: Files, allocated: Future[int], header: bytes, directory: Path
) -> None:
    if allocated.exception() is not None:
        return
    fd = allocated.result()
    write_all(files, fd, [header], 0)
    files.sync(fd)
    files.sync_directory(directory)


def write_footer(files: Files, segment: Segment, fd: int) -> Trailer:
    """Sync a segment's entries, then write, sync and return its footer. In a thread.

    The footer comes last, so an existing footer proves that everything before it was synced. It
    fits the space of the segment; the rest of the space is freed.
    """
    assert segment.live is not None
    files.sync(fd)
    buffers = encode_footer(
        [part.to_footer_part() for part in segment.live.parts.values()],
        number=segment.number,
        entries_end=segment.entries_end,
        first_sequence=segment.first_sequence,
        next_sequence=segment.next_sequence,
        incarnation=segment.header.incarnation,
        repeated_bytes=segment.live.repeated_bytes,
    )
    write_all(files, fd, buffers, segment.entries_end)
    files.truncate(fd, segment.entries_end + sum(map(len, buffers)))
    files.sync(fd)
    return decode_trailer(buffers[-1])
