"""Ranges of offsets never handed out, each of one key, in order, as far as the lane was fed.

Ten million contiguous messages of one key are one range. A message handed out before its turn is
cut out of its range.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from features.queue.model import Run
from features.queue.states import NO_TIME, UnreadRange
from features.ranges import RangeSet

KEYLESS_AHEAD_MAX: Final = 10_000
"""Bound on known messages without a key: nothing behind them needs to be fed."""

_USED_MIN: Final = 64  # up to so many used ranges stay in the deque
_BY_FIRST = attrgetter("first")


class UnreadRanges:
    """Unread ranges of a lane, the lowest first.

    ``count`` and ``delayed_count`` are messages, ``range_count`` ranges. ``fed_end``: start of
    the next feed. ``early``: offsets handed out beyond it, before the lane was loaded.
    ``has_grown``: a feed has made a range longer, for who has looked at it to reset.
    """

    __slots__ = (
        "_keyless_count",
        "_ranges",
        "count",
        "delayed_count",
        "early",
        "fed_end",
        "has_grown",
        "range_count",
    )

    def __init__(self, fed_end: int) -> None:
        self.early = RangeSet()
        self.has_grown = False
        self.clear(fed_end)

    def unfeed(self) -> None:
        """Forget the unread ranges, but not offsets handed out among them: they are fed again."""
        early = list(self.handed_out())
        self.clear(self.next_offset)
        for first, last in early:
            self.early.add(first, last)

    def clear(self, fed_end: int) -> None:
        """Forget all ranges: the lane is fed again. Offsets handed out early stay."""
        self._ranges: deque[UnreadRange] = deque()
        self.fed_end = fed_end
        self.count = 0
        self.delayed_count = 0
        self.range_count = 0
        self._keyless_count = 0

    @property
    def next_offset(self) -> int:
        """The first offset that was never handed out."""
        ranges = self._ranges
        while ranges and ranges[0].first > ranges[0].last:
            ranges.popleft()
        return ranges[0].first if ranges else self.fed_end

    def __iter__(self) -> Iterator[UnreadRange]:
        """Yield the ranges that have messages."""
        return (
            unread_range
            for unread_range in self._ranges
            if unread_range.first <= unread_range.last
        )

    def wants_more(self, lookahead: int) -> bool:
        """Return whether the lane must be fed more."""
        return self._keyless_count < KEYLESS_AHEAD_MAX and self.range_count < lookahead

    def feed(
        self, runs: Sequence[Run], now_unix_ms: int, *, is_keyed: bool
    ) -> list[UnreadRange]:
        """Add messages in order of their offsets; return the new ranges.

        Keys are ignored unless ``is_keyed``. Offsets below ``fed_end`` are known already, offsets
        between runs do not exist.
        """
        added: list[UnreadRange] = []
        early = self.early
        for first, last, run_key, visible_unix_ms in runs:
            if last < self.fed_end:
                continue
            key = run_key if is_keyed else None
            begin = max(first, self.fed_end)
            due_unix_ms = NO_TIME if visible_unix_ms <= now_unix_ms else visible_unix_ms
            if not early:
                self._add(begin, last, key, due_unix_ms, added)
            else:
                for gap_first, gap_last in early.gaps(begin, last):
                    self._add(gap_first, gap_last, key, due_unix_ms, added)
            self.fed_end = last + 1
        if early:
            early.drop_before(self.fed_end)
        return added

    def _add(
        self,
        first: int,
        last: int,
        key: bytes | None,
        due_unix_ms: int,
        added: list[UnreadRange],
    ) -> None:
        size = last - first + 1
        self.count += size
        if key is None:
            self._keyless_count += size
        if due_unix_ms != NO_TIME:
            self.delayed_count += size
        if self._ranges:
            before = self._ranges[-1]
            if (
                before.last == first - 1
                and before.key == key
                and before.due_unix_ms == due_unix_ms
                and before.first <= before.last
            ):
                before.last = last
                self.has_grown = True
                return
        unread_range = UnreadRange(first, last, key)
        unread_range.due_unix_ms = due_unix_ms
        self._ranges.append(unread_range)
        self.range_count += 1
        added.append(unread_range)

    def use(self, unread_range: UnreadRange, count: int) -> range:
        """Take out the first ``count`` messages of a visible range."""
        first = unread_range.first
        unread_range.first = end = first + count
        self.count -= count
        if unread_range.key is None:
            self._keyless_count -= count
        if end > unread_range.last:
            self._end_range()
        return range(first, end)

    def _end_range(self) -> None:
        self.range_count -= 1
        used_count = len(self._ranges) - self.range_count
        if used_count > _USED_MIN and used_count > self.range_count:
            self._ranges = deque(self)

    def drop_before(self, offset: int) -> list[UnreadRange]:
        """Remove all below ``offset``; return the delayed ranges that have ended."""
        ended: list[UnreadRange] = []
        while self._ranges and self._ranges[0].first < offset:
            unread_range = self._ranges[0]
            count = min(unread_range.last + 1, offset) - unread_range.first
            if unread_range.due_unix_ms != NO_TIME:
                self.delayed_count -= count
            if unread_range.first + count > unread_range.last:
                self._ranges.popleft()
                if unread_range.due_unix_ms != NO_TIME:
                    ended.append(unread_range)
            if count > 0:
                self.use(unread_range, count)
        self.early.drop_before(offset)
        self.fed_end = max(self.fed_end, offset)
        return ended

    def pass_to(self, offset: int) -> None:
        """Note that there is no message from ``fed_end`` to an offset."""
        self.fed_end = max(self.fed_end, offset)
        self.early.drop_before(self.fed_end)

    def appear(self, unread_range: UnreadRange) -> None:
        """Make a delayed range visible."""
        self.delayed_count -= unread_range.last - unread_range.first + 1

    def _find(self, offset: int) -> int | None:
        index = bisect_right(self._ranges, offset, key=_BY_FIRST) - 1
        if index < 0 or self._ranges[index].last < offset:
            return None
        return index

    def ready_at(self, offset: int) -> UnreadRange | None:
        """Return the range of a visible message, None when the lane has none there."""
        index = self._find(offset)
        if index is None or self._ranges[index].due_unix_ms != NO_TIME:
            return None
        return self._ranges[index]

    def cut(self, offset: int) -> tuple[bool, UnreadRange | None]:
        """Take one message out of wherever it is: (whether it was there, what lies behind it).

        The second is a new stretch, when there is one.
        """
        if offset >= self.fed_end:
            is_new = offset not in self.early
            if is_new:
                self.early.add(offset, offset)
            return is_new, None
        index = self._find(offset)
        if index is None:
            return False, None
        unread_range = self._ranges[index]
        behind = None
        if offset < unread_range.last:
            behind = UnreadRange(offset + 1, unread_range.last, unread_range.key)
            behind.due_unix_ms = unread_range.due_unix_ms
            self._ranges.insert(index + 1, behind)
            self.range_count += 1
        unread_range.last = offset - 1
        self.count -= 1
        if unread_range.key is None:
            self._keyless_count -= 1
        if unread_range.due_unix_ms != NO_TIME:
            self.delayed_count -= 1
        if unread_range.first > unread_range.last:
            self._end_range()
        return True, behind

    def handed_out(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges above ``next_offset`` of which nothing is ahead, in order."""
        at = self.next_offset
        for unread_range in self:
            if unread_range.first > at:
                yield at, unread_range.first - 1
            at = unread_range.last + 1
        if at < self.fed_end:
            yield at, self.fed_end - 1
        yield from self.early
