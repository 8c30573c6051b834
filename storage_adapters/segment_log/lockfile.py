"""One process per data directory."""

import fcntl
import os
from pathlib import Path

from gateway.errors import StorageUnavailable

LOCK_NAME = "lock"


class DataLock:
    """An advisory lock on ``data_dir/lock`` that dies with its process."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / LOCK_NAME
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock. Errors: ``StorageUnavailable`` naming the process that has it."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise StorageUnavailable(
                f"{self._path.parent} is in use by process {holder}: stop it, or give this one "
                "another data_dir"
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Let others in. The file stays: removing it would let two in at once."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
