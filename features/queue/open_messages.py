"""Open messages of a lane, handed out and not settled: in flight, requeued, or being moved.

The cost is by open message: settled ones leave no state.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from features.fairness import Fairness
from features.ordering import KeyLocks
from features.queue.key_queues import KeyQueues
from features.queue.model import AT_ONCE, BY_TIME, Order, Result
from features.queue.states import NO_TIME, Flight, Moving, Open, Requeued, UnreadRange
from features.queue.timers import Timers

OPEN_PER_IN_FLIGHT: Final = 2
"""Fresh messages go out while fewer are open than so many times those that may be in flight."""

MOVING_FREE_MAX: Final = 100_000
"""Messages being moved away that do not count as open ones: others do not wait for them."""

_DONE_MIN: Final = 1_024  # offsets of done messages below it are left where they are


class OpenMessages:
    """The open messages of a lane by offset (``items``), and all that hangs on them.

    ``in_flight_count`` are with receivers, and ``moving_count`` are being moved away;
    ``delayed_count`` are given back for later.
    """

    __slots__ = (
        "_above",
        "_below",
        "_fairness",
        "_highest",
        "_holders",
        "_locks",
        "delayed_count",
        "in_flight_count",
        "items",
        "key_queues",
        "moving_count",
        "timers",
    )

    def __init__(self, order: Order, fairness: Fairness | None) -> None:
        self.items: dict[int, Open] = {}
        self.timers = Timers()
        self._locks: KeyLocks[Flight] = KeyLocks()
        self._fairness = fairness
        self.key_queues = KeyQueues(order, self.items, self._locks, fairness)
        self.in_flight_count = 0
        self.delayed_count = 0
        self.moving_count = 0
        self._holders: dict[int, set[Flight]] = {}
        # Offsets that were opened: those above all before them, and the others, as a heap.
        self._above: deque[int] = deque()
        self._below: list[int] = []
        self._highest = -1

    def floor(self, next_offset: int) -> int:
        """Return the lowest offset that is open, or ``next_offset`` when that is lower."""
        items = self.items
        above = self._above
        while above and above[0] not in items:
            above.popleft()
        below = self._below
        while below and below[0] not in items:
            heappop(below)
        lowest = min(above[0], next_offset) if above else next_offset
        return min(below[0], lowest) if below else lowest

    @property
    def counted(self) -> int:
        """Number of messages that count as open, beside which new ones may go out. O(1)."""
        return len(self.items) - min(self.moving_count, MOVING_FREE_MAX)

    def may_wake(self, in_flight_max: int) -> bool:
        """Whether the end of a flight lets others go: of its key, or because all was full."""
        return (
            self.key_queues.is_ordered
            or self.in_flight_count >= in_flight_max
            or len(self.items) >= in_flight_max * OPEN_PER_IN_FLIGHT
        )

    def in_flight(self, offset: int, attempt: int) -> tuple[Flight | None, Result]:
        """Return the flight of a delivery id, None with the reason when it is in none."""
        item = self.items.get(offset)
        if type(item) is Flight and item.attempt == attempt:
            return item, Result.DONE
        return None, Result.GONE if item is None else Result.STALE

    def note_opened(self, offsets: Sequence[int]) -> None:
        """Messages become open that were not; ``offsets`` ascend."""
        if offsets[0] > self._highest:
            self._above.extend(offsets)
            self._highest = offsets[-1]
        else:
            for offset in offsets:
                heappush(self._below, offset)
        noted_count = len(self._above) + len(self._below)
        if noted_count > 2 * len(self.items) + _DONE_MIN:
            self._above = deque(sorted(self.items.keys() | set(offsets)))
            self._below = []
            self._highest = max(self._highest, self._above[-1])

    def launch(
        self, flight: Flight, *, holder: int, due_unix_ms: int, now_unix_ms: int
    ) -> None:
        """Messages go out, which are in no other state any more."""
        flight.holder = holder
        flight.taken_unix_ms = now_unix_ms
        flight.lease_end_unix_ms = due_unix_ms
        self.items.update(dict.fromkeys(flight.offsets, flight))
        self.in_flight_count += flight.left
        self.timers.put(flight, due_unix_ms)
        if holder != BY_TIME:
            self._holders.setdefault(holder, set()).add(flight)
        key = flight.key
        if key is not None and self.key_queues.is_ordered:
            self._locks.lock(key, flight)
        if self._fairness is not None:
            self._fairness.took(key, flight.left)

    def land(self, flight: Flight, count: int, now_unix_ms: int) -> None:
        """So many messages of a flight are in flight no more; what they are now is yet to be said.

        They are no items any more, or are about to be something else.
        """
        self.in_flight_count -= count
        flight.left -= count
        if not flight.left:
            if flight.due_unix_ms != NO_TIME:
                self.timers.cancel(flight)
            if flight.holder != BY_TIME:
                self._leave(flight)
        key = flight.key
        if self._fairness is not None:
            held_ms = now_unix_ms - flight.taken_unix_ms
            self._fairness.done(key, count, held_ms, now_unix_ms)
        if key is not None and self.key_queues.is_ordered:
            if not flight.left and self._locks.unlock(key, flight):
                self.key_queues.offer_key(key)
            else:
                self.key_queues.offer_back(key)

    def _leave(self, flight: Flight) -> None:
        flights = self._holders[flight.holder]
        flights.discard(flight)
        if not flights:
            del self._holders[flight.holder]

    def extend(self, flight: Flight, offsets: list[int], due_unix_ms: int) -> None:
        """Set the lease's end of some messages of a flight, or of all."""
        if len(offsets) == flight.left:
            self.timers.put(flight, due_unix_ms)
            flight.lease_end_unix_ms = due_unix_ms
            return
        other = Flight(
            offsets, flight.key, flight.attempt, flight.first_taken_unix_ms, flight.spared
        )
        other.holder = flight.holder
        other.taken_unix_ms = flight.taken_unix_ms
        other.lease_end_unix_ms = due_unix_ms
        flight.left -= other.left
        self.items.update(dict.fromkeys(offsets, other))
        self.timers.put(other, due_unix_ms)
        if other.holder != BY_TIME:
            self._holders[other.holder].add(other)
        if other.key is not None and self.key_queues.is_ordered:
            self._locks.lock(other.key, other)

    def flights_of(self, holder: int) -> list[Flight]:
        """Return what a holder has."""
        return list(self._holders.get(holder, ()))

    def members(self, flight: Flight) -> list[int]:
        """Return the offsets that are still part of a flight."""
        items = self.items
        return [offset for offset in flight.offsets if items.get(offset) is flight]

    def requeue(self, back: Requeued, due_unix_ms: int) -> None:
        """A message waits to be handed out again, from a time on or ``AT_ONCE``."""
        self.items[back.offset] = back
        if due_unix_ms == AT_ONCE:
            self.key_queues.add_back(back)
            return
        self.delayed_count += 1
        self.timers.put(back, due_unix_ms)
        if self.key_queues.keeps_order(back.key):
            self.key_queues.add_back(back)

    def ripen(self, back: Requeued) -> None:
        """The time of a message that was given back for later has come."""
        self.delayed_count -= 1
        if self.key_queues.keeps_order(back.key):
            self.key_queues.offer_key(back.key)
        else:
            self.key_queues.add_back(back)

    def add_ranges(self, added: Sequence[UnreadRange]) -> bool:
        """Add ranges; return whether one of them is visible."""
        is_visible = False
        for unread_range in added:
            self.add_range(unread_range)
            is_visible = is_visible or unread_range.due_unix_ms == NO_TIME
        return is_visible

    def add_range(self, unread_range: UnreadRange) -> None:
        """Messages that were never handed out wait for their turn, or for their time first."""
        is_delayed = unread_range.due_unix_ms != NO_TIME
        if is_delayed:
            self.timers.add(unread_range)
        if not is_delayed or self.key_queues.keeps_order(unread_range.key):
            self.key_queues.add_range(unread_range)

    def kill(self, back: Requeued, reason: str) -> Moving:
        """A message that was given back, or is about to be, is to be moved away."""
        dying = self.items[back.offset] = Moving(back, reason)
        self.moving_count += 1
        return dying

    def waiting_before(self, offset: int) -> list[int]:
        """Return what of the messages before an offset is neither out nor moving. O(open).

        It was given back, or could not be moved to the dead letters and waits to be tried again.
        """
        return [at for at, item in self.items.items() if at < offset and _waits(item)]

    def remove(self, offset: int, now_unix_ms: int) -> bool:
        """A message is done, in whatever state it is; False when it was not open."""
        item = self.items.pop(offset, None)
        if item is None:
            return False
        if isinstance(item, Flight):
            self.land(item, 1, now_unix_ms)
            return True
        is_timed = item.due_unix_ms != NO_TIME
        if isinstance(item, Moving):
            self.moving_count -= 1
        else:
            self.delayed_count -= is_timed
        if is_timed:
            self.timers.cancel(item)
        if self.key_queues.keeps_order(item.key):
            self.key_queues.offer_key(item.key)
        return True

    def move_to(self, other: "OpenMessages", now_unix_ms: int) -> None:
        """Hand all messages over to one that is empty and of another order."""
        for flight in {item for item in self.items.values() if isinstance(item, Flight)}:
            offsets = self.members(flight)
            again = Flight(
                offsets, flight.key, flight.attempt, flight.first_taken_unix_ms, flight.spared
            )
            other.launch(
                again,
                holder=flight.holder,
                due_unix_ms=flight.due_unix_ms,
                now_unix_ms=flight.taken_unix_ms,
            )
        retried: list[tuple[Moving, int]] = []
        for item in self.items.values():
            due_unix_ms = item.due_unix_ms
            if isinstance(item, Requeued):
                back = Requeued(
                    item.offset,
                    item.key,
                    item.attempts,
                    item.first_taken_unix_ms,
                    item.spared,
                )
                other.requeue(back, AT_ONCE if due_unix_ms == NO_TIME else due_unix_ms)
            elif isinstance(item, Moving):
                other.items[item.offset] = item
                other.moving_count += 1
                if due_unix_ms != NO_TIME:
                    retried.append((item, due_unix_ms))
        if other.items:
            other.note_opened(sorted(other.items))
        self.clear(now_unix_ms)
        for item, due_unix_ms in retried:  # only now: what is cleared has no time any more
            other.timers.put(item, due_unix_ms)

    def clear(self, now_unix_ms: int) -> None:
        """Forget all messages."""
        for offset in list(self.items):
            self.remove(offset, now_unix_ms)
        self.key_queues.clear()
        self.timers.clear()
        self._above.clear()
        self._below = []
        self._highest = -1


def _waits(item: Open) -> bool:
    if isinstance(item, Moving):
        return item.due_unix_ms != NO_TIME  # else it is being moved
    return isinstance(item, Requeued)
