"""Journal of queues in memory: nothing is written, they end with the process."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from features.queue.model import ContiguousTake
from gateway.coalescer import Part
from gateway.queues.journal_entries import Journaled
from gateway.storage import OnDone


class LaneJournal(Protocol):
    """Journal as a lane uses it: ``gateway.queues.journal.QueueJournal``, or none."""

    def put(self, lane: Journaled, entry: bytes, on_done: OnDone | None = None) -> None:
        """Append an entry; ``on_done`` runs once it is durable, never before this returns."""
        ...

    def put_taken(self, lane: Journaled, taken: ContiguousTake) -> None:
        """Append a take of contiguous messages; there is no callback."""
        ...

    def put_done(
        self, lane: Journaled, ranges: Sequence[range], on_done: OnDone | None = None
    ) -> None:
        """Append settled messages; otherwise as ``put``."""
        ...

    def parts(self, lane: Journaled, entry: bytes) -> list[Part]:
        """Return an entry as parts of an append that holds more."""
        ...

    def seal(self) -> None:
        """Append pending entries now instead of at the end of the tick."""
        ...


class NoJournal:
    """See ``LaneJournal``: callbacks run in a later turn of the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def put(self, lane: Journaled, entry: bytes, on_done: OnDone | None = None) -> None:
        """See ``LaneJournal``."""
        del entry
        lane.is_ahead = False
        self._tell(on_done)

    def put_taken(self, lane: Journaled, taken: ContiguousTake) -> None:
        """See ``LaneJournal``."""

    def put_done(
        self, lane: Journaled, ranges: Sequence[range], on_done: OnDone | None = None
    ) -> None:
        """See ``LaneJournal``."""
        del lane, ranges
        self._tell(on_done)

    def parts(self, lane: Journaled, entry: bytes) -> list[Part]:
        """See ``LaneJournal``."""
        del lane, entry
        return []

    def seal(self) -> None:
        """See ``LaneJournal``."""

    def _tell(self, on_done: OnDone | None) -> None:
        if on_done is not None:
            self._loop.call_soon(on_done, None)
