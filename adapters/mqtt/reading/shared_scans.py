"""Shared scans: followers that are behind at one offset read the log together, in turns.

So ten thousand who come back together cost a step of the log once, not once each: while they
ride, where they stand is said once for all of them.
"""

from collections.abc import Iterator
from typing import Final

from adapters.mqtt.ports import Follower

TURNS_PER_OLDEST_SCAN: Final = 4  # one of so many turns is not the last ride's


class SharedScan:
    """Followers that have read up to ``offset``; one that took more is ahead, by its ``behind``.

    None of them is wanted for since a later number than ``newest``, see ``WantedTopics.add``.
    """

    __slots__ = ("followers", "newest", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.followers: dict[Follower, None] = {}
        self.newest = 0


class SharedScans:
    """All rides through one partition. One at a time goes; the others wait, by offset."""

    def __init__(self, partition_id: int) -> None:
        self._partition_id = partition_id
        self._by_follower: dict[Follower, SharedScan] = {}
        self._waiting: dict[int, SharedScan] = {}  # in the order of their turns
        self._turns = 0

    def __len__(self) -> int:
        return len(self._by_follower)

    def __iter__(self) -> Iterator["Follower"]:
        return iter(self._by_follower)

    def __contains__(self, follower: object) -> bool:
        return follower in self._by_follower

    def add(self, follower: "Follower", number: int) -> None:
        """Let a follower that came in with this number ride from where it stands."""
        offset = follower.behind[self._partition_id]
        scan = self._waiting.get(offset)
        if scan is None:
            scan = self._waiting[offset] = SharedScan(offset)
        scan.followers[follower] = None
        scan.newest = max(scan.newest, number)
        self._by_follower[follower] = scan

    def remove(self, follower: "Follower") -> None:
        """Let a follower get off, if it rides: it stands where it has come to."""
        scan = self._by_follower.pop(follower, None)
        if scan is None:
            return
        self._settle_one(follower, scan.offset)
        del scan.followers[follower]
        if not scan.followers and self._waiting.get(scan.offset) is scan:
            del self._waiting[scan.offset]

    def clear(self) -> None:
        """Let nobody ride any more."""
        for follower in tuple(self._by_follower):
            self.remove(follower)

    def renumber(self, newest: int) -> None:
        """Set the revision of all followers: their filters were added again, up to this one."""
        for scan in set(self._by_follower.values()):
            scan.newest = newest

    def take(self) -> SharedScan | None:
        """Return the ride that goes on now; it waits no more until it is put back.

        Most often it is the last one: when it comes up with the others they ride as one. Between
        these each has its turn, so that nobody waits for all who are further behind.
        """
        if not self._waiting:
            return None
        self._turns += 1
        is_of_all = self._turns % TURNS_PER_OLDEST_SCAN == 0
        offset = next(iter(self._waiting)) if is_of_all else min(self._waiting)
        return self._waiting.pop(offset)

    def put_back(self, scan: SharedScan) -> None:
        """A ride has had its turn: it waits for the next one."""
        if not scan.followers:
            return
        self.settle(scan)
        waiting = self._waiting.setdefault(scan.offset, scan)
        if waiting is not scan:
            self._merge(scan, waiting)

    def join(self, scan: SharedScan, end: int, number: int) -> None:
        """Let all ride along who stand at offsets before ``end`` and came in before a number."""
        found = [
            one
            for offset, one in self._waiting.items()
            if scan.offset <= offset < end and one.newest < number
        ]
        for one in found:
            del self._waiting[one.offset]
            self._merge(one, scan)

    def settle(self, scan: SharedScan) -> None:
        """Set the offset of each follower of a scan to the scan's."""
        for follower in scan.followers:
            self._settle_one(follower, scan.offset)

    def _settle_one(self, follower: "Follower", offset: int) -> None:
        behind = follower.behind
        if behind.get(self._partition_id, offset) < offset:
            behind[self._partition_id] = offset

    def _merge(self, scan: SharedScan, into: SharedScan) -> None:
        for follower in scan.followers:
            self._by_follower[follower] = into
        into.followers |= scan.followers
        into.newest = max(into.newest, scan.newest)
