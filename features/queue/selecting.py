"""Taking of selected messages ahead of order, for receivers that want some of a queue only.

What is taken leaves no hole: the messages before it stay where they are, for others. The journal
names it as handed out beyond the next offset. Not for ``Order.KEY``, whose messages do not overtake
each other.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from features.queue import journal
from features.queue.model import BY_TIME, Dead, Effects, Policy, TakenRange
from features.queue.open_messages import OPEN_PER_IN_FLIGHT, OpenMessages
from features.queue.retrying import reason_to_die
from features.queue.states import NO_TIME, Flight, Requeued
from features.queue.taking_out import take_out
from features.queue.unread_ranges import UnreadRanges
from features.ranges import RangeSet, contiguous_ranges

AHEAD_MAX: Final = 10_000
"""Ready new messages among which is looked; what is behind waits until others are taken."""
RETURNED_MAX: Final = 1_000
"""Requeued messages among which is looked."""

Alike = tuple[bytes | None, int, int, int]  # key, attempt, first taken, spared


def candidates(
    messages: OpenMessages, unread: UnreadRanges, passed: RangeSet, count: int
) -> list[range]:
    """Return up to ``count`` ready messages to look at: requeued ones, then the lowest new ones.

    ``passed``: those that need no look.
    """
    returned = messages.key_queues.returned(RETURNED_MAX)
    wanted = (offset for offset in sorted(returned) if offset not in passed)
    found = list(contiguous_ranges(islice(wanted, count)))
    count -= sum(map(len, found))
    ahead = AHEAD_MAX
    for unread_range in unread:
        if count <= 0 or ahead <= 0:
            break
        if unread_range.due_unix_ms != NO_TIME:
            continue
        last = min(unread_range.last, unread_range.first + ahead - 1)
        ahead -= last - unread_range.first + 1
        for gap_first, gap_last in passed.gaps(unread_range.first, last):
            end = min(gap_last + 1, gap_first + count)
            if end > gap_first:
                found.append(range(gap_first, end))
                count -= end - gap_first
    return found


class SelectedTake:
    """One take of messages by their offsets."""

    def __init__(  # noqa: PLR0917 - what a take has; made in one place
        self,
        messages: OpenMessages,
        unread: UnreadRanges,
        policy: Policy,
        holder: int,
        now_unix_ms: int,
        due_unix_ms: int,
    ) -> None:
        self._open = messages
        self._unread = unread
        self._policy = policy
        self._holder = holder
        self._now_unix_ms = now_unix_ms
        self._due_unix_ms = due_unix_ms
        self._alike: dict[Alike, list[int]] = {}
        self._room = policy.in_flight_max - messages.in_flight_count
        self._room_of_fresh = policy.in_flight_max * OPEN_PER_IN_FLIGHT - messages.counted
        self.effects = Effects()

    def take(self, offsets: Iterable[int]) -> list[TakenRange]:
        """Hand out what is ready, while there is room; the effects have the dead, too."""
        if self._open.key_queues.is_ordered:
            return []
        fresh: list[int] = []
        keys: dict[bytes | None, None] = {}
        for offset in sorted(offsets):
            if self._room <= 0:
                break
            like = self._find(offset)
            if like is None:
                continue
            key, attempt, _, _ = like
            keys[key] = None
            if attempt == 1:
                fresh.append(offset)
        if fresh:
            self._open.note_opened(fresh)
        taken = [self._launch(like, found) for like, found in self._alike.items()]
        for key in keys:
            self._open.key_queues.offer_key(key)  # it may have nothing left
        self._write()
        return [one for ranges in taken for one in ranges]

    def _find(self, offset: int) -> Alike | None:
        """Take out a message; None when it is not ready. A dead one is in no list."""
        items = self._open.items
        item = items.get(offset)
        if type(item) is Requeued and item.due_unix_ms == NO_TIME:
            like = item.key, item.attempts + 1, item.first_taken_unix_ms, item.spared
            if (reason := reason_to_die(self._policy, item)) is not None:
                self._open.kill(item, reason)
                self.effects.dead.append(Dead(offset, item.attempts, reason))
                self._room_of_fresh += 1  # it is no open message any more
                return like
            del items[offset]
        elif item is None and self._room_of_fresh > 0:
            unread_range = take_out(offset, self._open, self._unread)
            if unread_range is None:
                return None
            self._room_of_fresh -= 1
            like = unread_range.key, 1, self._now_unix_ms, 0
        else:
            return None
        self._room -= 1
        self._alike.setdefault(like, []).append(offset)
        return like

    def _launch(self, like: Alike, offsets: list[int]) -> list[TakenRange]:
        key, attempt, first_taken_unix_ms, spared = like
        flight = Flight(offsets, key, attempt, first_taken_unix_ms, spared)
        self._open.launch(
            flight,
            holder=self._holder,
            due_unix_ms=self._due_unix_ms,
            now_unix_ms=self._now_unix_ms,
        )
        failed_count = attempt - 1 - spared
        return [
            TakenRange(part, attempt, first_taken_unix_ms, failed_count)
            for part in contiguous_ranges(offsets)
        ]

    def _write(self) -> None:
        groups = [
            journal.encode_group(attempt, first_taken_unix_ms, key, offsets)
            for (key, attempt, first_taken_unix_ms, _), offsets in self._alike.items()
        ]
        if groups:
            self.effects.journal = journal.encode_take(
                is_held=self._holder != BY_TIME,
                due_unix_ms=self._due_unix_ms,
                next_offset=self._unread.next_offset,
                groups=groups,
            )
