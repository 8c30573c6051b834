"""Deduplication by id: what was sent with an id within a window is not sent again.

An id is bytes that its protocol chose (Amazon SQS: the MessageDeduplicationId, within its group
where the queue says so). It counts from the send on, whether or not the message is still there.
A send that is not kept yet has its id already; who repeats it meanwhile waits for what becomes of
it. The owner rebuilds the window after a start from the log's last records (``restore``).

Cost: a dictionary of bytes and integers, 150 to 300 bytes for an id; O(1) amortised.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gateway.errors import Overloaded

EXPIRED_PER_CALL_MAX: Final = 64  # so that no call after a quiet time pays for all that went
WINDOWS_PER_CALL_MAX: Final = 16

_NUMBER_BITS: Final = 32
_OFFSET_BITS: Final = 64
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1

Waiter = TypeVar("Waiter")


class FirstSent(NamedTuple):
    """Position of the message that was sent first: partition number and offset."""

    number: int
    offset: int


class Pending(Generic[Waiter]):
    """A send that is not kept yet; ``waiters`` repeat it."""

    __slots__ = ("sent_unix_ms", "waiters")

    def __init__(self, sent_unix_ms: int) -> None:
        self.sent_unix_ms = sent_unix_ms
        self.waiters: list[Waiter] = []


class IdBudget:
    """Shared bound on the ids of all deduplication windows that use it."""

    __slots__ = ("_windows", "ids_max", "used")

    def __init__(self, ids_max: int) -> None:
        self.ids_max = ids_max
        self.used = 0
        self._windows: deque[DedupIds[Any]] = deque()

    def join(self, window: "DedupIds[Any]") -> None:
        """One more window shares it."""
        self._windows.append(window)

    def leave(self, window: "DedupIds[Any]") -> None:
        """A window needs none of it any more."""
        self._windows.remove(window)

    def is_there(self, now_unix_ms: int) -> bool:
        """Say whether one more id may be known; windows that nobody asks give back what is over.

        Looks at ``WINDOWS_PER_CALL_MAX`` of them, in turn.
        """
        if self.used < self.ids_max:
            return True
        for _ in range(min(len(self._windows), WINDOWS_PER_CALL_MAX)):
            self._windows.rotate(-1)
            if self._windows[-1].expire(now_unix_ms):
                return True
        return False


class DedupIds(Generic[Waiter]):
    """The ids of one window. Times are unix milliseconds and do not go backwards."""

    def __init__(self, *, window_ms: int, room: IdBudget) -> None:
        self._window_ms = window_ms
        self._room = room
        self._ids: dict[bytes, int | Pending[Waiter]] = {}  # oldest first
        self._purged_ends: Sequence[int] = ()  # by partition number
        room.join(self)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids_max(self) -> int:
        """Largest number of ids kept."""
        return self._room.ids_max

    def find(self, dedup_id: bytes, now_unix_ms: int) -> FirstSent | Pending[Waiter] | None:
        """Return what an id stands for within the window, or None: it is new."""
        self.expire(now_unix_ms)
        entry = self._ids.get(dedup_id)
        if entry is None or isinstance(entry, Pending):
            return entry
        place = _place(entry)
        if _sent_unix_ms(entry) + self._window_ms <= now_unix_ms or self._is_purged(place):
            self._forget(dedup_id)
            return None
        return place

    def purge(self, ends: Sequence[int]) -> None:
        """Know no id any more of a message before an offset, by number of the partition.

        O(1): what was known goes when it is asked for, or when its time is over.
        """
        self._purged_ends = ends

    def _is_purged(self, place: FirstSent) -> bool:
        ends = self._purged_ends
        return place.number < len(ends) and place.offset < ends[place.number]

    def begin(self, dedup_id: bytes, now_unix_ms: int) -> Pending[Waiter]:
        """Remember an id that ``find`` did not know; ``complete`` or ``fail`` follows.

        Error: ``Overloaded`` when no more ids may be known.
        """
        assert dedup_id not in self._ids
        if not self._room.is_there(now_unix_ms):
            raise Overloaded(f"{self._room.ids_max} deduplication ids are known")
        pending: Pending[Waiter] = Pending(now_unix_ms)
        self._ids[dedup_id] = pending
        self._room.used += 1
        return pending

    def complete(
        self, dedup_id: bytes, pending: Pending[Waiter], place: FirstSent
    ) -> list[Waiter]:
        """Say that a send is kept; return who waited for it."""
        if self._ids.get(dedup_id) is pending:
            self._ids[dedup_id] = _pack(pending.sent_unix_ms, place)
        return pending.waiters

    def fail(self, dedup_id: bytes, pending: Pending[Waiter]) -> list[Waiter]:
        """Forget a send that was not kept; return who waited for it."""
        if self._ids.get(dedup_id) is pending:
            self._forget(dedup_id)
        return pending.waiters

    def restore(self, dedup_id: bytes, place: FirstSent, sent_unix_ms: int) -> None:
        """Remember what the log says, in the order of times; the first of an id counts.

        Above the bound the oldest are forgotten.
        """
        if dedup_id in self._ids or self._is_purged(place):
            return
        if self._room.used >= self._room.ids_max:
            if not self._ids:
                return
            self._forget(next(iter(self._ids)))
        self._ids[dedup_id] = _pack(sent_unix_ms, place)
        self._room.used += 1

    def clear(self) -> None:
        """Forget all ids, and give back their room."""
        self._room.used -= len(self._ids)
        self._ids.clear()

    def close(self) -> None:
        """Forget all ids; the window is asked no more."""
        self.clear()
        self._room.leave(self)

    def expire(self, now_unix_ms: int) -> int:
        """Forget some of the oldest whose time is over; return how many."""
        count = 0
        before = now_unix_ms - self._window_ms
        while count < EXPIRED_PER_CALL_MAX and self._ids:
            dedup_id, entry = next(iter(self._ids.items()))
            if isinstance(entry, Pending) or _sent_unix_ms(entry) > before:
                break
            self._forget(dedup_id)
            count += 1
        return count

    def _forget(self, dedup_id: bytes) -> None:
        del self._ids[dedup_id]
        self._room.used -= 1


def _pack(sent_unix_ms: int, place: FirstSent) -> int:
    """Return time and place as one integer, which takes a quarter of what a tuple does."""
    high = (sent_unix_ms << _NUMBER_BITS) | place.number
    return (high << _OFFSET_BITS) | place.offset


def _place(entry: int) -> FirstSent:
    return FirstSent((entry >> _OFFSET_BITS) & _NUMBER_MASK, entry & _OFFSET_MASK)


def _sent_unix_ms(entry: int) -> int:
    return entry >> (_NUMBER_BITS + _OFFSET_BITS)
