"""Entries of the queues' journal: gathering changes into entries, and entries from records.

All changes of a lane within a turn of the loop become one entry.

A record, and what it takes to append one, costs more than the changes in it: sixteen receivers
that take and settle ten messages each are two changes, of a few ranges. Rows that are taken, and
messages that are done, are gathered beside the other changes, and are put behind those
before them: a message that was never handed out is taken before it is done, and what was done
never is again, so that no order is lost.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from features.queue.journal import encode_contiguous_take, encode_done_ranges
from features.queue.model import ContiguousTake
from gateway.coalescer import Coalescer
from gateway.records.codec import Headers
from gateway.storage import OnDone

SNAPSHOT: Final = "snapshot"  # headers of its records
PIECE: Final = "snapshot-piece"
GATHERED_BYTES_MAX: Final = 65_536  # of one entry
LARGE_BYTES: Final = 4_096  # a change that waits for no others
_DONE_BYTES: Final = 12  # of each range
_TAKE_BYTES: Final = 60

OnEntry = Callable[[bytes, bytes, bool], None]
"""Called with lane id, entry, and whether it is a snapshot."""


class LaneChanges:
    """Changes of one lane since its last entry. ``waiting``: callbacks, in order of calls."""

    __slots__ = ("_changes", "_done", "_taken", "size_bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: list[OnDone] = []
        self.size_bytes = 0  # at least what the entry will have
        self._changes: list[bytes] = []
        self._taken: dict[tuple[int, int, bool], list[ContiguousTake]] = {}
        self._done: list[range] = []

    def add(self, change: bytes) -> None:
        """Add any change."""
        self._close()
        self._changes.append(change)
        self.size_bytes += len(change)

    def take(self, taken: ContiguousTake) -> None:
        """Add a first take of contiguous messages without a key."""
        alike = (taken.due_unix_ms, taken.now_unix_ms, taken.is_held)
        self._taken.setdefault(alike, []).append(taken)
        self.size_bytes += _TAKE_BYTES

    def done(self, ranges: Sequence[range]) -> None:
        """Add settled messages."""
        self._done += ranges
        self.size_bytes += _DONE_BYTES * len(ranges)

    def entry(self) -> bytes:
        """Return all changes as one entry."""
        self._close()
        return b"".join(self._changes)

    def _close(self) -> None:
        self._changes += map(encode_contiguous_take, self._taken.values())
        self._taken = {}
        if self._done:
            self._changes.append(encode_done_ranges(self._done))
            self._done = []


class Journaled(Protocol):
    """Lane as the journal uses it."""

    lane_id: bytes
    is_ahead: bool
    """Whether an entry was refused: the next one must be a snapshot."""
    is_gone: bool
    """Whether its queue was deleted: another may have its id by now."""
    has_left: bool
    """Whether its shard has left the node: entries are refused, also when it has come back."""

    def snapshot(self) -> bytes:
        """Return a snapshot of the lane."""
        ...


class PendingEntries:
    """Changes gathered of all lanes until they join the coalescer's round.

    That is at the end of the tick, or when the previous round is done. Takes join it too, though
    no caller waits for them: a message whose take is lost in a crash is delivered again at once,
    as if for the first time, while its receiver still works on it.
    """

    def __init__(
        self,
        coalescer: Coalescer,
        append: Callable[[Journaled, bytes, Sequence[OnDone]], None],
    ) -> None:
        self._coalescer = coalescer
        self._append = append
        self._loop = asyncio.get_running_loop()
        self._gathered: dict[Journaled, LaneChanges] = {}
        self._is_due = False
        coalescer.before_seal.append(self._fill)

    def of(self, lane: Journaled) -> LaneChanges:
        """Return the collected changes of a lane, to add the next one."""
        gathered = self._gathered.get(lane)
        if gathered is not None and gathered.size_bytes >= GATHERED_BYTES_MAX:
            self.append()
            gathered = self._gathered.get(lane)  # who was refused meanwhile may have put more
        if gathered is None:
            gathered = self._gathered[lane] = LaneChanges()
        return gathered

    def append_soon(self) -> None:
        """Append the collected entries with the next round."""
        self._is_due = True
        self._coalescer.schedule()

    def append(self) -> None:
        """Add the collected entries to the open round now.

        One lane at a time: who is refused meanwhile may put more, behind what the lane has here.
        """
        self._is_due = False
        gathered = self._gathered
        while gathered:
            lane = next(iter(gathered))
            one = gathered.pop(lane)
            if not lane.is_gone:
                self._append(lane, one.entry(), one.waiting)
                continue
            for on_done in one.waiting:
                self._loop.call_soon(on_done, None)
        self._is_due = False

    def _fill(self) -> None:
        while self._is_due and self._gathered:  # who is refused for want of room may put more
            self.append()


class EntryAssembler:
    """Assembles entries from records: the pieces of a snapshot become one entry."""

    def __init__(self, on_entry: OnEntry) -> None:
        self._on_entry = on_entry
        self._pieces: dict[bytes, list[bytes]] = {}

    def add(self, lane: bytes, value: bytes, headers: Headers) -> None:
        """Take the next record; return the entry that it completes, if any."""
        if not headers:
            self._on_entry(lane, value, False)  # noqa: FBT003 - no snapshot
            return
        name, number = headers[0]
        pieces = self._pieces.pop(lane, [])
        count = int.from_bytes(number or b"", "big")
        if name == PIECE:
            if count == 0:
                self._pieces[lane] = [value]
            elif count == len(pieces):
                self._pieces[lane] = [*pieces, value]
        elif count == 0:
            self._on_entry(lane, value, True)  # noqa: FBT003
        elif count == len(pieces):
            self._on_entry(lane, b"".join((*pieces, value)), True)  # noqa: FBT003
