"""Restore of a backup into an empty data directory.

Files are copied into a folder of their own, checked against the ``BACKUP`` file while they are
copied, synced, and only then moved to their places: the log last, so that a start in between
finds a metadata store without its log and refuses.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from crc32c import crc32c

from gateway.backup.file import (
    READ_BYTES,
    BackupDamaged,
    BackupEntry,
    BackupFile,
    read_backup_file,
)
from gateway.errors import RequestError

_STAGE: Final = "restore.unfinished"
_LAST: Final = "wal"
_LOCK: Final = "lock"
_PRIVATE: Final = ".sqlite"
_PRIVATE_MODE: Final = 0o600
_FILE_MODE: Final = 0o640
_FOLDER_MODE: Final = 0o750


class NotEmpty(RequestError):
    """Target of a restore that is not empty."""


def check_target(data_dir: Path) -> None:
    """Refuse a folder with more than a lock and a failed restore. Errors: ``NotEmpty``."""
    found = sorted(path.name for path in data_dir.iterdir())
    others = [name for name in found if name not in {_LOCK, _STAGE}]
    if others:
        names = ", ".join(others[:5])
        raise NotEmpty(f"{data_dir} holds {names}: a backup is restored into an empty folder")


def restore(
    backup: Path, data_dir: Path, *, on_copied: Callable[[int], None] | None = None
) -> BackupFile:
    """Copy a backup into ``data_dir``, locked by the caller; return its contents.

    ``on_copied`` is told bytes as they are copied. Errors: ``BackupDamaged``, ``NotEmpty``,
    ``OSError``; then ``data_dir`` has no log, and can be tried again.
    """
    content = read_backup_file(backup)
    check_target(data_dir)
    stage = data_dir / _STAGE
    if stage.exists():
        shutil.rmtree(stage)
    stage.mkdir(mode=_FOLDER_MODE)
    for entry in content.files:
        _copy(backup, entry, stage, on_copied)
    for folder in [*(path for path in stage.rglob("*") if path.is_dir()), stage]:
        _sync(folder)
    for path in sorted(stage.iterdir(), key=lambda path: (path.name == _LAST, path.name)):
        path.rename(data_dir / path.name)
        _sync(data_dir)
    stage.rmdir()
    _sync(data_dir)
    return content


def _copy(
    backup: Path, entry: BackupEntry, stage: Path, on_copied: Callable[[int], None] | None
) -> None:
    source, target = backup / entry.path, stage / entry.path
    target.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    mode = _PRIVATE_MODE if target.suffix == _PRIVATE else _FILE_MODE
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    size_bytes = crc = 0
    try:
        reading = source.open("rb", buffering=0)
    except OSError as error:
        raise BackupDamaged(f"{source}: {error.strerror}") from error
    with reading, os.fdopen(os.open(target, flags, mode), "wb") as writing:
        while piece := reading.read(READ_BYTES):
            crc = crc32c(piece, crc)
            size_bytes += len(piece)
            writing.write(piece)
            if on_copied is not None:
                on_copied(len(piece))
        writing.flush()
        os.fsync(writing.fileno())
    if size_bytes != entry.size_bytes:
        raise BackupDamaged(f"{source} has {size_bytes} bytes, not {entry.size_bytes}")
    if crc != entry.crc32c:
        raise BackupDamaged(f"{source}: its CRC does not match: the backup is damaged")


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
