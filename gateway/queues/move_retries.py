"""Dead letters that could not be moved, and when they are tried again.

Those that a full queue has refused go on at once when it has room, as many as have it, in the order
in which they were refused. All others, for example those of a full disk, are tried again after a
pause that grows; so are the former, after the longest pause, should nobody report the room.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from features.queue.model import Dead
from gateway.errors import GatewayError, QueueFull
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.publish_limit import PublishLimit

RETRY_MS: Final = 5_000
RETRY_MS_MAX: Final = 60_000

Offsets = dict[int, None]


class _LaneRetries:
    """Dead letters of one lane that wait, by the full queue; None for those of other errors."""

    __slots__ = ("by_limit", "delay_ms", "until_unix_ms")

    def __init__(self) -> None:
        self.by_limit: dict[PublishLimit | None, Offsets] = {}
        self.delay_ms = 0
        self.until_unix_ms = 0

    def add(self, limit: PublishLimit | None, offsets: Sequence[int]) -> None:
        self.remove(offsets)
        self.by_limit.setdefault(limit, {}).update(dict.fromkeys(offsets))

    def remove(self, offsets: Iterable[int]) -> None:
        for waiting in self.by_limit.values():
            for offset in offsets:
                waiting.pop(offset, None)

    @property
    def count(self) -> int:
        return sum(map(len, self.by_limit.values()))

    def pause_ms(self, now_unix_ms: int) -> int:
        """Return the time until all are tried again, which has grown since the last time."""
        if now_unix_ms >= self.until_unix_ms:
            self.delay_ms = min(max(2 * self.delay_ms, RETRY_MS), RETRY_MS_MAX)
            self.until_unix_ms = now_unix_ms + self.delay_ms
        return self.until_unix_ms - now_unix_ms


class MoveRetries:
    """Retries of all lanes. Loop only. ``move``: moves messages of a lane to the dead letters."""

    def __init__(
        self, context: QueueContext, move: Callable[[QueueLane, Sequence[Dead]], None]
    ) -> None:
        self._context = context
        self._move = move
        self._lanes: dict[QueueLane, _LaneRetries] = {}
        self._waiting_for: dict[PublishLimit, dict[QueueLane, None]] = {}

    @property
    def waiting_count(self) -> int:
        """Dead letters that could not be moved and wait; purged ones may count for a while."""
        return sum(min(one.count, lane.lane.moving_count) for lane, one in self._lanes.items())

    def failed(self, lane: QueueLane, offsets: Sequence[int], error: GatewayError) -> bool:
        """Let moves be tried again; return whether no other of the lane waited before."""
        is_first = lane not in self._lanes
        retries = self._lanes.setdefault(lane, _LaneRetries())
        now = self._context.clock.steady_unix_ms()
        limit = limit_of(error)
        retries.add(limit, offsets)
        pause_ms = RETRY_MS_MAX
        if isinstance(error, QueueFull) and limit is not None:
            self._waiting_for.setdefault(limit, {})[lane] = None
            limit.when_room(error.size_bytes, self._on_room)
        else:
            pause_ms = retries.pause_ms(now)
        lane.lane.move_failed(offsets, now=now, retry_ms=pause_ms)
        self._context.arm(lane)
        return is_first

    def moved(self, lane: QueueLane, offsets: Iterable[int]) -> None:
        """Take note of moves that have succeeded."""
        retries = self._lanes.get(lane)
        if retries is None:
            return
        retries.remove(offsets)
        retries.delay_ms = retries.until_unix_ms = 0
        if not retries.count:
            self.forget(lane)

    def forget(self, lane: QueueLane) -> None:
        """Forget a lane that has gone, or of which nothing waits any more."""
        retries = self._lanes.pop(lane, None)
        for limit in () if retries is None else retries.by_limit:
            if limit is not None:
                self._leave(limit, lane)

    def _leave(self, limit: PublishLimit, lane: QueueLane) -> None:
        lanes = self._waiting_for.get(limit, {})
        lanes.pop(lane, None)
        if not lanes:
            self._waiting_for.pop(limit, None)

    def _on_room(self, limit: PublishLimit, count: int) -> None:
        """Move as many messages as have room in a queue that was full."""
        for lane in tuple(self._waiting_for.get(limit, ())):
            waiting = self._lanes[lane].by_limit[limit]
            found: list[int] = []
            while waiting and len(found) < count:
                found.append(next(iter(waiting)))
                del waiting[found[-1]]
            self._leave(limit, lane)
            if waiting:  # behind the others
                self._waiting_for.setdefault(limit, {})[lane] = None
            dead = lane.lane.move_again(found)
            count -= len(dead)
            if dead:
                self._move(lane, dead)
            if count <= 0:
                break
        if limit in self._waiting_for:
            limit.when_room(limit.awaited_bytes, self._on_room)


def limit_of(error: GatewayError) -> PublishLimit | None:
    """Return the limit that has refused a message; None for any other error."""
    limit = error.limit if isinstance(error, QueueFull) else None
    return limit if isinstance(limit, PublishLimit) else None
