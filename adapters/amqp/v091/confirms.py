"""Publisher confirms of a channel: which numbers are acknowledged, in as few frames as can be.

Publishes are numbered from 1 on. What was published first is mostly durable first, so that one
``basic.ack`` with ``multiple`` confirms all.
"""

from collections import deque
from typing import NamedTuple


class Confirm(NamedTuple):
    """Confirmation to be sent: a ``basic.ack``, or a ``basic.nack`` where ``is_nack``."""

    delivery_tag: int
    multiple: bool
    is_nack: bool


class Pending:
    """Messages that were published together; ``is_done`` once they are decided."""

    __slots__ = ("count", "first_tag", "is_done", "is_nack")

    def __init__(self, first_tag: int, count: int) -> None:
        self.first_tag = first_tag
        self.count = count
        self.is_done = False
        self.is_nack = False


class Confirms:
    """Confirmations of one channel."""

    __slots__ = ("_next_tag", "_pending")

    def __init__(self) -> None:
        self._next_tag = 1
        self._pending: deque[Pending] = deque()

    @property
    def unconfirmed_count(self) -> int:
        """Number of messages that are not confirmed."""
        return sum(one.count for one in self._pending)

    def publish(self, count: int) -> Pending:
        """Return the entry of messages that are published now."""
        pending = Pending(self._next_tag, count)
        self._next_tag += count
        self._pending.append(pending)
        return pending

    def decide(self, pending: Pending, *, is_nack: bool = False) -> None:
        """Decide on messages: stored in all queues, or refused by one."""
        pending.is_done = True
        pending.is_nack = is_nack

    def take(self) -> list[Confirm]:
        """Return the confirmations that can be sent now.

        All that is decided is confirmed up to the first undecided; what lies behind waits for it.
        A refused message has a ``basic.nack`` of its own or, with those next to it, a multiple.
        """
        found: list[Confirm] = []
        queue = self._pending
        while queue and queue[0].is_done:
            one = queue.popleft()
            count = one.count
            if found and found[-1].is_nack is one.is_nack:
                count += found.pop().multiple + 1
            found.append(Confirm(one.first_tag + one.count - 1, count > 1, one.is_nack))
        return found
