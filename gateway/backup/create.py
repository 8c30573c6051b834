"""Backups of a running node: the log by its storage, then the metadata store, then the list.

The metadata is copied after the log: its counters of ids are then at least as far as the log's,
and a topic that the log knows is known there.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import structlog

from gateway.backup.file import (
    BACKUP_NAME,
    BackupEntry,
    BackupFile,
    checksum,
    write_backup_file,
)
from gateway.errors import GatewayError, InvalidRequest, PolicyViolation, StorageUnavailable
from gateway.installation import installed_version
from gateway.kernel import Kernel
from gateway.metadata.sql import FILE_NAME

_FOLDER_MODE: Final = 0o700  # the metadata holds password verifiers
_FILE_MODE: Final = 0o600

_log = structlog.get_logger()


@runtime_checkable
class LogCopier(Protocol):
    """Copier of a storage that can be backed up; its attribute ``copier``."""

    async def copy(self, target: Path) -> None:
        """Copy all data acknowledged before the call into the empty folder ``target``.

        Errors: ``StorageUnavailable``.
        """
        ...


class BackupState(StrEnum):
    """State of a backup."""

    NONE = "none"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Backups:
    """At most one backup at a time; the last one's outcome is kept. Loop only."""

    def __init__(self) -> None:
        self.state = BackupState.NONE
        self.target: Path | None = None
        self.error = ""
        self.files = 0
        self.total_bytes = 0
        self.checked_bytes = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, kernel: Kernel, target: Path) -> None:
        """Start a backup into ``target``, a missing or empty folder.

        Errors: ``InvalidRequest`` for the target, ``PolicyViolation`` while another one runs,
        or when the storage cannot be backed up.
        """
        if self.state is BackupState.RUNNING:
            raise PolicyViolation(f"a backup into {self.target} is being made")
        copier = kernel.broker.log_copier
        if not isinstance(copier, LogCopier):
            name = kernel.settings.storage.adapter
            raise PolicyViolation(f"the storage {name} cannot be backed up")
        _make_folder(target)
        self.state, self.target, self.error = BackupState.RUNNING, target, ""
        self.files = self.total_bytes = self.checked_bytes = 0
        self._task = asyncio.get_running_loop().create_task(self._run(kernel, copier, target))

    async def wait(self, timeout_s: float) -> None:
        """Wait for the end of the backup, or for that time."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)

    async def _run(self, kernel: Kernel, copier: LogCopier, target: Path) -> None:
        _log.info("backup begins", target=str(target))
        try:
            await copier.copy(target)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._finish, kernel, target)
        except (GatewayError, OSError, sqlite3.Error) as error:
            self.state, self.error = BackupState.FAILED, str(error)
            _log.error("backup failed", target=str(target), error=str(error))
        except BaseException:
            # The thread, if it is at work, ends at its next read.
            self.state, self.error = BackupState.FAILED, "the node stopped"
            raise
        else:
            self.state = BackupState.DONE
            _log.info("backup done", target=str(target), files=self.files)

    def _finish(self, kernel: Kernel, target: Path) -> None:
        """Copy the metadata and write the list. In a thread."""
        has_sqlite = kernel.settings.metadata.database_url == "sqlite"
        if has_sqlite:
            copy_sqlite(kernel.settings.node.data_dir / FILE_NAME, target / FILE_NAME)
        paths = sorted(path for path in target.rglob("*") if path.is_file())
        self.files = len(paths)
        self.total_bytes = sum(path.stat().st_size for path in paths)
        entries = [_entry(target, path, self._add_checked) for path in paths]
        content = BackupFile(
            created_unix_ms=kernel.clock.unix_ms(),
            headgate_version=installed_version(),
            data_uuid=str(kernel.broker.data_uuid),
            metadata="sqlite" if has_sqlite else "elsewhere",
            files=tuple(entries),
        )
        write_backup_file(target, content)

    def _add_checked(self, size_bytes: int) -> None:
        if self.state is not BackupState.RUNNING:
            raise StorageUnavailable(self.error)
        self.checked_bytes += size_bytes


def copy_sqlite(path: Path, target: Path) -> None:
    """Copy a database in use, as of one moment. Errors: ``sqlite3.Error``, ``OSError``."""
    target.touch(mode=_FILE_MODE, exist_ok=False)
    source = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with closing(source), closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
        # The copy stands alone: no journal beside it that could be left behind.
        copy.execute("PRAGMA journal_mode = DELETE")


def _make_folder(target: Path) -> None:
    if not target.is_absolute():
        raise InvalidRequest(f"name the target's whole path, not {target}")
    try:
        target.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        if any(target.iterdir()):
            raise InvalidRequest(f"{target} is not empty")
    except OSError as error:
        raise InvalidRequest(f"{target}: {error.strerror}") from error


def _entry(target: Path, path: Path, on_read: Callable[[int], None]) -> BackupEntry:
    if path.name == BACKUP_NAME:
        raise StorageUnavailable(f"{path} is there already")
    size_bytes, crc = checksum(path, on_read=on_read)
    name = path.relative_to(target).as_posix()
    return BackupEntry(path=name, size_bytes=size_bytes, crc32c=crc)
