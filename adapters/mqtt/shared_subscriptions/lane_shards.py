"""Lanes of shared subscriptions by shard: loaded, handed over and closed while the node runs.

A lane lies in the shard of its partition, and a member's session in the client's. When one of them
leaves the node and the other does not, what the member has in flight is done for the group: it
stays with the session alone. The lane of a partition that leaves says where the group is in it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from adapters.mqtt.inflight.outbox import Settled
from adapters.mqtt.ports import FeedPort, SessionPort
from adapters.mqtt.reading.feed_set import FeedSet
from adapters.mqtt.shared_subscriptions.lanes import (
    OVER,
    POLICY,
    LaneGroup,
    ShareLane,
    ShareLanes,
    ids_of,
    share_lane_id,
)
from features.queue.lane import Lane

_LANE_PREFIX_BYTES: Final = 20  # of a lane id: topic and partition number


class LaneShards:
    """See the module. ``groups`` are by the filter as members write it."""

    def __init__(
        self,
        lanes: ShareLanes,
        feeds: FeedSet,
        groups: Mapping[str, LaneGroup],
        find_group: Callable[[str], LaneGroup | None],
    ) -> None:
        """``find_group`` returns the group of a stored lane, made when it is missing."""
        self._lanes = lanes
        self._feeds = feeds
        self._groups = groups
        self._find_group = find_group

    def leave(self, session: "SessionPort") -> None:
        """Let a session that leaves the node keep what it has in flight.

        Lanes may stay, and the session cannot settle there any more; so it is done for the group.
        """
        self._lanes.settle(session.outbox.take_settled())
        self._lanes.settle(
            Settled(one.inflight, one.start, one.stop)
            for one in session.outbox.unsettled()
            if one.inflight.group
        )

    def quiesce(self, shards: Collection[int]) -> None:
        """Say where groups are in partitions that leave, for the next owner.

        What members have in flight stays with their sessions, as in ``leave``. The caller writes
        the pending entries, then calls ``drop_shards``.
        """
        leaving = [feed for feed in self._feeds if feed.partition.shard in shards]
        for group in tuple(self._groups.values()) if leaving else ():
            for feed in leaving:
                self._quiesce_lane(group, feed)

    def _quiesce_lane(self, group: LaneGroup, feed: FeedPort) -> None:
        partition_id = feed.partition_id
        positions = group.behind if group.online else group.positions
        unread = feed.log_start_offset if group.positions else feed.live_offset
        position = positions.setdefault(partition_id, unread)
        if not group.is_kept:
            return
        lane = self._lanes.open(group, feed, position)
        for member in group.members:
            for run, start, stop, _ in member.outbox.unsettled():
                if run.group == group.written and run.partition_id == partition_id:
                    lane.lane.ack(ids_of(run.first_offset + start, stop - start, run.attempt))
        if not lane.lane.returned_count:
            lane.lane.seek(position, end_offset=position)
        lane.is_ahead = True  # a snapshot says all of it
        self._lanes.pend(lane)

    def drop_shards(self, shards: Collection[int]) -> None:
        """Drop lanes of shards that leave: what members settle from now on is done there."""
        for group in self._groups.values():
            left = [one for one, lane in group.lanes.items() if lane.shard in shards]
            for partition_id in left:
                group.lanes[partition_id].has_left = True
                self._lanes.drop_partition(group, partition_id)

    async def load_shards(
        self, shards: Collection[int], sessions: "Iterable[SessionPort]", *, is_start: bool
    ) -> None:
        """Take lanes of shards back, whose feeds and groups are there. ``sessions`` came now.

        Errors: as ``QueueJournal.load_shards``.
        """
        found: dict[bytes, Lane] = {}

        def on_entry(key: bytes, entry: bytes, is_snapshot: bool) -> None:  # noqa: FBT001
            if is_snapshot:
                found[key] = Lane(POLICY, 0)
            lane = found.get(key)
            if lane is not None:
                lane.apply(entry)

        await self._lanes.journal.load_shards(shards, on_entry)
        feeds = {share_lane_id(feed, ""): feed for feed in self._feeds}
        came: list[ShareLane] = []
        for key, lane in found.items():
            feed = feeds.get(key[:_LANE_PREFIX_BYTES])
            if lane.next_offset == OVER:
                continue
            group = self._find_group(key[_LANE_PREFIX_BYTES:].decode())
            if feed is not None and group is not None:
                came.append(self._restore(group, feed, lane, is_start=is_start))
        members = {member: None for lane in came for member in lane.group.members}
        for session in {**dict.fromkeys(sessions), **members}:
            self._claim(session)
        for share_lane in came:
            self._recover(share_lane)
        if is_start:
            await self._lanes.journal.start(self._lanes.kept)

    def _restore(
        self, group: LaneGroup, feed: FeedPort, lane: Lane, *, is_start: bool
    ) -> ShareLane:
        restored = self._lanes.open(group, feed, 0)
        restored.lane = lane
        restored.is_ahead = False
        restored.is_stored = True
        if lane.next_offset > feed.live_offset:
            # The log has lost what it had not flushed: deal again what may be other messages.
            offset = min(lane.floor, feed.live_offset)
            lane.seek(offset, end_offset=feed.live_offset)
            restored.is_ahead = True
            if group.positions:
                group.positions[feed.partition_id] = offset
        elif not is_start:
            # The former owner's word; what this node knew of the partition is older, or a guess.
            positions = group.behind if group.online else group.positions
            positions[feed.partition_id] = lane.next_offset
        elif group.positions:
            position = group.positions.get(feed.partition_id, 0)
            group.positions[feed.partition_id] = max(position, lane.next_offset)
        return restored

    def _is_leaving(self, feed: FeedPort) -> bool:
        return feed.partition_id in self._feeds.away

    def _claim(self, session: "SessionPort") -> None:
        """Leave messages in flight with their sessions."""
        now = self._lanes.clock.steady_unix_ms()
        attempts: dict[int, int] = {}
        for run, start, stop, _ in session.outbox.unsettled():
            group = self._groups.get(run.group)
            feed = self._feeds.get(run.partition_id)
            if group is None or feed is None or self._is_leaving(feed):
                continue
            position = group.positions.get(run.partition_id, run.first_offset)
            lane = self._lanes.open(group, feed, position)
            offsets = range(run.first_offset + start, run.first_offset + stop)
            next_offset = lane.lane.next_offset
            mine = lane.lane.claim(offsets, holder=session.holder, now=now)
            if mine:
                attempts[run.first_seq] = max(taken.attempt for taken in mine)
                lane.is_ahead |= mine[-1].offset >= next_offset
        session.outbox.set_attempts(attempts)

    def _recover(self, lane: ShareLane) -> None:
        lane.lane.recovered(self._lanes.clock.steady_unix_ms())
        if lane.lane.returned_count:
            lane.group.returning.add(lane)
