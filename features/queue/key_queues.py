"""Delivery order: one queue per key, and the queues that have messages ready, in order.

With ``Order.KEY`` a key's queue hands out nothing while messages of the key are in flight, except
requeued messages below all of these offsets; and nothing behind a message that is not visible
yet. Messages without a key have no order.

With ``Order.PRIORITY`` a key is a priority, as one byte; without a key it is 0. The queue of the
highest one goes first, whatever the others have.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

from features.fairness import Fairness
from features.ordering import KeyLocks
from features.queue.model import Order
from features.queue.states import NO_TIME, Flight, Open, Requeued, UnreadRange

_GIVEN_BACK: Final = 0  # requeued messages go before new ones
_FRESH: Final = 1
_STALE_MIN: Final = 64
_PRIORITY_MAX: Final = 255
_BY_RANK = attrgetter("rank")

QueuePosition = tuple[int, int]  # the queue's rank, and _GIVEN_BACK or _FRESH; offset


class KeyQueue:
    """Waiting messages of one key: requeued offsets and unread ranges, each as a heap.

    ``position``: its sort key among the ready queues; None when it is not ready. ``rank``: even,
    the lower the earlier; 0 where queues have no ranks.
    """

    __slots__ = ("back", "key", "number", "position", "ranges", "rank")

    def __init__(self, key: bytes | None, number: int, rank: int) -> None:
        self.key = key
        self.number = number
        self.rank = rank
        self.back: list[int] = []
        self.ranges: list[tuple[int, UnreadRange]] = []
        self.position: QueuePosition | None = None


class KeyQueues:
    """Key queues of a lane. ``items`` are its open messages."""

    __slots__ = (
        "_fairness",
        "_items",
        "_key_queues",
        "_locks",
        "_number",
        "_ready",
        "has_ranks",
        "is_ordered",
    )

    def __init__(
        self,
        order: Order,
        items: Mapping[int, Open],
        locks: KeyLocks[Flight],
        fairness: Fairness | None,
    ) -> None:
        self._items = items
        self._locks = locks
        self._fairness = fairness if order is Order.FAIR else None
        self.is_ordered = order is Order.KEY
        self.has_ranks = order is Order.PRIORITY
        self.clear()

    def clear(self) -> None:
        """Remove all messages."""
        self._key_queues: dict[bytes | None, KeyQueue] = {}
        self._ready: list[tuple[QueuePosition, int, KeyQueue]] = []
        self._number = 0

    def keeps_order(self, key: bytes | None) -> bool:
        """Return whether messages of that key are delivered one after the other."""
        return self.is_ordered and key is not None

    @property
    def only_keyless(self) -> KeyQueue | None:
        """The queue of messages without a key if it is the only one, else None."""
        key_queues = self._key_queues
        return key_queues.get(None) if len(key_queues) == 1 else None

    def add_back(self, back: Requeued) -> None:
        """Add a requeued message; a delayed one only if later messages must wait for it."""
        key_queue = self._key_queue_of(back.key)
        heappush(key_queue.back, back.offset)
        self.offer(key_queue)

    def add_range(self, unread_range: UnreadRange) -> None:
        """Add new messages; delayed ones only if later messages must wait for them."""
        key_queue = self._key_queue_of(unread_range.key)
        heappush(key_queue.ranges, (unread_range.first, unread_range))
        self.offer(key_queue)

    def _key_queue_of(self, key: bytes | None) -> KeyQueue:
        key_queue = self._key_queues.get(key)
        if key_queue is None:
            self._number += 1
            rank = rank_of(key) if self.has_ranks else 0
            key_queue = self._key_queues[key] = KeyQueue(key, self._number, rank)
        return key_queue

    def offer_key(self, key: bytes | None) -> None:
        """Reconsider a key's queue after a lock or a delay has ended."""
        key_queue = self._key_queues.get(key)
        if key_queue is not None:
            self.offer(key_queue)

    def offer_back(self, key: bytes) -> None:
        """Reconsider a key's requeued messages after one of the key has left its flight."""
        key_queue = self._key_queues.get(key)
        if key_queue is not None and key_queue.back:
            self.offer(key_queue)

    def offer(self, key_queue: KeyQueue) -> None:
        """Add a queue to the ready ones if it has a message to hand out."""
        position = self._position_of(key_queue)
        if position is None:
            if not key_queue.back and not key_queue.ranges:
                self._key_queues.pop(key_queue.key, None)
                key_queue.position = None
            return
        if key_queue.position is not None and key_queue.position <= position:
            return
        key_queue.position = position
        ready = self._ready
        heappush(ready, (position, key_queue.number, key_queue))
        if len(ready) > 2 * len(self._key_queues) + _STALE_MIN:
            self._ready = [
                (key_queue.position, key_queue.number, key_queue)
                for key_queue in self._key_queues.values()
                if key_queue.position is not None
            ]
            heapify(self._ready)

    def _position_of(self, key_queue: KeyQueue) -> QueuePosition | None:
        """Return the position of a queue's next message, None when it may hand out nothing."""
        back = self.first_back(key_queue)
        ranges = key_queue.ranges
        while ranges and ranges[0][1].first > ranges[0][1].last:
            heappop(ranges)
        if back is not None:
            lowest = self.lowest_in_flight(key_queue.key)
            may_go = lowest is None or back.offset < lowest
            may_go = may_go and back.due_unix_ms == NO_TIME
            return (key_queue.rank + _GIVEN_BACK, back.offset) if may_go else None
        if (
            self.is_ordered
            and key_queue.key is not None
            and self._locks.is_locked(key_queue.key)
        ):
            return None
        if ranges:
            unread_range = ranges[0][1]
            if unread_range.due_unix_ms == NO_TIME:
                return key_queue.rank + _FRESH, unread_range.first
        return None

    def lowest_in_flight(self, key: bytes | None) -> int | None:
        """Return the lowest offset in flight of a key, None when the key is not locked."""
        if not self.is_ordered or key is None or not self._locks.is_locked(key):
            return None
        items = self._items
        offsets = (
            at
            for flight in self._locks.holders(key)
            for at in flight.offsets
            if items.get(at) is flight
        )
        return min(offsets, default=None)  # none while the last ones of the key are settled

    def first_back(self, key_queue: KeyQueue) -> Requeued | None:
        """Return the lowest requeued message; a delayed one only if later ones must wait for it.

        Stale offsets are removed from the heap: their messages were purged, or settled after
        their lease.
        """
        heap = key_queue.back
        may_be_delayed = self.keeps_order(key_queue.key)
        while heap:
            back = self._items.get(heap[0])
            if type(back) is Requeued and (may_be_delayed or back.due_unix_ms == NO_TIME):
                return back
            heappop(heap)
        return None

    def returned(self, count: int) -> list[int]:
        """Return the first requeued offsets that may go: queue by queue, ascending in each."""
        found: list[int] = []
        if self.has_ranks:  # new messages of one go before returned ones of another
            for key_queue in sorted(self._key_queues.values(), key=_BY_RANK):
                found += self._returned_of(key_queue, count - len(found))
            return found
        seen: dict[KeyQueue, QueuePosition] = {}
        ready = self._ready
        while ready and ready[0][0][0] == _GIVEN_BACK and len(found) < count:
            position, _, key_queue = heappop(ready)
            if key_queue.position == position and key_queue not in seen:
                seen[key_queue] = position
                found += self._returned_of(key_queue, count - len(found))
        for key_queue, position in seen.items():
            heappush(ready, (position, key_queue.number, key_queue))
        return found

    def _returned_of(self, key_queue: KeyQueue, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count and (back := self.first_back(key_queue)) is not None:
            if back.due_unix_ms != NO_TIME:
                break
            heappop(key_queue.back)
            if not found or found[-1] != back.offset:
                found.append(back.offset)
        for offset in found:
            heappush(key_queue.back, offset)
        return found

    def pop(self, now_unix_ms: int, noisy: list[KeyQueue]) -> KeyQueue | None:
        """Take the next quiet queue from the ready ones; ``offer`` it again afterwards.

        Noisy queues before it go to ``noisy``, in order, and must be offered again too.
        """
        while self._ready:
            position, _, key_queue = heappop(self._ready)
            if key_queue.position != position:
                continue
            key_queue.position = None
            if self._position_of(key_queue) != position:
                self.offer(key_queue)  # its next message has changed
            elif self._is_noisy(key_queue.key, now_unix_ms):
                noisy.append(key_queue)
            else:
                return key_queue
        return None

    def _is_noisy(self, key: bytes | None, now_unix_ms: int) -> bool:
        fairness = self._fairness
        return fairness is not None and key is not None and fairness.is_noisy(key, now_unix_ms)


def rank_of(key: bytes | None) -> int:
    r"""Return the rank of a priority: even, and the lower the higher it is.

    >>> rank_of(b"\xff"), rank_of(b"\x01"), rank_of(None)
    (0, 508, 510)
    """
    priority = key[0] if key is not None and len(key) == 1 else 0
    return 2 * (_PRIORITY_MAX - priority)
