"""Memo of routes by exchange and routing keys, with one bound for all routers of a node.

Routes that are used stay. A router has two generations of them: new and used ones are in the
young generation. When the young generations of all routers reach half of the bound, the old ones
are forgotten, and the young ones become old.
"""

from sys import getsizeof
from typing import Final

from features.routing.route import Route, TargetSet

MEMO_BYTES_MAX: Final = 16 * 1024 * 1024

# In memory, as a test measures it.
_ROUTE_BYTES: Final = 300  # of a route, beside its keys
_SET_BYTES: Final = 350  # of a target set, beside its names
_TARGET_BYTES: Final = 80  # of a name, with its topic in a publisher's plan

MemoKey = tuple[str, tuple[str, ...]]
"""Name of the exchange, and routing keys of the message."""


class RouteMemo:
    """Bound on the routes that all routers of a node remember, in bytes; 0 for none."""

    def __init__(self, bytes_max: int = MEMO_BYTES_MAX) -> None:
        self._young_bytes_max = bytes_max // 2
        self._young_bytes = 0
        self._old_bytes = 0
        self._parts: dict[RouterMemo, None] = {}  # those that remember something

    @property
    def used_bytes(self) -> int:
        """Bytes that all routes take, an estimate."""
        return self._young_bytes + self._old_bytes

    def part(self) -> "RouterMemo":
        """Return the memo of one router."""
        return RouterMemo(self)

    def make_room(self, size_bytes: int) -> bool:
        """Make room for a new route; return False for one that is too large."""
        if size_bytes > self._young_bytes_max:
            return False
        if self._young_bytes + size_bytes > self._young_bytes_max:
            self._end_generation()
        return True

    def count(self, part: "RouterMemo", size_bytes: int) -> None:
        """Count a new route of a part."""
        self._young_bytes += size_bytes
        self._parts[part] = None

    def forget(self, part: "RouterMemo", young_bytes: int, old_bytes: int) -> None:
        """Count the routes of a part no more."""
        self._young_bytes -= young_bytes
        self._old_bytes -= old_bytes
        self._parts.pop(part, None)

    def _end_generation(self) -> None:
        for part in tuple(self._parts):
            if not part.end_generation():
                del self._parts[part]
        self._young_bytes, self._old_bytes = 0, self._young_bytes


class RouterMemo:
    """Routes that one router remembers: ``young`` and, by ``find_old``, older ones."""

    __slots__ = ("_memo", "_old", "_old_bytes", "_sets", "_young_bytes", "young")

    def __init__(self, memo: RouteMemo) -> None:
        self._memo = memo
        self.young: dict[MemoKey, Route] = {}
        self._old: dict[MemoKey, Route] = {}
        self._sets: set[TargetSet] = set()  # of the young ones: counted once
        self._young_bytes = self._old_bytes = 0

    def __len__(self) -> int:
        return len(self.young) + len(self._old.keys() - self.young.keys())

    def find_old(self, key: MemoKey) -> Route | None:
        """Return an older route, which is a young one then; None when it is not remembered."""
        found = self._old.get(key)
        if found is not None:
            self.put(key, found)
        return found

    def put(self, key: MemoKey, route: Route) -> None:
        """Remember a route, if it is not too large."""
        size_bytes = _ROUTE_BYTES + getsizeof(key[1]) + sum(map(getsizeof, key[1]))
        targets = route.targets
        set_bytes = _SET_BYTES + _TARGET_BYTES * len(targets)
        if not self._memo.make_room(size_bytes + set_bytes):
            return
        if targets not in self._sets:
            self._sets.add(targets)
            size_bytes += set_bytes
        self.young[key] = route
        self._young_bytes += size_bytes
        self._memo.count(self, size_bytes)

    def clear(self) -> None:
        """Forget all routes."""
        if self.young or self._old:
            self._memo.forget(self, self._young_bytes, self._old_bytes)
            self.young, self._old, self._sets = {}, {}, set()
            self._young_bytes = self._old_bytes = 0

    def end_generation(self) -> bool:
        """Forget the old routes, and let the young ones be old; return whether there are any."""
        self._old, self.young = self.young, {}
        self._old_bytes, self._young_bytes = self._young_bytes, 0
        self._sets = set()
        return bool(self._old)
