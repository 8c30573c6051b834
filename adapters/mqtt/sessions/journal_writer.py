"""Writer of the messages sent in a turn of the loop: session journals, entries of shared lanes.

All of a turn is one append, unless it is large: then it is several, none much larger than a
bound, so that no session's long names or lists can make the storage refuse another session's
records. The lanes come first: after a crash they know which messages were dealt out, and those
that no session has are free.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import structlog

from adapters.mqtt.sessions.journal import Leaving, SessionJournal
from adapters.mqtt.sessions.store import APPEND_BYTES_MAX, SessionStore
from adapters.mqtt.shared_subscriptions.lanes import ShareLane, ShareLanes
from gateway.coalescer import Part
from gateway.errors import GatewayError, StorageUnavailable, as_value

log = structlog.get_logger()


class _Record(NamedTuple):
    """Record of a session's journal."""

    journal: SessionJournal
    first_seq: int
    value: bytes
    leaving: Leaving

    @property
    def size_bytes(self) -> int:
        return len(self.journal.session.client_id) + len(self.value)


_Entry = tuple[ShareLane, Part]


class _Append(NamedTuple):
    """Records of one append."""

    entries: Sequence[_Entry]
    records: Sequence[_Record]

    def apart(self) -> "list[_Append]":
        """Return each by itself."""
        entries = [_Append((entry,), ()) for entry in self.entries]
        return entries + [_Append((), (record,)) for record in self.records]


class JournalWriter:
    """Gathers what has changed in a turn of the loop."""

    def __init__(self, store: SessionStore, lanes: ShareLanes) -> None:
        self._store = store
        self._lanes = lanes
        self._journals: list[SessionJournal] = []
        self._is_scheduled = False  # they are written at the end of this turn

    def add(self, journal: SessionJournal) -> None:
        """Write a session's journal at the end of this turn of the loop."""
        self.write_soon()
        self._journals.append(journal)

    def write_soon(self) -> None:
        """Write the added records at the end of this turn of the loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._write_scheduled)

    def _write_scheduled(self) -> None:
        self._is_scheduled = False
        self.write()

    def write(self) -> None:
        """Store the added messages; send them now, or when they are durable.

        Messages that cannot be stored are refused as by a full disk, for their own session only.
        """
        journals, self._journals = self._journals, []
        if not journals and not self._lanes.is_pending:
            return
        records = [_Record(journal, *journal.prepare()) for journal in journals]
        entries = list(zip(*self._lanes.take_pending(), strict=True))
        waiting = deque(_appends(entries, records))
        while waiting:
            append = waiting.popleft()
            error = self._put(append)
            if error is None:
                continue
            apart = append.apart()
            if len(apart) > 1:
                waiting.extendleft(reversed(apart))
            else:
                refusal = StorageUnavailable(str(error))
                asyncio.get_running_loop().call_soon(self._on_done, append, refusal)
        for record in records:
            if not record.leaving.is_waiting:
                record.journal.leave(record.leaving)

    def _put(self, append: _Append) -> GatewayError | None:
        """Put what is one append; return why that cannot be, and then nothing has changed."""
        if any(lane.is_ahead for lane, _ in append.entries):
            # A piece of a lane's snapshot was refused: its end would be kept, and not count.
            return StorageUnavailable("a piece of a snapshot of a shared subscription")
        records = [
            (one.journal.session.client_id, one.first_seq, one.value) for one in append.records
        ]
        beside = [part for _, part in append.entries]
        try:
            self._store.journal(records, partial(self._on_done, append), beside)
        except GatewayError as error:
            return as_value(error)
        return None

    def _on_done(self, append: _Append, error: StorageUnavailable | None) -> None:
        self._lanes.written([lane for lane, _ in append.entries], error)
        for journal, first_seq, value, leaving in append.records:
            if error is None:
                journal.on_kept(leaving)
            else:
                journal.on_refused(leaving, (first_seq, value), error)
        if error is not None:
            log.warning("what is on its way was not written down", error=str(error))


def _appends(entries: Sequence[_Entry], records: Sequence[_Record]) -> Iterator[_Append]:
    """Yield what goes into one append each: within the bound, or one thing alone."""
    some_entries: list[_Entry] = []
    some_records: list[_Record] = []
    size_bytes = 0
    for entry in entries:
        part_bytes = entry[1][1].size_bytes
        if some_entries and size_bytes + part_bytes > APPEND_BYTES_MAX:
            yield _Append(some_entries, [])
            some_entries, size_bytes = [], 0
        some_entries.append(entry)
        size_bytes += part_bytes
    for record in records:
        if size_bytes and size_bytes + record.size_bytes > APPEND_BYTES_MAX:
            yield _Append(some_entries, some_records)
            some_entries, some_records, size_bytes = [], [], 0
        some_records.append(record)
        size_bytes += record.size_bytes
    yield _Append(some_entries, some_records)
