"""What a member of a shared subscription did not acknowledge goes to the others.

Only of QoS 1, and when the member's session is over (MQTT 5.0 section 4.8.2).
"""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import structlog

from gateway.errors import GatewayError

if TYPE_CHECKING:  # groups keep what was returned to them
    from adapters.mqtt.distributor import Distributor
    from adapters.mqtt.feed_set import FeedSet
    from adapters.mqtt.feeds import Feed
    from adapters.mqtt.share_groups import ShareGroup

log = structlog.get_logger()


class Returned(NamedTuple):
    """Messages that a member had not acknowledged when its session ended."""

    partition_id: int
    first_offset: int
    length: int


async def deal_returned(
    group: "ShareGroup", feeds: "FeedSet", distributor: "Distributor"
) -> None:
    """Deliver again what members with room can take; the rest waits for ``go_on``."""
    while group.returned and group.is_ready:
        returned = group.returned.popleft()
        feed = feeds.get(returned.partition_id)
        if feed is None:
            continue
        try:
            left = await _deal(group, returned, feed, distributor)
        except GatewayError as error:
            log.warning("not delivered to others", group=group.name, error=str(error))
            group.returned.append(returned)
            return
        if left.length:
            group.returned.appendleft(left)
        if left.length == returned.length:
            return  # nobody took any: ``go_on`` comes again when somebody has room
        await asyncio.sleep(0)  # there may be many, and others are to be served


async def _deal(
    group: "ShareGroup", returned: Returned, feed: "Feed", distributor: "Distributor"
) -> Returned:
    """Deal out one piece of the log; return what is left. Errors: as ``Feed.read``."""
    partition_id, offset, length = returned
    last = offset + length
    offset = max(offset, feed.log_start_offset)
    if offset >= last:
        return Returned(partition_id, last, 0)
    runs, next_offset = await feed.read(offset, end=last)
    if not group.online:
        return returned  # the last member went while the disk was read
    end = min(last, next_offset)
    if end <= offset:
        return Returned(partition_id, last, 0)  # nothing is there any more
    for run in runs:
        start = max(offset - run.base_offset, 0)
        stop = min(end - run.base_offset, len(run.payloads))
        if start >= stop:
            continue
        match = distributor.matches_by_follower(run.topic).get(group)
        taken = group.take(run, start, stop, match, feed) if match else stop - start
        if taken < stop - start:
            first = run.base_offset + start + taken
            return Returned(partition_id, first, last - first)
    return Returned(partition_id, end, last - end)
