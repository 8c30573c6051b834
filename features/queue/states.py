"""States of a lane's messages: unread, in flight, requeued, or being moved.

Each may have a due time (``features.queue.timers``).
"""

from collections.abc import Sequence
from typing import Final

NO_TIME: Final = -1
"""Due time of an item without a timer."""


class Timed:
    """Something that ``Timers`` may hold. ``due_unix_ms`` is theirs to set."""

    __slots__ = ("due_unix_ms",)

    def __init__(self) -> None:
        self.due_unix_ms = NO_TIME


class UnreadRange(Timed):
    """Contiguous messages of one key, never handed out; due: when they become visible.

    Messages are taken from its front: ``first`` moves, and beyond ``last`` the range is empty.
    """

    __slots__ = ("first", "key", "last")

    def __init__(self, first: int, last: int, key: bytes | None) -> None:
        super().__init__()
        self.first = first
        self.last = last
        self.key = key


class Flight(Timed):
    """Messages of one key that went out together, the same number of times; due: lease's end.

    ``offsets`` are those it began with; a message belongs to it as long as the lane says so.
    ``left`` counts those. The lease's end is kept here too for when it is not due any more.
    ``spared``: earlier deliveries that have not failed.
    """

    __slots__ = (
        "attempt",
        "first_taken_unix_ms",
        "holder",
        "key",
        "lease_end_unix_ms",
        "left",
        "offsets",
        "spared",
        "taken_unix_ms",
    )

    def __init__(
        self,
        offsets: Sequence[int],
        key: bytes | None,
        attempt: int,
        first_taken_unix_ms: int,
        spared: int = 0,
    ) -> None:
        self.due_unix_ms = NO_TIME  # as the base class does, without the call
        self.offsets = offsets
        self.left = len(offsets)
        self.key = key
        self.attempt = attempt
        self.first_taken_unix_ms = first_taken_unix_ms
        self.taken_unix_ms = first_taken_unix_ms
        self.lease_end_unix_ms = NO_TIME
        self.holder = 0
        self.spared = spared


class Requeued(Timed):
    """A requeued message; due: when it becomes visible, unless it is.

    ``attempts``: deliveries so far; ``spared`` of them have not failed.
    """

    __slots__ = ("attempts", "first_taken_unix_ms", "key", "offset", "spared")

    def __init__(
        self,
        offset: int,
        key: bytes | None,
        attempts: int,
        first_taken_unix_ms: int,
        spared: int = 0,
    ) -> None:
        super().__init__()
        self.offset = offset
        self.key = key
        self.attempts = attempts
        self.first_taken_unix_ms = first_taken_unix_ms
        self.spared = spared


class Moving(Timed):
    """A message being moved to the dead letters; due: when the move is retried."""

    __slots__ = ("attempts", "first_taken_unix_ms", "key", "offset", "reason", "spared")

    def __init__(self, back: Requeued, reason: str) -> None:
        super().__init__()
        self.offset = back.offset
        self.key = back.key
        self.attempts = back.attempts
        self.first_taken_unix_ms = back.first_taken_unix_ms
        self.spared = back.spared
        self.reason = reason


Open = Flight | Requeued | Moving
