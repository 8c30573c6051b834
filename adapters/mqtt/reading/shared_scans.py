"""Shared scans: followers that are behind at one offset read the log together.

For example, ten thousand sessions that come back together read each piece of the log once. A scan
has one offset for all its followers; each follower's own offset is set when it leaves.
"""

from collections.abc import Iterator
from typing import Final

from adapters.mqtt.ports import Follower

TURNS_PER_OLDEST_SCAN: Final = 4  # one turn of so many is for the scan that waits longest


class SharedScan:
    """Followers that have read up to ``offset``; one that has read more has it in ``behind``.

    ``newest``: the highest number of its followers in ``WantedTopics``.
    """

    __slots__ = ("followers", "newest", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.followers: dict[Follower, None] = {}
        self.newest = 0


class SharedScans:
    """All scans of one partition. One runs at a time; the others wait, by offset."""

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
        """Add a follower, with its number in ``WantedTopics``, to the scan at its offset."""
        offset = follower.behind[self._partition_id]
        scan = self._waiting.get(offset)
        if scan is None:
            scan = self._waiting[offset] = SharedScan(offset)
        scan.followers[follower] = None
        scan.newest = max(scan.newest, number)
        self._by_follower[follower] = scan

    def remove(self, follower: "Follower") -> None:
        """Remove a follower, if it is in a scan, and set its own offset."""
        scan = self._by_follower.pop(follower, None)
        if scan is None:
            return
        self._settle_one(follower, scan.offset)
        del scan.followers[follower]
        if not scan.followers and self._waiting.get(scan.offset) is scan:
            del self._waiting[scan.offset]

    def clear(self) -> None:
        """Remove all followers."""
        for follower in tuple(self._by_follower):
            self.remove(follower)

    def renumber(self, newest: int) -> None:
        """Set ``newest`` of every scan: all filters were collected again."""
        for scan in set(self._by_follower.values()):
            scan.newest = newest

    def take(self) -> SharedScan | None:
        """Return the scan that runs next; it does not wait until it is put back.

        Mostly it is the one furthest behind: when it reaches others, they become one scan. One
        turn in ``TURNS_PER_OLDEST_SCAN`` is for the scan that has waited longest, so that none
        waits for all that are further behind.
        """
        if not self._waiting:
            return None
        self._turns += 1
        is_of_all = self._turns % TURNS_PER_OLDEST_SCAN == 0
        offset = next(iter(self._waiting)) if is_of_all else min(self._waiting)
        return self._waiting.pop(offset)

    def put_back(self, scan: SharedScan) -> None:
        """Put a scan back after its turn; merge it with a scan at the same offset."""
        if not scan.followers:
            return
        self.settle(scan)
        waiting = self._waiting.setdefault(scan.offset, scan)
        if waiting is not scan:
            self._merge(scan, waiting)

    def join(self, scan: SharedScan, end: int, number: int) -> None:
        """Merge scans at offsets before ``end`` whose followers all have lower numbers."""
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
