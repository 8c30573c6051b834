"""Turns of a queue's consumers: by priority, and in a ring among those of one priority.

A member is ready while it may get messages. A ready member of a higher priority goes before all
of lower ones; among equals the one that was served longest ago is next. Nothing here looks at
members that are not ready.
"""

from bisect import insort
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Member = TypeVar("Member", bound=Hashable)


class ConsumerRing(Generic[Member]):
    """Ready members. All calls are O(1), but for the number of priorities in use."""

    __slots__ = ("_levels", "_priorities")

    def __init__(self) -> None:
        self._levels: dict[int, OrderedDict[Member, None]] = {}
        self._priorities: list[int] = []  # of ready members, negative, the highest first

    def set_ready(self, member: Member, priority: int, *, is_ready: bool) -> None:
        """Add a member behind the others of its priority, or take it out."""
        level = self._levels.get(priority)
        if is_ready:
            if level is None:
                level = self._levels[priority] = OrderedDict()
                insort(self._priorities, -priority)
            level.setdefault(member)
        elif level is not None and member in level:
            del level[member]
            if not level:
                del self._levels[priority]
                self._priorities.remove(-priority)

    def first(self) -> Member | None:
        """Return the member whose turn it is, None when nobody is ready."""
        if not self._priorities:
            return None
        return next(iter(self._levels[-self._priorities[0]]))

    @property
    def first_count(self) -> int:
        """Number of ready members of the highest priority."""
        return len(self._levels[-self._priorities[0]]) if self._priorities else 0

    def served(self, member: Member, priority: int) -> None:
        """Put a member that was served behind the others of its priority, if it is ready."""
        level = self._levels.get(priority)
        if level is not None and member in level:
            level.move_to_end(member)


def share_of(ready_count: int, member_count: int, *, share_max: int) -> int:
    """Return how many of the ready messages one of several members gets in a turn.

    >>> share_of(10, 4, share_max=100), share_of(0, 4, share_max=100), share_of(9, 1, share_max=5)
    (3, 1, 5)
    """
    return max(1, min(-(-ready_count // max(member_count, 1)), share_max))
