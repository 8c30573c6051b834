"""Lock file: one process per data directory."""

import fcntl
import os
from pathlib import Path
from typing import Final

from gateway.errors import StorageUnavailable

LOCK_NAME: Final = "lock"
_PID_BYTES_MAX: Final = 32


class DataLock:
    """An advisory lock on ``data_dir/lock`` that dies with its process."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / LOCK_NAME
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock, unless this object holds it. Errors: ``StorageUnavailable``.

        The error names the process that has it.
        """
        if self._fd >= 0:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise StorageUnavailable(f"{self._path}: {error}") from error
        if not _try_lock(fd):
            holder = _read_pid(fd)
            os.close(fd)
            raise StorageUnavailable(
                f"{self._path.parent} is in use by process {holder}: stop it, or give this one "
                "another data_dir"
            )
        pid = f"{os.getpid()}\n".encode()
        try:
            os.pwrite(fd, pid, 0)  # overwrites the old content: a full disk has no other room
            os.ftruncate(fd, len(pid))
        except OSError as error:
            os.close(fd)
            raise StorageUnavailable(f"{self._path}: {error}") from error
        self._fd = fd

    def release(self) -> None:
        """Release the lock. The file stays: removing it would let two processes take the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def lock_holder(data_dir: Path) -> str | None:
    """Return the id of the process that holds the lock, or None."""
    try:
        fd = os.open(data_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return None if _try_lock(fd) else _read_pid(fd)
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_pid(fd: int) -> str:
    return os.pread(fd, _PID_BYTES_MAX, 0).decode(errors="replace").strip() or "unknown"
