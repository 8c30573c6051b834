"""A hierarchical timing wheel: numbers by the millisecond in which they are due.

Level 0 has a bucket per millisecond, each level above buckets 256 times as wide; six levels
reach 8,900 years. A bucket is bytes, 16 for each number, so that a million that wait cost 16 MB
and no objects. A bucket of a higher level is dealt out to the one below while the bucket before
it runs, a bounded number at a time, so that no moment has to bear all of it (Varghese and
Lauck, "Hashed and Hierarchical Timing Wheels", scheme 7).
"""

import heapq
from bisect import bisect_left, bisect_right
from itertools import groupby
from operator import itemgetter
from typing import Final

from features.delay.sorted_numbers import NUMBER, SortedNumbers

LEVEL_COUNT: Final = 6
SLOT_BITS: Final = 8
WINDOW_MS: Final = 1 << SLOT_BITS  # what a bucket of level 1 spans
DUE_UNIX_MS_MAX: Final = (1 << LEVEL_COUNT * SLOT_BITS) - 1

_OVERDUE_LEVEL: Final = 2  # where long overdue numbers go: few buckets, whatever their times
_OVERDUE_MS: Final = 1 << SLOT_BITS * _OVERDUE_LEVEL
NUMBER_BYTES: Final = NUMBER.size
_TIME_BYTES: Final = 8
_NUMBER_MAX: Final = (1 << 64) - 1
GROUP_COUNT: Final = 4_096  # more of one millisecond are not sorted in one go: 3 ms
PEEK_COUNT_MAX: Final = 65_536  # to unpack them all is 5 ms


class TimingWheel:
    """Gives numbers back in the order of their times, and of equal times in that of numbers.

    The time is handed in and never goes back here. Numbers cannot be removed: who takes them
    knows which of them still count.
    """

    def __init__(self, now_unix_ms: int) -> None:
        self._now_unix_ms = now_unix_ms
        self._buckets: list[dict[int, bytearray]] = [{} for _ in range(LEVEL_COUNT)]
        self._slots: list[list[int]] = [[] for _ in range(LEVEL_COUNT)]  # heaps of the keys
        self._groups: dict[
            int, SortedNumbers
        ] = {}  # by slot of level 0: they come before its bucket
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def insert(self, due_unix_ms: int, number: int) -> None:
        """Keep a number until ``due_unix_ms``, 0 to ``DUE_UNIX_MS_MAX``.

        One whose time has passed comes after what was due until now.
        """
        self._count += 1
        now_unix_ms = self._now_unix_ms
        if due_unix_ms > now_unix_ms:
            level = _level_of(due_unix_ms, now_unix_ms)
            self._put(level, due_unix_ms >> SLOT_BITS * level, due_unix_ms, number)
        elif now_unix_ms - due_unix_ms >= _OVERDUE_MS:
            slot = due_unix_ms >> SLOT_BITS * _OVERDUE_LEVEL
            self._put(_OVERDUE_LEVEL, slot, due_unix_ms, number)
        else:
            self._put(0, now_unix_ms, due_unix_ms, number)

    def advance(self, now_unix_ms: int, *, moves_max: int) -> bool:
        """Let time pass, also by years; deal out or sort at most ``moves_max`` numbers.

        True when there is more to do already.
        """
        self._now_unix_ms = now_unix_ms = max(now_unix_ms, self._now_unix_ms)
        moves_left = moves_max
        while (opened := self._next_opened(now_unix_ms)) is not None:
            if moves_left <= 0:
                return True
            moves_left -= self._deal(*opened, moves_left)
        return self._sort_group(moves_left)

    def take_due(
        self, count_max: int, *, until_unix_ms: int | None = None
    ) -> list[tuple[int, int]]:
        """Take at most ``count_max`` (due time, number) whose time has come, in order.

        Or what is due until ``until_unix_ms``. What ``advance`` still has to deal out or to sort is
        not there yet: of what is ahead, a window is there for sure.
        """
        taken: list[tuple[int, int]] = []
        if until_unix_ms is None:
            until_unix_ms = self._now_unix_ms
        buckets, slots = self._buckets[0], self._slots[0]
        while slots and slots[0] <= until_unix_ms and not self._is_blocked(slots[0]):
            bucket = buckets[slots[0]]
            room = count_max - len(taken)
            if room <= 0:
                break
            group = self._groups.get(slots[0])
            if group is not None and group.is_ready:
                taken += group.take(room)
                if not group:
                    self._end_group(slots[0])
                continue
            if group is not None or len(bucket) > GROUP_COUNT * NUMBER_BYTES:
                break
            numbers = sorted(NUMBER.iter_unpack(bucket))
            if len(numbers) <= room:
                del buckets[heapq.heappop(slots)]
            else:
                buckets[slots[0]] = _packed(numbers[room:])
                del numbers[room:]
            taken += numbers
        self._count -= len(taken)
        return taken

    def put_back(self, numbers: list[tuple[int, int]]) -> None:
        """Put back the last ones that were taken, before anything else is done."""
        self._count += len(numbers)
        slots = self._slots[0]
        first = min(numbers[0][0], slots[0]) if slots else numbers[0][0]
        at = bisect_right(numbers, (self._now_unix_ms, _NUMBER_MAX))
        if at:  # all that is due comes first, in whatever order of slots
            self._put_into(first, numbers[:at])
        for due_unix_ms, some in groupby(numbers[at:], itemgetter(0)):
            self._put_into(due_unix_ms, list(some))

    def _put_into(self, slot: int, numbers: list[tuple[int, int]]) -> None:
        group = self._groups.get(slot)
        if group is not None:
            group.add(bytes(_packed(numbers)))
            return
        bucket = self._buckets[0].get(slot)
        if bucket is None:
            bucket = self._buckets[0][slot] = bytearray()
            heapq.heappush(self._slots[0], slot)
        bucket += _packed(numbers)

    def peek(self, window: int) -> list[int] | None:
        """Return the numbers due within ``WINDOW_MS`` from ``window * WINDOW_MS`` on, unsorted.

        Only those that stand in the two lowest levels; that is all within a minute from now.
        None when they are more than ``PEEK_COUNT_MAX``.
        """
        first = window << SLOT_BITS
        slots = range(first, first + WINDOW_MS)
        found = [self._buckets[1].get(window, b"")]
        found += [self._buckets[0].get(slot, b"") for slot in slots]
        groups = [group for slot, group in self._groups.items() if slot in slots]
        size_bytes = sum(map(len, found)) + sum(group.size_bytes for group in groups)
        if size_bytes > PEEK_COUNT_MAX * NUMBER_BYTES:
            return None
        numbers = [number for one in found for _, number in NUMBER.iter_unpack(one)]
        return numbers + [number for group in groups for number in group.numbers()]

    @property
    def next_due_unix_ms(self) -> int | None:
        """Time of the first number at level 0; None when that level is empty."""
        return self._slots[0][0] if self._slots[0] else None

    @property
    def next_unix_ms(self) -> int | None:
        """Time of the next work: a number is due, or a bucket is to be dealt out."""
        times = [slots[0] for slots in self._slots[:1] if slots]
        times += [
            _opens_at(level, slots[0])
            for level, slots in enumerate(self._slots)
            if level and slots
        ]
        return min(times, default=None)

    def _put(self, level: int, slot: int, due_unix_ms: int, number: int) -> None:
        bucket = self._buckets[level].get(slot)
        if bucket is None:
            bucket = self._buckets[level][slot] = bytearray()
            heapq.heappush(self._slots[level], slot)
        bucket += NUMBER.pack(due_unix_ms, number)

    def _next_opened(self, now_unix_ms: int) -> tuple[int, int] | None:
        """Return (level, slot) of the first bucket that is to be dealt out, the widest first."""
        found: tuple[int, int] | None = None
        first_ms = -1
        for level in range(LEVEL_COUNT - 1, 0, -1):
            slots = self._slots[level]
            if not slots or _opens_at(level, slots[0]) > now_unix_ms:
                continue
            start_ms = slots[0] << SLOT_BITS * level
            if found is None or start_ms < first_ms:
                found, first_ms = (level, slots[0]), start_ms
        return found

    def _sort_group(self, moves_max: int) -> bool:
        """Sort at most ``moves_max`` of what comes first, where that is many; True: not all.

        Before it is due, when there is time for it.
        """
        slots = self._slots[0]
        if not slots or self._is_blocked(slots[0]):
            return False
        slot = slots[0]
        bucket = self._buckets[0][slot]
        group = self._groups.get(slot)
        if group is None and len(bucket) > GROUP_COUNT * NUMBER_BYTES:
            group = self._groups[slot] = SortedNumbers()
        if group is None or group.is_ready:
            return False
        start = max(len(bucket) - moves_max * NUMBER_BYTES, 0)
        if start < len(bucket):
            group.add(bytes(memoryview(bucket)[start:]))
            del bucket[start:]
        group.is_ready = not bucket
        return not group.is_ready

    def _end_group(self, slot: int) -> None:
        """All of a group was taken; what came to its millisecond meanwhile is its bucket's."""
        del self._groups[slot]
        if not self._buckets[0][slot]:
            del self._buckets[0][slot]
            heapq.heappop(self._slots[0])

    def _is_blocked(self, due_unix_ms: int) -> bool:
        """Whether a bucket that is not dealt out yet may hold something due before, or then."""
        return any(
            slots and slots[0] << SLOT_BITS * level <= due_unix_ms
            for level, slots in enumerate(self._slots)
            if level
        )

    def _deal(self, level: int, slot: int, moves_max: int) -> int:
        """Move the last numbers of a bucket to where they stand now; return how many."""
        bucket = self._buckets[level][slot]
        start = max(len(bucket) - moves_max * NUMBER_BYTES, 0)
        part = bytes(memoryview(bucket)[start:])
        if start:
            del bucket[start:]
        else:
            del self._buckets[level][slot]
            heapq.heappop(self._slots[level])
        # All go down one level: few buckets at a time, whatever their times are. Sorted, what
        # is of one bucket lies together: 0.3 us each, against 0.6 us one by one.
        below = level - 1
        buckets, slots = self._buckets[below], self._slots[below]
        numbers = sorted(
            [part[at : at + NUMBER_BYTES] for at in range(0, len(part), NUMBER_BYTES)]
        )
        at = 0
        while at < len(numbers):
            below_slot = int.from_bytes(numbers[at][:_TIME_BYTES], "big") >> SLOT_BITS * below
            end_ms = (below_slot + 1) << SLOT_BITS * below
            end = bisect_left(numbers, end_ms.to_bytes(_TIME_BYTES, "big"), lo=at)
            if below_slot not in buckets:
                buckets[below_slot] = bytearray()
                heapq.heappush(slots, below_slot)
            buckets[below_slot] += b"".join(numbers[at:end])
            at = end
        return len(part) // NUMBER_BYTES


def _level_of(due_unix_ms: int, now_unix_ms: int) -> int:
    """Return the level of a time: the bucket above it is this or the next one to run."""
    for level in range(LEVEL_COUNT - 1):
        bits = SLOT_BITS * (level + 1)
        if due_unix_ms >> bits <= (now_unix_ms >> bits) + 1:
            return level
    return LEVEL_COUNT - 1


def _opens_at(level: int, slot: int) -> int:
    """Return when a bucket is to be dealt out: when the one before it begins to run."""
    return slot - 1 << SLOT_BITS * level


def _packed(numbers: list[tuple[int, int]]) -> bytearray:
    return bytearray(b"".join([NUMBER.pack(*one) for one in numbers]))
