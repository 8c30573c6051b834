"""One call of ``Lane.take``: it takes from key queue after key queue until the room is used."""

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop
from itertools import repeat
from typing import cast

from features.queue import journal
from features.queue.key_queues import KeyQueue
from features.queue.model import BY_TIME, DEAD_MAX, Dead, Policy, Taken, TakenRange
from features.queue.open_messages import OPEN_PER_IN_FLIGHT, OpenMessages
from features.queue.retrying import reason_to_die
from features.queue.states import NO_TIME, Flight, Requeued
from features.queue.unread_ranges import UnreadRanges
from features.ranges import contiguous_ranges

# Without a frame of Python for each: 0.06 us a message where its class costs 0.3.
_new_taken = cast("Callable[[tuple[int, int, int]], Taken]", partial(tuple.__new__, Taken))


class LaneDelivery:
    """Messages taken by a call so far. ``room``: number of messages still wanted.

    Dead messages use no room; the call ends after ``dead_max`` of them.
    """

    __slots__ = (
        "_dead_max",
        "_due_unix_ms",
        "_groups",
        "_holder",
        "_now_unix_ms",
        "_open",
        "_policy",
        "_unread",
        "dead",
        "room",
        "taken",
    )

    def __init__(
        self,
        messages: OpenMessages,
        unread: UnreadRanges,
        policy: Policy,
        *,
        holder: int,
        room: int,
        dead_max: int = DEAD_MAX,
    ) -> None:
        self._open = messages
        self._unread = unread
        self._policy = policy
        self._holder = holder
        self._groups: list[bytes] = []
        self._now_unix_ms = 0
        self._due_unix_ms = 0
        self._dead_max = dead_max
        self.room = room
        self.taken: list[TakenRange] = []
        self.dead: list[Dead] = []

    @property
    def takes_fresh(self) -> bool:
        """Return whether new messages may be handed out: there is room, and not too many open."""
        return self._room_of_fresh > 0

    @property
    def _room_of_fresh(self) -> int:
        open_max = self._policy.in_flight_max * OPEN_PER_IN_FLIGHT
        return min(self.room, open_max - self._open.counted)

    def take_all(self, now_unix_ms: int, lease_ms: int, *, quiet_only: bool = False) -> None:
        """Take from the key queues in their order; ``quiet_only`` leaves out noisy tenants."""
        self._now_unix_ms = now_unix_ms
        self._due_unix_ms = now_unix_ms + lease_ms
        key_queues = self._open.key_queues
        noisy: list[KeyQueue] = []
        used: list[KeyQueue] = []
        while self.room and (key_queue := key_queues.pop(self._now_unix_ms, noisy)) is not None:
            is_fresh = not key_queue.back
            self.take_from(key_queue)
            used.append(key_queue)
            if is_fresh and not self.takes_fresh and not key_queues.has_ranks:
                break  # the others are fresh too
        for key_queue in noisy:
            if self.room and not quiet_only:
                self.take_from(key_queue)
        for key_queue in (*used, *noisy):
            key_queues.offer(key_queue)

    def take_from(self, key_queue: KeyQueue) -> None:
        """Take the messages that a key queue may hand out, while there is room."""
        if key_queue.back and not self._take_back(key_queue):
            return
        if key_queue.ranges and self.room:
            self._take_fresh(key_queue)

    def _take_back(self, key_queue: KeyQueue) -> bool:
        """Take requeued messages; return False when new ones of the key must wait.

        While other messages of the key are in flight, only lower offsets are taken.
        """
        items = self._open.items
        key_queues = self._open.key_queues
        lowest = key_queues.lowest_in_flight(key_queue.key)
        like: Requeued | None = None
        offsets: list[int] = []
        while self.room and (back := key_queues.first_back(key_queue)) is not None:
            if back.due_unix_ms != NO_TIME or (lowest is not None and back.offset > lowest):
                break
            del items[heappop(key_queue.back)]
            if (reason := reason_to_die(self._policy, back)) is not None:
                self._kill(back, reason)
                continue
            self.room -= 1
            if like is not None and not _are_alike(like, back):
                self._launch_again(like, offsets)
                offsets = []
            like = back
            offsets.append(back.offset)
        if like is not None:
            self._launch_again(like, offsets)
        return not key_queue.back and lowest is None

    def _kill(self, back: Requeued, reason: str) -> None:
        self._open.kill(back, reason)
        self.dead.append(Dead(back.offset, back.attempts, reason))
        if len(self.dead) >= self._dead_max:
            self.room = 0

    def _launch_again(self, like: Requeued, offsets: list[int]) -> None:
        attempt = like.attempts + 1
        first_taken_unix_ms = like.first_taken_unix_ms
        flight = Flight(offsets, like.key, attempt, first_taken_unix_ms, like.spared)
        self._launch(flight)
        failed_count = like.attempts - like.spared
        for part in contiguous_ranges(offsets):
            self.taken.append(TakenRange(part, attempt, first_taken_unix_ms, failed_count))

    def _take_fresh(self, key_queue: KeyQueue) -> None:
        room = self._room_of_fresh
        parts: list[range] = []
        ranges = key_queue.ranges
        while room > 0 and ranges:
            unread_range = ranges[0][1]
            left = unread_range.last - unread_range.first + 1
            if left <= 0:
                heappop(ranges)
            elif unread_range.due_unix_ms != NO_TIME:
                break
            else:
                count = min(room, left)
                parts.append(self._unread.use(unread_range, count))
                room -= count
                self.room -= count
        if parts:
            offsets = parts[0] if len(parts) == 1 else [at for part in parts for at in part]
            self._open.note_opened(offsets)
            self._launch(Flight(offsets, key_queue.key, 1, self._now_unix_ms))
            for part in parts if len(parts) == 1 else contiguous_ranges(offsets):
                self.taken.append(TakenRange(part, 1, self._now_unix_ms))

    def _launch(self, flight: Flight) -> None:
        self._open.launch(
            flight,
            holder=self._holder,
            due_unix_ms=self._due_unix_ms,
            now_unix_ms=self._now_unix_ms,
        )
        self._groups.append(
            journal.encode_group(
                flight.attempt, flight.first_taken_unix_ms, flight.key, flight.offsets
            )
        )

    def journal_entry(self) -> bytes | None:
        """Return the journal entry of the call, None when nothing was taken."""
        if not self._groups:
            return None
        return journal.encode_take(
            is_held=self._holder != BY_TIME,
            due_unix_ms=self._due_unix_ms,
            next_offset=self._unread.next_offset,
            groups=self._groups,
        )


def _are_alike(one: Requeued, other: Requeued) -> bool:
    return (
        one.attempts == other.attempts
        and one.first_taken_unix_ms == other.first_taken_unix_ms
        and one.spared == other.spared
    )


def each_taken(ranges: Sequence[TakenRange]) -> list[Taken]:
    """Return the messages of ranges one by one."""
    taken: list[Taken] = []
    for offsets, attempt, first_taken_unix_ms, _ in ranges:
        taken += map(_new_taken, zip(offsets, repeat(attempt), repeat(first_taken_unix_ms)))
    return taken
