"""Segments as objects, and bounded sets of open descriptors and mapped footers."""

import mmap
import os
from collections import OrderedDict
from concurrent.futures import Future
from pathlib import Path

from gateway import descriptors
from gateway.descriptors import NoDescriptors
from storage_adapters.formats.footer import TRAILER_BYTES, Footer, Part, Rows, Trailer
from storage_adapters.formats.manifest import FileRecord
from storage_adapters.formats.segment import SegmentHeader
from storage_adapters.segment_log.index import LiveIndex

WAL_DIRECTORY = "wal"
SETTLED_DIRECTORY = "settled"
SEGMENT_SUFFIX = ".seg"
_NUMBER_DIGITS = 20


def segment_path(data_dir: Path, number: int) -> Path:
    """Return the path of segment ``number``."""
    return data_dir / WAL_DIRECTORY / f"{number:0{_NUMBER_DIGITS}d}{SEGMENT_SUFFIX}"


def settled_path(data_dir: Path, number: int) -> Path:
    """Return the path of settled segment ``number``."""
    return data_dir / SETTLED_DIRECTORY / f"{number:0{_NUMBER_DIGITS}d}{SEGMENT_SUFFIX}"


def list_segments(data_dir: Path, directory: str = WAL_DIRECTORY) -> list[tuple[int, Path]]:
    """Return numbers and paths of all segment files, in order; others are left out."""
    paths = (data_dir / directory).glob(f"*{SEGMENT_SUFFIX}")
    return sorted((int(path.stem), path) for path in paths if _is_segment_name(path.stem))


def _is_segment_name(stem: str) -> bool:
    return len(stem) == _NUMBER_DIGITS and stem.isdecimal()


class Segment:
    """One file. All fields belong to the loop's thread once the log is open.

    ``live``: the index until a footer has taken its place, then None. ``ready``: done when the
    file, its header and its name are on the disk; only then may entries be acknowledged from
    it. For the sweeper: ``swept``, the number of partitions in its table that need it no more,
    and ``blocker``, the id and end offset of one that does. ``record``: what the manifest
    says of it, when it is a settled one. ``damage_seen``: how often a change failed because of a
    damaged batch in it.
    """

    __slots__ = (
        "blocker",
        "damage_seen",
        "disk_bytes",
        "entries_end",
        "fd",
        "first_sequence",
        "header",
        "holders",
        "is_gone",
        "live",
        "next_sequence",
        "number",
        "path",
        "ready",
        "record",
        "swept",
        "trailer",
    )

    def __init__(self, path: Path, header: SegmentHeader) -> None:
        self.path = path
        self.number = header.number
        self.header = header
        self.first_sequence = header.first_sequence
        self.next_sequence = header.first_sequence
        self.entries_end = 0
        self.disk_bytes = 0
        self.live: LiveIndex | None = None
        self.trailer: Trailer | None = None
        self.ready: Future[None] | None = None
        self.fd = -1
        self.holders = 0
        self.is_gone = False
        self.swept = 0
        self.blocker: tuple[int, int] | None = None
        self.record: FileRecord | None = None
        self.damage_seen = 0

    @property
    def is_ready(self) -> bool:
        """Whether the segment can be written without waiting for its space."""
        return self.ready is None or (self.ready.done() and self.ready.exception() is None)

    def close_with(self, trailer: Trailer) -> None:
        """Replace the live index by the footer, which is on the disk now."""
        if self.live is not None:
            self.live.clear()
        self.trailer = trailer
        self.first_sequence = trailer.first_sequence
        self.next_sequence = trailer.next_sequence
        self.entries_end = trailer.entries_end
        self.disk_bytes = trailer.footer_at + trailer.footer_bytes + TRAILER_BYTES
        self.live = None


def map_footer(fd: int, trailer: Trailer) -> Footer:
    """Map the footer that ``trailer`` describes, for as long as it is referenced."""
    start = trailer.footer_at // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    skipped = trailer.footer_at - start
    size = skipped + trailer.footer_bytes + TRAILER_BYTES
    mapping = mmap.mmap(fd, size, prot=mmap.PROT_READ, offset=start)
    view = memoryview(mapping)[skipped : skipped + trailer.footer_bytes]
    return Footer(view, trailer)


class Handles:
    """Counted descriptors of segments; unused ones are closed, the least recently used first.

    Used on the loop's thread only: a reader in another thread holds its descriptor from before
    it begins until after it has ended.
    """

    def __init__(self, open_files_max: int) -> None:
        self._open_files_max = open_files_max
        self._idle: OrderedDict[Segment, None] = OrderedDict()

    def acquire(self, segment: Segment) -> int:
        """Return the segment's descriptor and keep it open until ``release``.

        Errors: ``NoDescriptors`` when none is free, even after closing another segment;
        ``OSError``.
        """
        if segment.fd < 0:
            segment.fd = self._open(segment.path)
        else:
            self._idle.pop(segment, None)
        segment.holders += 1
        return segment.fd

    def _open(self, path: Path) -> int:
        while True:
            try:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                if not descriptors.is_shortage(error):
                    raise
                descriptors.SHORTAGES.note(error)
                if not self._idle:
                    raise NoDescriptors(str(error)) from error
                self._close_oldest()

    def _close_oldest(self) -> None:
        oldest, _ = self._idle.popitem(last=False)
        self._close(oldest)

    def release(self, segment: Segment) -> None:
        """Release the descriptor."""
        segment.holders -= 1
        if segment.holders:
            return
        if segment.is_gone:
            self._close(segment)
            return
        self._idle[segment] = None
        if len(self._idle) > self._open_files_max:
            self._close_oldest()

    def forget(self, segment: Segment) -> None:
        """Close a removed file's descriptor as soon as no reader holds it."""
        segment.is_gone = True
        if segment in self._idle:
            del self._idle[segment]
            self._close(segment)

    def close(self) -> None:
        """Close all descriptors that are not held."""
        while self._idle:
            segment, _ = self._idle.popitem()
            self._close(segment)

    @staticmethod
    def _close(segment: Segment) -> None:
        os.close(segment.fd)
        segment.fd = -1


class Footers:
    """Mapped footers of closed segments; at the bound the least recently used is dropped."""

    def __init__(self, handles: Handles, footers_max: int) -> None:
        self._handles = handles
        self._footers_max = footers_max
        self._mapped: OrderedDict[Segment, Footer] = OrderedDict()

    def get(self, segment: Segment) -> Footer:
        """Return the footer of a closed segment. Errors: ``NoDescriptors``, ``OSError``."""
        footer = self._mapped.get(segment)
        if footer is not None:
            self._mapped.move_to_end(segment)
            return footer
        assert segment.trailer is not None
        fd = self._handles.acquire(segment)
        try:
            footer = map_footer(fd, segment.trailer)
        except OSError as error:  # a mapping takes a descriptor too
            if not descriptors.is_shortage(error):
                raise
            descriptors.SHORTAGES.note(error)
            raise NoDescriptors(str(error)) from error
        finally:
            self._handles.release(segment)
        self._mapped[segment] = footer
        if len(self._mapped) > self._footers_max:
            self._mapped.popitem(last=False)
        return footer

    def lookup(self, segment: Segment, partition_id: int) -> tuple[Part, Rows] | None:
        """Return the row of a partition in a live or closed segment, or None."""
        if segment.live is not None:
            return segment.live.lookup(partition_id)
        footer = self.get(segment)
        part = footer.find(partition_id)
        return None if part is None else (part, footer.rows)

    def forget(self, segment: Segment) -> None:
        """Drop the footer of a removed segment."""
        self._mapped.pop(segment, None)

    def close(self) -> None:
        """Drop all footers."""
        self._mapped.clear()
