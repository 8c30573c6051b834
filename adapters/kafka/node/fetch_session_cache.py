"""Cache of the node's fetch sessions, with the rules of Apache Kafka's ``FetchSessionCache``.

A new session takes a free slot, or that of the session that was not used for the longest time if
that is more than ``UNUSED_MS_MAX``, or that of the smallest session older than that which has
fewer partitions than the new one. Otherwise the client gets no session: its fetches stay full.
"""

import secrets
from bisect import bisect_left, insort
from typing import Final

from adapters.kafka.errors import ErrorCode
from adapters.kafka.node.fetch_session import FetchSession, Owner
from gateway.clock import Clock

UNUSED_MS_MAX: Final = 120_000
_ID_MAX: Final = 2**31 - 1


class _Slot:
    """A session in the cache, when it was made and used, and its counted partitions."""

    __slots__ = ("evictable_as", "made_ms", "partition_count", "session", "used_ms")

    def __init__(self, session: FetchSession, now_ms: int) -> None:
        self.session = session
        self.made_ms = self.used_ms = now_ms
        self.partition_count = 0
        self.evictable_as: tuple[int, int] | None = None


class FetchSessionCache:
    """Sessions by their ids, in order of last use; bounded by sessions and partitions."""

    def __init__(self, clock: Clock, *, sessions_max: int, partitions_max: int) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._clock = clock
        self._slots: dict[int, _Slot] = {}
        self._evictable: list[tuple[int, int]] = []  # (partitions, id), sorted
        self.partition_count = 0

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._slots)

    def get(self, session_id: int, owner: Owner) -> FetchSession | None:
        """Return a session of the owner, None if there is none of this id."""
        slot = self._slots.get(session_id)
        return slot.session if slot is not None and slot.session.owner == owner else None

    def admit(self, session: FetchSession) -> int:
        """Add a session and return its new id; 0 if there is no room."""
        now_ms, size = self._clock.monotonic_ms(), len(session.partitions)
        if size > self._partitions_max or not self._sessions_max:
            return 0
        while (
            len(self._slots) >= self._sessions_max
            or self.partition_count + size > self._partitions_max
        ):
            if not self._evict(size, now_ms):
                return 0
        session.id = self._new_id()
        self._slots[session.id] = _Slot(session, now_ms)
        return session.id if self.touch(session) else 0

    def touch(self, session: FetchSession) -> bool:
        """Note that a session is used, and count its partitions.

        False, and the session is removed, if there are more than the cache may have.
        """
        slot = self._slots.pop(session.id)
        self._slots[session.id] = slot  # now the last one
        slot.used_ms = self._clock.monotonic_ms()
        self._uncount(slot)
        slot.partition_count = len(session.partitions)
        self.partition_count += slot.partition_count
        if slot.used_ms - slot.made_ms > UNUSED_MS_MAX:
            slot.evictable_as = slot.partition_count, session.id
            insort(self._evictable, slot.evictable_as)
        if self.partition_count <= self._partitions_max:
            return True
        self.remove(session)
        return False

    def remove(self, session: FetchSession) -> None:
        """Remove and close a session; its pending request is refused."""
        slot = self._slots.pop(session.id, None)
        if slot is not None:
            self._uncount(slot)
        pending, session.pending = session.pending, None
        if pending is not None:
            pending.refuse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.close()

    def _uncount(self, slot: _Slot) -> None:
        self.partition_count -= slot.partition_count
        if slot.evictable_as is not None:
            del self._evictable[bisect_left(self._evictable, slot.evictable_as)]
            slot.evictable_as = None

    def _evict(self, size: int, now_ms: int) -> bool:
        """Remove one session for a new one of ``size`` partitions; False if none may go."""
        oldest = next(iter(self._slots.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms > UNUSED_MS_MAX:
            self.remove(oldest.session)
            return True
        if not self._evictable or (size, 0) < self._evictable[0]:
            return False
        self.remove(self._slots[self._evictable[0][1]].session)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = secrets.randbelow(_ID_MAX) + 1
            if session_id not in self._slots:
                return session_id
