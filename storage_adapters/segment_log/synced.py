"""``wal/SYNCED``: the last synced sequence, for readers outside the node.

It is written after each sync, by the thread that synced, and never synced itself: after a loss
of power it is too low, never too high. Without it, for example on a full disk, readers use the
durable sequence in the log's entries.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID

from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.synced import MARK_BYTES, SyncedMark, decode_mark, encode_mark
from storage_adapters.segment_log.segments import WAL_DIRECTORY

MARK_NAME: Final = "SYNCED"
_NONE: Final = -1
_READS_MAX: Final = 3  # a read can overlap a write
_MODE: Final = 0o640


class MarkFile:
    """Writer of the mark, for one thread at a time. ``fd``: its file, written at position 0."""

    def __init__(self, data_dir: Path, data_uuid: UUID) -> None:
        self._data_uuid = data_uuid
        self._sequence = _NONE
        self.fd = _NONE
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            self.fd = os.open(data_dir / WAL_DIRECTORY / MARK_NAME, flags, _MODE)

    def note(self, sequence: int) -> None:
        """Record that all up to ``sequence`` is synced, unless that is recorded already.

        An error of the disk ends the marking.
        """
        if not self.is_open or sequence <= self._sequence:
            return
        try:
            os.pwrite(self.fd, self.data(sequence), 0)
            self._sequence = sequence
        except OSError:
            self.close()

    def data(self, sequence: int) -> bytes:
        """Return the encoded mark for ``sequence``."""
        return encode_mark(SyncedMark(self._data_uuid, sequence))

    @property
    def is_open(self) -> bool:
        """Whether marks are written."""
        return self.fd != _NONE

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        fd, self.fd = self.fd, _NONE
        if fd != _NONE:
            os.close(fd)


def read_mark(data_dir: Path) -> SyncedMark | None:
    """Return the synced sequence of a data directory, or None without a valid mark."""
    for _ in range(_READS_MAX):
        try:
            with (data_dir / WAL_DIRECTORY / MARK_NAME).open("rb") as file:
                return decode_mark(file.read(MARK_BYTES + 1))
        except FileNotFoundError:
            return None
        except Damaged:
            continue
    return None
