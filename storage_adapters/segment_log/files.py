"""Port of the file system: tests replace it to simulate power loss and disk errors."""

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Protocol

from gateway import descriptors
from gateway.model import Buffer

DESCRIPTOR_RETRY_S = 0.05  # between two tries to open a directory that must be opened

_FILE_MODE = 0o640


class Files(Protocol):
    """Operations that change the disk. Errors are ``OSError``, as the system raises them."""

    def room_bytes(self, path: Path) -> int:
        """Return the bytes that the file system of ``path`` has available for this process."""
        ...

    def create(self, path: Path) -> int:
        """Return a descriptor of a new, empty file, for reading and writing."""
        ...

    def open(self, path: Path) -> int:
        """Return a descriptor of an existing file, for reading and writing."""
        ...

    def allocate(self, fd: int, size_bytes: int) -> None:
        """Allocate disk space for a file of that length, or raise ENOSPC."""
        ...

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write at a position; return the number of bytes written, which may be fewer."""
        ...

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Cut (or lengthen) the file."""
        ...

    def sync(self, fd: int) -> None:
        """Sync the data and the size of the file."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Sync the names in the directory. In a thread."""
        ...

    def rename(self, path: Path, new_path: Path) -> None:
        """Rename the file, replacing the target atomically."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a name; open descriptors stay readable."""
        ...


class SystemFiles:
    """``Files`` by the system's calls."""

    def room_bytes(self, path: Path) -> int:
        """See ``Files``."""
        disk = os.statvfs(path)
        return disk.f_bavail * disk.f_frsize

    def create(self, path: Path) -> int:
        """See ``Files``."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)

    def open(self, path: Path) -> int:
        """See ``Files``."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def allocate(self, fd: int, size_bytes: int) -> None:
        """See ``Files``."""
        os.posix_fallocate(fd, 0, size_bytes)

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """See ``Files``."""
        return os.pwritev(fd, buffers, position)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """See ``Files``."""
        os.ftruncate(fd, size_bytes)

    def sync(self, fd: int) -> None:
        """See ``Files``."""
        os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        """See ``Files``."""
        fd = _open_directory(path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, path: Path, new_path: Path) -> None:
        """See ``Files``."""
        path.replace(new_path)

    def unlink(self, path: Path) -> None:
        """See ``Files``."""
        path.unlink()


def _open_directory(path: Path) -> int:
    """Open a directory; wait for a free descriptor, since the change cannot be abandoned here."""
    while True:
        try:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if not descriptors.is_shortage(error):
                raise
            descriptors.SHORTAGES.note(error)
            Event().wait(DESCRIPTOR_RETRY_S)


BUFFERS_MAX = 1_024  # IOV_MAX of Linux


def write_all(files: Files, fd: int, buffers: Sequence[Buffer], position: int) -> None:
    """Write all of ``buffers`` at ``position``, in as many calls as needed."""
    at = 0
    while at < len(buffers):
        chunk = buffers[at : at + BUFFERS_MAX]
        at += len(chunk)
        expected = sum(map(len, chunk))
        written = files.write(fd, chunk, position)
        position += written
        while written < expected:
            chunk = _rest(chunk, written)
            expected -= written
            written = files.write(fd, chunk, position)
            if not written:
                raise OSError(5, "the disk takes no more bytes and says no error")
            position += written


def _rest(buffers: Sequence[Buffer], written: int) -> list[Buffer]:
    """Return the rest of ``buffers`` after their first ``written`` bytes."""
    rest: list[Buffer] = []
    for buffer in buffers:
        if written >= len(buffer):
            written -= len(buffer)
            continue
        rest.append(memoryview(buffer)[written:] if written else buffer)
        written = 0
    return rest
