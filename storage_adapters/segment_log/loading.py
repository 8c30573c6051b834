"""Loading of an existing segment file: its header, and its footer when that is intact."""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gateway.errors import StorageUnavailable
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.footer import TRAILER_BYTES, Trailer, decode_trailer
from storage_adapters.formats.segment import (
    KIND_LOG,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
)
from storage_adapters.segment_log.segments import Segment, map_footer

_CHUNK_BYTES = 1_048_576


class Loaded(NamedTuple):
    """A segment file. ``segment`` is None when the process died while making it.

    ``trailer`` is an intact trailer, also when the footer before it is damaged;
    ``segment.trailer`` is set only when both are intact.
    """

    path: Path
    file_bytes: int
    segment: Segment | None
    trailer: Trailer | None

    @property
    def header(self) -> SegmentHeader:
        """Segment header; only with a segment."""
        assert self.segment is not None
        return self.segment.header


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """Map a whole, non-empty file for reading."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        mapping = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    finally:
        os.close(fd)
    # Not closed explicitly: views of it may live longer, and keep the mapping.
    yield memoryview(mapping)


def load_segment(path: Path, number: int, kind: int = KIND_LOG) -> Loaded:
    """Return the segment in ``path``. Errors: ``StorageUnavailable`` naming the place."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        file_bytes = os.fstat(fd).st_size
        header = _load_header(fd, path, number)
        if header is None:
            return Loaded(path, file_bytes, None, None)
        if header.kind != kind:
            raise StorageUnavailable(f"{path} is a segment of kind {header.kind}, not {kind}")
        segment = Segment(path, header)
        trailer = _load_trailer(fd, file_bytes, header)
        if trailer is not None and _is_footer_intact(fd, trailer):
            segment.close_with(trailer)
        return Loaded(path, file_bytes, segment, trailer)
    except TooNew as error:
        raise StorageUnavailable(
            f"{path} was written by a later version of Headgate ({error}); it cannot be opened "
            "by this one"
        ) from error
    finally:
        os.close(fd)


def _load_header(fd: int, path: Path, number: int) -> SegmentHeader | None:
    try:
        header = decode_segment_header(os.pread(fd, SEGMENT_HEADER_BYTES, 0))
    except Damaged as error:
        if _is_blank(fd):
            return None
        raise StorageUnavailable(
            f"{path}: position 0: {error}, but there is data behind it. Restore the file from "
            "a backup"
        ) from error
    if header.number != number:
        raise StorageUnavailable(f"{path} is a copy of segment {header.number}")
    return header


def _is_blank(fd: int) -> bool:
    """Return whether nothing was ever written after the segment header."""
    at = SEGMENT_HEADER_BYTES
    while chunk := os.pread(fd, _CHUNK_BYTES, at):
        if chunk.count(0) != len(chunk):
            return False
        at += len(chunk)
    return True


def _load_trailer(fd: int, file_bytes: int, header: SegmentHeader) -> Trailer | None:
    try:
        trailer = decode_trailer(
            os.pread(fd, TRAILER_BYTES, max(0, file_bytes - TRAILER_BYTES))
        )
    except Damaged:
        return None
    ends_at = trailer.footer_at + trailer.footer_bytes + TRAILER_BYTES
    if (trailer.number, trailer.incarnation) != (header.number, header.incarnation):
        return None
    return trailer if ends_at == file_bytes else None


def _is_footer_intact(fd: int, trailer: Trailer) -> bool:
    try:
        map_footer(fd, trailer).check()
    except Damaged:
        return False
    return True
