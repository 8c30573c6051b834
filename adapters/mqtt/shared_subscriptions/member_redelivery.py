"""Redelivery of a member's unacknowledged messages to other members.

Only of QoS 1, and when the member's session is over (MQTT 5.0 section 4.8.2). It goes before what
the group has not read yet.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final, Protocol

import structlog

from adapters.mqtt.ports import FeedPort
from adapters.mqtt.reading.feed import RETRY_S
from adapters.mqtt.reading.feed_set import FeedSet
from adapters.mqtt.records.mixed_topic_batch import end_offset
from adapters.mqtt.shared_subscriptions.lanes import LaneGroup, ShareLane, ShareLanes
from adapters.mqtt.wire import PublishRun
from gateway.errors import GatewayError, OffsetOutOfRange

AT_ONCE_MAX: Final = 1_000  # messages that one step looks at

log = structlog.get_logger()


class ReturningGroup(LaneGroup, Protocol):
    """A group that messages can be dealt out to again; see ``groups.ShareGroup``."""

    def deal_returned(self, run: PublishRun, start: int, stop: int, lane: ShareLane) -> int:
        """Deal out the lowest messages that the lane has back; return how many went."""
        ...


class MemberRedelivery:
    """Deals out what was given back, for all groups of a node."""

    def __init__(
        self,
        feeds: FeedSet,
        lanes: ShareLanes,
        start: Callable[[Coroutine[object, object, None]], None],
    ) -> None:
        self.dealing: set[ReturningGroup] = set()
        self._asked: set[ReturningGroup] = set()  # again, while they were being dealt for
        self._feeds = feeds
        self._lanes = lanes
        self._start = start

    def deal(self, group: ReturningGroup) -> None:
        """Deliver what was given back, as far as members have room."""
        if not group.is_ready:
            return
        self._asked.add(group)  # each acknowledgement does
        if group not in self.dealing:
            self.dealing.add(group)
            self._start(self._deal(group))

    async def _deal(self, group: ReturningGroup) -> None:
        try:
            went = True
            while (went or group in self._asked) and group.returning and group.is_ready:
                self._asked.discard(group)
                went = False
                for lane in tuple(group.returning):
                    went |= await self._deal_some_or_wait(group, lane)
                    if not lane.lane.returned_count:
                        group.returning.discard(lane)
        finally:
            self.dealing.discard(group)
            self._asked.discard(group)
        if not group.returning:
            group.go_on()

    async def _deal_some_or_wait(self, group: ReturningGroup, lane: ShareLane) -> bool:
        """Deliver, and try again after a failed read: no other event would start it."""
        try:
            went = await self._deal_some(group, lane)
            await asyncio.sleep(0)  # there may be many, and others are to be served
        except GatewayError as error:
            log.warning("not delivered to others", group=group.name, error=str(error))
            await asyncio.sleep(RETRY_S)
            return True
        return went

    async def _deal_some(self, group: ReturningGroup, lane: ShareLane) -> bool:
        """Deliver requeued messages of a lane; False when none was taken. Errors: ``Feed.read``.

        All that is decided is decided after the read, at once.
        """
        feed = self._feeds.get(lane.partition_id)
        if feed is None:
            self._lanes.drop_partition(group, lane.partition_id)
            return True
        first, stop = first_row(lane.lane.returned(AT_ONCE_MAX))
        if first == stop:
            return True
        start = min(max(first, feed.log_start_offset), stop)
        runs, next_offset = await _read(feed, start, stop)
        if lane.has_left or first_row(lane.lane.returned(AT_ONCE_MAX)) != (first, stop):
            return True  # another session, or the group, has ended or left meanwhile
        if not group.online:
            return False
        at = first
        for run in runs:
            begin = max(at, run.base_offset)
            end = min(stop, end_offset(run))
            if begin >= end:
                continue
            lane.drop_returned(begin - at)
            at = begin + group.deal_returned(
                run, begin - run.base_offset, end - run.base_offset, lane
            )
            if at < end:
                return at > first
        lane.drop_returned(max(min(next_offset, stop) - at, 0))
        return True


async def _read(feed: FeedPort, start: int, stop: int) -> tuple[list[PublishRun], int]:
    """Return runs of [start, stop), and up to where there are no others. Errors: ``Feed.read``."""
    if start == stop:
        return [], stop
    try:
        runs, next_offset = await feed.read(start, end=stop)
    except OffsetOutOfRange:
        if start < feed.log_start_offset:
            return [], start  # retention went past it: the next turn begins at the log start
        return [], stop  # above the end: the node has lost what it had not flushed
    return runs, next_offset if next_offset > start else stop


def first_row(offsets: list[int]) -> tuple[int, int]:
    """Return the first offsets that follow each other without a gap, as [first, stop).

    >>> first_row([3, 4, 5, 9]), first_row([])
    ((3, 6), (0, 0))
    """
    if not offsets:
        return 0, 0
    first = offsets[0]
    length = next(
        (at for at, offset in enumerate(offsets) if offset != first + at), len(offsets)
    )
    return first, first + length
