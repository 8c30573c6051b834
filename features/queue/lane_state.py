"""State of a lane: its positions and counts, and what becomes of a changed policy."""

from collections.abc import Iterator

from features.fairness import Fairness
from features.queue.acking import Acking
from features.queue.browsing import State, browse, browse_there, count, ready, ready_ranges
from features.queue.model import Counts, Order, Policy
from features.queue.open_messages import OpenMessages
from features.queue.selecting import candidates
from features.queue.unread_ranges import UnreadRanges
from features.ranges import RangeSet


class LaneState:
    """Messages of a lane by state, as ``Lane`` changes them."""

    def __init__(
        self, policy: Policy, next_offset: int, *, fairness: Fairness | None = None
    ) -> None:
        self._policy = policy
        self._fairness = fairness
        self._unread = UnreadRanges(next_offset)
        self._open = self._new_open()
        self._acking = Acking(self._open, self._unread)
        self._now_unix_ms = 0  # the latest time given
        self._is_looked_at = False  # ready messages are not enough for somebody: new ones wake

    def _new_open(self) -> OpenMessages:
        is_fair = self._policy.order is Order.FAIR
        return OpenMessages(self._policy.order, self._fairness if is_fair else None)

    @property
    def policy(self) -> Policy:
        """The settings of the queue."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        """Change it. With another order ``fed_end`` goes back to ``next_offset``: feed anew."""
        before, self._policy = self._policy, policy
        if policy.order is not before.order:
            self.unfeed()

    def unfeed(self) -> None:
        """Forget what was never handed out: ``fed_end`` goes back to ``next_offset``."""
        self._unread.unfeed()
        messages = self._new_open()
        self._open.move_to(messages, self._now_unix_ms)
        self._open = self._acking.messages = messages

    @property
    def next_offset(self) -> int:
        """The first offset that was never handed out."""
        return self._unread.next_offset

    @property
    def fed_end(self) -> int:
        """End of the offsets fed to the lane: the next run begins here or above."""
        return self._unread.fed_end

    @property
    def wants_more(self) -> bool:
        """Whether it must be fed more: later messages may go before those it knows."""
        if self._policy.order is Order.PRIORITY:
            return self.has_room
        return self._unread.wants_more(self._policy.lookahead)

    @property
    def has_room(self) -> bool:
        """Whether it may be fed more, where feeding costs nothing."""
        return self._unread.range_count < self._policy.lookahead

    @property
    def floor(self) -> int:
        """The lowest offset that is still needed. O(1), amortised."""
        return self._open.floor(self._unread.next_offset)

    @property
    def open_count(self) -> int:
        """Number of messages handed out and not settled."""
        return len(self._open.items)

    @property
    def in_flight_count(self) -> int:
        """Number of messages that are with receivers. O(1)."""
        return self._open.in_flight_count

    @property
    def moving_count(self) -> int:
        """Number of messages that are being moved away, or wait for another try. O(1)."""
        return self._open.moving_count

    @property
    def returned_count(self) -> int:
        """Number of requeued messages, visible or delayed. O(1)."""
        return len(self._open.items) - self._open.in_flight_count - self._open.moving_count

    @property
    def next_due_unix_ms(self) -> int | None:
        """Time of the next call of ``tick``, unless another call changes it."""
        return self._open.timers.next_due_unix_ms

    @property
    def parts_max(self) -> int:
        """Most parts that ``ready_ranges`` has: unread ranges and requeued messages. O(1)."""
        return self.returned_count + self._unread.range_count

    def browse(self, start_offset: int, messages_max: int) -> list[State]:
        """Return states of so many offsets: ready (or not fed), in_flight, delayed or done."""
        return browse(self._open.items, self._unread, start_offset, messages_max)

    def browse_there(self, start_offset: int, end_offset: int, most: int) -> list[State]:
        """Return states as ``browse``, of the first ``most`` that are not done."""
        return browse_there(self._open.items, self._unread, start_offset, end_offset, most)

    def is_done(self, first: int, last: int) -> bool:
        """Return whether all messages from ``first`` to ``last`` were handed out and are done."""
        is_out = last < self._unread.next_offset
        return is_out and self._open.items.keys().isdisjoint(range(first, last + 1))

    def returned(self, count: int) -> list[int]:
        """Return the requeued messages that ``take`` hands out next, key by key."""
        return self._open.key_queues.returned(count)

    def ready(self, count: int) -> list[int]:
        """Return the first ready messages: requeued ones, then new ones, the lowest first."""
        return ready(self._open, self._unread, count)

    def ready_ranges(self, end_offset: int) -> Iterator[tuple[int, int]]:
        """Yield the ready messages below an offset: first offset, and end."""
        return ready_ranges(self._open, self._unread, end_offset)

    def candidates(self, passed: RangeSet, count: int) -> list[range]:
        """Return ready messages that are not in ``passed``, to look at: see ``selecting``.

        From now on every feed wakes.
        """
        self._is_looked_at = True
        return candidates(self._open, self._unread, passed, count)

    def counts(self, end_offset: int) -> Counts:
        """Return the messages by state in a partition that ends at ``end_offset``. O(1).

        Compacted messages count until the lane is fed beyond them.
        """
        return count(self._open, self._unread, end_offset)
