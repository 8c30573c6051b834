"""File ``BACKUP``: the list of a backup's files, written last to complete it.

One line ``headgate-backup 1 <CRC-32C of the rest, hexadecimal>``, then a JSON object.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from crc32c import crc32c
from pydantic import Field, ValidationError

from gateway.config.base import FrozenConfig
from gateway.errors import RequestError

BACKUP_NAME: Final = "BACKUP"
FORMAT: Final = 1
READ_BYTES: Final = 1_048_576
_WORD: Final = "headgate-backup"
_BYTES_MAX: Final = 67_108_864
_FILE_MODE: Final = 0o640


class BackupDamaged(RequestError):
    """Backup that differs from its ``BACKUP`` file, or has none."""


class BackupEntry(FrozenConfig):
    """File of the backup, by its path below the backup's folder."""

    path: str
    size_bytes: int = Field(ge=0)
    crc32c: int = Field(ge=0, le=0xFFFF_FFFF)


class BackupFile(FrozenConfig):
    """``metadata``: ``sqlite``, or ``elsewhere`` when it is a database with its own backups."""

    created_unix_ms: int
    headgate_version: str
    data_uuid: str
    metadata: str
    files: tuple[BackupEntry, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(entry.size_bytes for entry in self.files)


def write_backup_file(folder: Path, content: BackupFile) -> None:
    """Write and sync the file and its folder, which completes the backup. Errors: ``OSError``."""
    body = content.model_dump_json(indent=1).encode()
    fd = os.open(
        folder / BACKUP_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE
    )
    with os.fdopen(fd, "wb") as file:
        file.write(f"{_WORD} {FORMAT} {crc32c(body):08x}\n".encode() + body)
        file.flush()
        os.fsync(file.fileno())
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_backup_file(folder: Path) -> BackupFile:
    """Return the contents of a backup. Errors: ``BackupDamaged``."""
    path = folder / BACKUP_NAME
    try:
        with path.open("rb") as file:
            head, _, body = file.read(_BYTES_MAX).partition(b"\n")
    except OSError as error:
        msg = f"{path}: {error.strerror}: there is no backup, or it was never finished"
        raise BackupDamaged(msg) from error
    words = head.decode("ascii", "replace").split()
    if len(words) != 3 or words[0] != _WORD:  # noqa: PLR2004 - word, format, CRC
        raise BackupDamaged(f"{path} is no list of a backup")
    if words[1] != str(FORMAT):
        msg = f"{path} is of format {words[1]}; this version of Headgate reads {FORMAT}"
        raise BackupDamaged(msg)
    if words[2] != f"{crc32c(body):08x}":
        raise BackupDamaged(f"{path}: its CRC does not match")
    try:
        content = BackupFile.model_validate_json(body)
    except ValidationError as error:
        raise BackupDamaged(f"{path}: {error.errors()[0]['msg']}") from error
    for entry in content.files:
        parts = Path(entry.path).parts
        if Path(entry.path).is_absolute() or not parts or ".." in parts:
            raise BackupDamaged(f"{path}: {entry.path!r} is not below the backup")
    return content


def checksum(path: Path, *, on_read: Callable[[int], None] | None = None) -> tuple[int, int]:
    """Return bytes and CRC-32C of a file.

    ``on_read`` is told how many bytes each step has read. Errors: ``OSError``.
    """
    size_bytes = crc = 0
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while piece := os.pread(fd, READ_BYTES, size_bytes):
            crc = crc32c(piece, crc)
            size_bytes += len(piece)
            if on_read is not None:
                on_read(len(piece))
    finally:
        os.close(fd)
    return size_bytes, crc
