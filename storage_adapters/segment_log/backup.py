"""Copy of the log of a running node: closed files are linked, the open end is copied.

While the copy is made nothing is deleted: ``HoldingFiles``, through which the log removes its
files, delays removals until ``release``. Files of the log never change once they are
closed, so a hard link is a copy; on another file system they are copied.
"""

import asyncio
import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock
from typing import Final, NamedTuple

from gateway.errors import StorageUnavailable
from gateway.model import Buffer
from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.entry import (
    EntryHeader,
    decode_entry_header,
)
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES, SegmentHeader
from storage_adapters.segment_log.catalog import Catalog
from storage_adapters.segment_log.files import Files
from storage_adapters.segment_log.key_indexes import KEY_INDEX_SUFFIX
from storage_adapters.segment_log.login_file import FILE_NAME as LOGIN_FILE
from storage_adapters.segment_log.segments import WAL_DIRECTORY, settled_path
from storage_adapters.segment_log.settled_files import manifest_path, read_manifest
from storage_adapters.segment_log.writer import Writer

COPY_BYTES: Final = 1_048_576
_PEEK_BYTES: Final = 4_096
_FRONT_BYTES_MAX: Final = 16_777_216  # a header with its targets: 1.4 million of them
_NO_END: Final = 1 << 62
_FILE_MODE: Final = 0o640
_DIRECTORY_MODE: Final = 0o750


class HoldingFiles:
    """``Files`` whose removals can be delayed. From any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = Lock()
        self._holders = 0
        self._aside: dict[Path, None] = {}

    def hold(self) -> None:
        """Delay removals until ``release``, which is called as often as this."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """Do the delayed removals, unless another hold remains. Errors: ``OSError``."""
        with self._lock:
            self._holders -= 1
            if self._holders:
                return
            paths, self._aside = list(self._aside), {}
        for path in paths:
            self._files.unlink(path)

    def unlink(self, path: Path) -> None:
        """See ``Files``; delayed during a hold."""
        with self._lock:
            if self._holders:
                self._aside[path] = None
                return
        self._files.unlink(path)

    def create(self, path: Path) -> int:
        """See ``Files``. A name whose removal is delayed is free, as if it had been removed."""
        with self._lock:
            was_aside = path in self._aside
            self._aside.pop(path, None)
        if was_aside:
            self._files.unlink(path)
        return self._files.create(path)

    def rename(self, path: Path, new_path: Path) -> None:
        """See ``Files``."""
        with self._lock:
            self._aside.pop(new_path, None)
        self._files.rename(path, new_path)

    def room_bytes(self, path: Path) -> int:
        """See ``Files``."""
        return self._files.room_bytes(path)

    def open(self, path: Path) -> int:
        """See ``Files``."""
        return self._files.open(path)

    def allocate(self, fd: int, size_bytes: int) -> None:
        """See ``Files``."""
        self._files.allocate(fd, size_bytes)

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """See ``Files``."""
        return self._files.write(fd, buffers, position)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """See ``Files``."""
        self._files.truncate(fd, size_bytes)

    def sync(self, fd: int) -> None:
        """See ``Files``."""
        self._files.sync(fd)

    def sync_directory(self, path: Path) -> None:
        """See ``Files``."""
        self._files.sync_directory(path)


class _Open(NamedTuple):
    """A log segment without a footer: its entries tell how much of it is copied."""

    path: Path
    header: SegmentHeader


class _Plan(NamedTuple):
    """Files to copy: ``closed`` ones whole, ``live`` ones up to a sequence."""

    data_dir: Path
    target: Path
    closed: list[Path]
    live: list[_Open]
    written_sequence: int
    stop: Event


class LogCopier:
    """Copier of a running log. ``files`` is the port through which the log removes its files."""

    def __init__(
        self, catalog: Catalog, writer: Writer, *, files: HoldingFiles, data_dir: Path
    ) -> None:
        self._catalog = catalog
        self._writer = writer
        self._files = files
        self._data_dir = data_dir
        self._stop = Event()

    async def copy(self, target: Path) -> None:
        """Copy all that was acknowledged before the call into the empty folder ``target``.

        Errors: ``StorageUnavailable``; what was copied so far stays.
        """
        # Written entries are synced where the policy requires it; later ones may be half written.
        sequence = self._writer.written_sequence
        closed, live = _segments_of(self._catalog, sequence)
        loop = asyncio.get_running_loop()
        self._files.hold()
        try:
            plan = _Plan(self._data_dir, target, closed, live, sequence, self._stop)
            await loop.run_in_executor(None, _copy, plan)
        except asyncio.CancelledError:
            self._stop.set()  # Otherwise a stop of the node would wait for the thread.
            raise
        except OSError as error:
            raise StorageUnavailable(f"{target}: {error}") from error
        finally:
            await loop.run_in_executor(None, self._files.release)


def _segments_of(catalog: Catalog, written_sequence: int) -> tuple[list[Path], list[_Open]]:
    segments = list(catalog.segments.values())
    closed = [
        segment.path
        for segment in segments
        if segment.live is None and segment.path.parent.name == WAL_DIRECTORY
    ]
    live = [
        _Open(segment.path, segment.header)
        for segment in segments
        if segment.live is not None and segment.first_sequence <= written_sequence
    ]
    return closed, live


def _copy(plan: _Plan) -> None:
    wal = plan.target / WAL_DIRECTORY
    wal.mkdir(mode=_DIRECTORY_MODE)
    for path in plan.closed:
        link_or_copy(path, wal / path.name, plan.stop)
    for segment in plan.live:
        end = _end_of(segment.path, segment.header, plan.written_sequence)
        _copy_data(segment.path, wal / segment.path.name, end, plan.stop)
    # After the log: the manifest is at least as new, so it lists nothing that the copy lacks.
    _copy_settled(plan)
    with suppress(FileNotFoundError):  # It says that everybody must log in; else there is none.
        link_or_copy(plan.data_dir / LOGIN_FILE, plan.target / LOGIN_FILE, plan.stop)
    for directory in (wal, plan.target):
        sync_directory(directory)


def _end_of(path: Path, header: SegmentHeader, written_sequence: int) -> int:
    """Return the end of the entries up to a sequence; bytes after it may be half written.

    Read, not mapped: the file may be closed, and so cut to its length, meanwhile.
    """
    at = SEGMENT_HEADER_BYTES
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while True:
            entry = _entry_at(fd, at, header.seed)
            if entry is None or entry.sequence > written_sequence:
                return at
            at += entry.size_bytes
    finally:
        os.close(fd)


def _entry_at(fd: int, at: int, seed: int) -> EntryHeader | None:
    for size_bytes in (_PEEK_BYTES, _FRONT_BYTES_MAX):
        with suppress(Damaged):
            return decode_entry_header(os.pread(fd, size_bytes, at), 0, _NO_END, seed)
    return None


def _copy_settled(plan: _Plan) -> None:
    """Link the manifest as it is, then the files that it counts, with their key indexes.

    The manifest is replaced, never written to, and while removals are put aside every file
    that it counts is there. Others are not looked at: they may be growing.
    """
    if not manifest_path(plan.data_dir).exists():
        return
    folder = manifest_path(plan.target).parent
    folder.mkdir(mode=_DIRECTORY_MODE)
    link_or_copy(manifest_path(plan.data_dir), manifest_path(plan.target), plan.stop)
    manifest = read_manifest(plan.target)
    assert manifest is not None
    for record in manifest.files:
        path = settled_path(plan.data_dir, record.number)
        link_or_copy(path, folder / path.name, plan.stop)
        with suppress(FileNotFoundError):  # It is optional, and can be built again.
            index = path.with_suffix(KEY_INDEX_SUFFIX)
            link_or_copy(index, folder / index.name, plan.stop)
    sync_directory(folder)


def link_or_copy(path: Path, target: Path, stop: Event) -> None:
    """Link a file that does not change any more, or copy it where linking fails.

    Errors: ``OSError``, also when ``stop`` is set before it is copied.
    """
    try:
        os.link(path, target)
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP}:
            raise
        _copy_data(path, target, path.stat().st_size, stop)


def _copy_data(path: Path, target: Path, size_bytes: int, stop: Event) -> None:
    """Copy the first bytes of a file and sync the copy."""
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
        try:
            at = 0
            while at < size_bytes:
                if stop.is_set():
                    raise InterruptedError(errno.EINTR, "the node stops")
                piece = os.pread(source, min(COPY_BYTES, size_bytes - at), at)
                if not piece:
                    raise OSError(errno.EIO, f"{path} ends at {at}, before {size_bytes}")
                written = os.pwrite(copy, piece, at)
                at += written
            os.fsync(copy)
        finally:
            os.close(copy)
    finally:
        os.close(source)


def sync_directory(path: Path) -> None:
    """Sync the names in a directory. Errors: ``OSError``."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
