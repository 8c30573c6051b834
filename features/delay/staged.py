"""Messages due soon, taken from the wheel and read, in order of delivery.

Chunks come in order and are queued. A message that is put later but is due before queued ones
is in a heap beside them. A message taken from the wheel that is not yet read holds back all
messages after it.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import Final

from features.delay.message_locations import MessageLocation
from features.delay.state import Taken

ITEM_OVERHEAD_BYTES: Final = 350  # of the tuples and what else is around a message

# Due unix ms, number, destination (topic uuid and partition), timestamp, and the record from its
# key on. A plain tuple, one for each message.
Item = tuple[int, int, bytes, int, bytes]

_TAIL: Final = 4


class Staged:
    """Messages by due time and number, from when they are taken until they are appended.

    ``size_bytes``: what they take in memory.
    """

    def __init__(self) -> None:
        self._runs: deque[list[Item]] = deque()  # sorted, each and one after the other
        self._late: list[Item] = []  # a heap
        self._unread: dict[int, int] = {}  # number to due time
        self._locations: dict[int, MessageLocation] = {}  # of all of them
        self._withdrawn: set[int] = set()  # what lies in a run or in the heap, and is not here
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._locations)

    def location_of(self, number: int) -> MessageLocation | None:
        """Return where a message lies in the log that is here, None when it is not."""
        return self._locations.get(number)

    @property
    def next_unix_ms(self) -> int | None:
        """Due time of the first message that nothing holds back; None when there is none."""
        firsts = [*self._late[:1], *(run[0] for run in islice(self._runs, 1))]
        first = min(firsts, default=None)
        if first is None or (self._unread and first[:2] > self._first_unread()):
            return None
        return first[0]

    @property
    def unread_unix_ms(self) -> int | None:
        """Due time of the first message without a body; it holds back all messages after it."""
        return min(self._unread.values(), default=None)

    def _first_unread(self) -> tuple[int, int]:
        return min((due, number) for number, due in self._unread.items())

    # --- in

    def hold(self, taken: Iterable[Taken]) -> None:
        """Keep what has no body yet."""
        for due_unix_ms, number, location in taken:
            if number not in self._unread:
                self.size_bytes += location[1] + ITEM_OVERHEAD_BYTES
            self._locations[number] = location
            self._unread[number] = due_unix_ms

    def unread(self) -> list[Taken]:
        """Return what has no body yet, in order."""
        locations = self._locations
        return sorted((due, number, locations[number]) for number, due in self._unread.items())

    def add(self, items: list[Item], locations: Sequence[MessageLocation]) -> None:
        """Keep what has its body, in order; also what was held without."""
        numbers = [item[1] for item in items]
        if not self._withdrawn.isdisjoint(numbers):
            self._sweep()
        if self._unread:
            unread = [
                number for number in numbers if self._unread.pop(number, None) is not None
            ]
            self.pop(unread)
        self._locations.update(zip(numbers, locations, strict=True))
        size_bytes = sum([location[1] for location in locations])
        self.size_bytes += size_bytes + len(items) * ITEM_OVERHEAD_BYTES
        at = bisect_left(items, self._runs[-1][-1]) if self._runs else 0
        for item in items[:at]:
            heapq.heappush(self._late, item)
        if at < len(items):
            self._runs.append(items[at:])

    # --- out

    def take_due(self, now_unix_ms: int, count_max: int, bytes_max: int) -> list[Item]:
        """Take what is due and not held back, in order; the first whatever its size.

        It is here, and can be withdrawn, until it is ``pop``ped; or it is ``put_back``.
        """
        limit = (now_unix_ms + 1, 0)
        if self._unread:
            limit = min(limit, self._first_unread())
        due: list[Item] = []
        while not due and (found := self._first(limit, count_max)):
            due = found
            if self._withdrawn:
                due = [item for item in found if item[1] not in self._withdrawn]
                self._withdrawn.difference_update([item[1] for item in found])
        end = _fitting(due, count_max, bytes_max)
        if end < len(due):
            self.put_back(due[end:])
            del due[end:]
        return due

    def _first(self, limit: tuple[int, int], count_max: int) -> list[Item]:
        due = self._first_run(limit, count_max)
        if self._late and self._late[0] < limit:
            if len(due) >= count_max:  # more may lie behind it, and before what is late
                limit = due[-1][:2]
            due += self._first_late(limit, count_max)
            due.sort()
        return due

    def _first_run(self, limit: tuple[int, int], count_max: int) -> list[Item]:
        due: list[Item] = []
        runs = self._runs
        while runs and len(due) < count_max:
            run = runs[0]
            if run[-1] < limit:
                due += runs.popleft()
                continue
            at = bisect_left(run, limit)
            due += run[:at]
            del run[:at]
            break
        return due

    def _first_late(self, limit: tuple[int, int], count_max: int) -> list[Item]:
        late: list[Item] = []
        while self._late and self._late[0] < limit and len(late) < count_max:
            item = heapq.heappop(self._late)
            if item[1] in self._withdrawn:  # else one that counts would stay behind it
                self._withdrawn.remove(item[1])
            else:
                late.append(item)
        return late

    def put_back(self, items: list[Item]) -> None:
        """Put back the last ones that were taken."""
        if items:
            self._runs.appendleft(items)

    def pop(self, numbers: Iterable[int]) -> list[tuple[int, MessageLocation]]:
        """Forget messages that are here; return (number, place) of them."""
        pop = self._locations.pop
        found = [(number, pop(number)) for number in numbers]
        size_bytes = sum([location[1] for _, location in found])
        self.size_bytes -= size_bytes + len(found) * ITEM_OVERHEAD_BYTES
        return found

    def withdraw(self, number: int) -> MessageLocation | None:
        """Forget a message, wherever it is; return its place, None when it is not here."""
        if number not in self._locations:
            return None
        if self._unread.pop(number, None) is None:
            self._withdrawn.add(number)
        return self.pop([number])[0][1]

    def _sweep(self) -> None:
        """Take out what was withdrawn, of which something comes back: it must not come twice."""
        gone, self._withdrawn = self._withdrawn, set()
        runs = ([item for item in run if item[1] not in gone] for run in self._runs)
        self._runs = deque(run for run in runs if run)
        self._late = [item for item in self._late if item[1] not in gone]
        heapq.heapify(self._late)


def _fitting(items: Sequence[Item], count_max: int, bytes_max: int) -> int:
    """Return how many of the first make no more than that; at least one."""
    sizes = accumulate([len(item[_TAIL]) for item in items[:count_max]])
    return max(bisect_right(list(sizes), bytes_max), min(len(items), 1))
