"""Reserve file that is removed to start on a full disk.

A node that starts needs room: for a segment of the log, for the journal of SQLite. On a full disk
the file is removed, so that the node comes up, serves reads, and lets retention and deletes make
room; it is made anew when there is some.
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

FILE_NAME: Final = "reserve"
LOOK_AGAIN_S: Final = 60.0
_FILE_MODE: Final = 0o600

log = structlog.get_logger()


class DiskReserve:
    """Reserve file in ``data_dir``. Loop only, except for disk I/O."""

    def __init__(self, data_dir: Path, size_bytes: int) -> None:
        self._path = data_dir / FILE_NAME
        self._size_bytes = size_bytes
        self._timer: asyncio.TimerHandle | None = None

    def release_when_full(self) -> bool:
        """Remove the file if the disk has less room than its size; return whether it was."""
        if not self._path.exists() or _room_bytes(self._path.parent) >= self._size_bytes:
            return False
        self._path.unlink()
        log.error(
            "the disk is full: appends are refused until there is room",
            file=str(self._path),
            freed_bytes=self._size_bytes,
            advice="delete topics or shorten their retention, or make room beside the node",
        )
        return True

    def start(self) -> None:
        """Create the file, now or once there is room for twice its size."""
        self._timer = None
        if not self._size_bytes:
            return
        if not make_file(self._path, self._size_bytes):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_AGAIN_S, self.start)

    def stop(self) -> None:
        """Stop waiting for room."""
        if self._timer is not None:
            self._timer.cancel()


def make_file(path: Path, size_bytes: int) -> bool:
    """Create a file with allocated space; return False when there is no room for it."""
    if path.exists():
        return True
    if _room_bytes(path.parent) < 2 * size_bytes:
        return False
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(path, flags, _FILE_MODE)
    try:
        os.posix_fallocate(fd, 0, size_bytes)
    except OSError:
        with suppress(OSError):
            path.unlink()
        return False
    finally:
        os.close(fd)
    return True


def _room_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
