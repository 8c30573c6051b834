"""Grouping of appends until an object is closed, by size or by the age of its first append.

Synchronous, on the loop: an append adds its entries to a list. Sequences are assigned here; the
entries have their offsets already.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from gateway.errors import RunTooLarge, StorageFull
from gateway.storage import Entry, OnDone
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.objects import Appends
from storage_adapters.s3.state import Catalog

_MS_PER_S: Final = 1_000
_ENTRY_BYTES: Final = 108  # header, target and footer row beside a batch


class Group:
    """The appends of one object. ``bytes``: its approximate size."""

    __slots__ = ("callbacks", "data", "entries", "first_sequence", "last", "sealed_ms")

    def __init__(self, first_sequence: int) -> None:
        self.first_sequence = first_sequence
        self.entries: list[Entry] = []
        self.last: list[int] = []
        self.callbacks: list[OnDone] = []
        self.data = 0
        self.sealed_ms = 0

    def appends(self) -> Appends:
        """Return the input for building the object."""
        return Appends(self.entries, frozenset(self.last), self.first_sequence)


class Appender:
    """Appender to the open group. ``on_sealed`` gets each full group, in order."""

    def __init__(
        self,
        config: S3Config,
        catalog: Catalog,
        *,
        next_sequence: int,
        on_sealed: Callable[[Group], None],
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._on_sealed = on_sealed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._group = Group(next_sequence)
        self.next_sequence = next_sequence
        self.queued_bytes = 0

    def append(self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool) -> None:
        """Add an append to the open group. Errors: ``RunTooLarge``, ``StorageFull``."""
        size_bytes = 0
        for entry in entries:
            size_bytes += len(entry.batch) + _ENTRY_BYTES
        self._check_room(size_bytes, reserved=reserved)
        group = self._group
        if not group.entries:
            self._start_timer()
        partition = self._catalog.partition
        for entry in entries:
            for partition_id, base_offset in entry.targets:
                state = partition(partition_id)
                assert base_offset == state.end, "offsets of a partition are dense"
                state.end = base_offset + entry.record_count
        group.entries += entries
        group.last.append(len(group.entries) - 1)
        group.callbacks.append(on_done)
        group.data += size_bytes
        self.next_sequence += len(entries)
        self.queued_bytes += size_bytes
        if group.data >= self._config.object_bytes:
            self.seal()

    def _check_room(self, size_bytes: int, *, reserved: bool) -> None:
        config = self._config
        if size_bytes > config.append_bytes_max:
            raise RunTooLarge(
                f"an append takes {size_bytes} bytes of {config.append_bytes_max}"
            )
        most = config.queued_bytes_max + (config.reserve_bytes if reserved else 0)
        if self.queued_bytes and self.queued_bytes + size_bytes > most:
            raise StorageFull(
                f"storage.queued_bytes_max: {self.queued_bytes} bytes wait for the bucket"
            )

    def _start_timer(self) -> None:
        delay_s = self._config.flush_interval_ms / _MS_PER_S
        self._timer = self._loop.call_later(delay_s, self.seal)

    def seal(self) -> None:
        """Seal the open group, unless it is empty."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._group.entries:
            group, self._group = self._group, Group(self.next_sequence)
            self._on_sealed(group)

    def finished(self, group: Group) -> None:
        """Note that a group is committed, or has failed."""
        self.queued_bytes -= group.data
