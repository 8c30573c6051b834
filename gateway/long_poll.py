"""A waiter for new data in some partitions, as a long poll needs it."""

import asyncio
from collections.abc import Callable, Sequence

from gateway.partition import Partition, Write


class Waiter:
    """Waiter that is ready once ``bytes_min`` more bytes are readable in any of some partitions.

    ``on_ready`` runs once, in the loop's next turn, so that all appends of a sync group are
    seen together; also when one of the topics is deleted. One waiter serves a whole fetch;
    ``cancel`` may be called at any time, and again.
    """

    __slots__ = ("_bytes_missing", "_loop", "_on_ready", "_partitions", "reads_uncommitted")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Sequence[Partition],
        *,
        bytes_min: int,
        on_ready: Callable[[], None],
        reads_uncommitted: bool = False,
    ) -> None:
        self.reads_uncommitted = reads_uncommitted
        self._loop = loop
        self._partitions = partitions
        self._bytes_missing = bytes_min
        self._on_ready: Callable[[], None] | None = on_ready
        for partition in partitions:
            partition.waiters.add(self)

    def on_appended(self, write: Write) -> None:
        """See ``gateway.partition.Appended``."""
        self._bytes_missing -= write.size_bytes
        if self._bytes_missing <= 0:
            self.on_gone()

    def on_truncated(self) -> None:
        """See ``gateway.partition.Appended``: nothing becomes readable."""

    def on_stable(self) -> None:
        """See ``gateway.partition.Appended``: there may be enough now; the fetch reads again."""
        self.on_gone()

    @property
    def takes_pending(self) -> bool:
        """See ``Appended``: who waits asks the next owner."""
        return False

    def on_gone(self) -> None:
        """See ``gateway.partition.Appended``."""
        self._leave()
        self._loop.call_soon(self._fire)

    def cancel(self) -> None:
        """Stop waiting; ``on_ready`` will not run any more."""
        self._on_ready = None
        self._leave()

    def _fire(self) -> None:
        on_ready, self._on_ready = self._on_ready, None
        if on_ready is not None:
            on_ready()

    def _leave(self) -> None:
        for partition in self._partitions:
            partition.waiters.discard(self)
        self._partitions = ()
