"""Purges of a queue: their end, and the end offsets of the last one, kept with the queue's row.

The journal forgets them once nothing before them is left. State rebuilt from the log after a
start, as the deduplication of FIFO queues, must leave out purged messages.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.errors import StorageUnavailable
from gateway.storage import OnDone

PURGED: Final = "queue.purged"


def parse_purged(attributes: Mapping[str, str]) -> tuple[int, ...]:
    """Return the offsets by partition number; empty for a queue that was never purged.

    >>> parse_purged({"queue.purged": "12,0"})
    (12, 0)
    """
    text = attributes.get(PURGED, "")
    return tuple(int(end) for end in text.split(",")) if text else ()


def format_purged(ends: Sequence[int]) -> str:
    """Return the stored form of the offsets."""
    return ",".join(map(str, ends))


class PurgeGate:
    """Calls ``on_done`` once after ``count`` results, with the last error."""

    __slots__ = ("_error", "_left", "_on_done")

    def __init__(self, count: int, on_done: OnDone) -> None:
        self._left = count
        self._on_done = on_done
        self._error: StorageUnavailable | None = None

    def one(self, error: StorageUnavailable | None) -> None:
        """Take one result."""
        self._error = error or self._error
        self._left -= 1
        if not self._left:
            self._on_done(self._error)
