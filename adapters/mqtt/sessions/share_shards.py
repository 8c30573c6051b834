"""Shared subscriptions by shard: which of them a node keeps, and where they are.

A node knows the members whose sessions it serves. While other nodes serve some shards, a group
without members here stays as it is: it may have members there.
"""

from collections.abc import Collection
from typing import Protocol

from adapters.mqtt.ports import ContextPort, Follower, GroupPort
from adapters.mqtt.reading.feed_set import FeedSet
from adapters.mqtt.sessions.store import SessionStore
from adapters.mqtt.shared_subscriptions.groups import ShareGroup
from adapters.mqtt.shared_subscriptions.lane_shards import LaneShards
from adapters.mqtt.shared_subscriptions.lanes import ShareLanes
from adapters.mqtt.subscriptions.filters import TOPIC_BYTES_MAX, parse_subscription
from gateway.shard_lifecycle import ShardLifecycle


class ShareServices(ContextPort, Protocol):
    """Services that are used here; see ``session_context``."""

    groups: dict[str, ShareGroup]
    lanes: ShareLanes

    @property
    def feeds(self) -> FeedSet:
        """The feeds of the node."""
        ...

    @property
    def store(self) -> SessionStore:
        """The stream that keeps sessions."""
        ...

    def group(self, name: str, topic_filter: str) -> ShareGroup:
        """Return a shared subscription, made when there is none."""
        ...

    def leave_catch_ups(self, follower: Follower, behind: Collection[int]) -> None:
        """End the catching up of a follower in partitions."""
        ...


class ShareShards:
    """Groups of this node while their shards move."""

    def __init__(self, context: ShareServices, shards: ShardLifecycle) -> None:
        self._context = context
        self._shards = shards
        self.lanes = LaneShards(context.lanes, context.feeds, context.groups, self.find_group)

    def restore(self, name: str, topic_filter: str, positions: dict[int, int]) -> None:
        """Restore the positions of a group; one without members on any node is removed."""
        group = self._context.group(name, topic_filter)
        if not group.online:  # else this node knows more
            group.positions = {**positions, **group.positions}
        if not group.members:
            self.end(group)

    def find_group(self, written: str) -> ShareGroup | None:
        """Return the group of a stored lane; None when it is over."""
        group = self._context.groups.get(written)
        if group is None and not self._shards.serves_all:
            name, topic_filter = parse_subscription(written, levels_max=TOPIC_BYTES_MAX + 1)
            assert name is not None
            group = self._context.group(name, topic_filter)
            group.park()
        return group

    def end(self, group: GroupPort) -> None:
        """End a group without members; while other nodes may have some, it stays as it is."""
        if not self._shards.serves_all:
            group.park()
            return
        self._context.groups.pop(group.written, None)
        group.end()
        self._context.dirty_groups.discard(group)
        self._context.store.remove_group(group)

    def end_empty_groups(self) -> None:
        """End the groups without members, if this node serves all shards."""
        for group in [one for one in self._context.groups.values() if not one.members]:
            self.end(group)

    def quiesce(self, shards: Collection[int]) -> None:
        """Hand over the positions of groups in partitions that leave, and stop reading there."""
        context = self._context
        leaving = [one.partition_id for one in context.feeds if one.partition.shard in shards]
        for group in context.groups.values() if leaving else ():
            context.leave_catch_ups(group, leaving)
        self.lanes.quiesce(shards)
        for group in context.groups.values():
            if group.is_kept and context.store.shard_of_group(group) in shards:
                context.lanes.open_all(group)
        context.write_journals()
        self.lanes.drop_shards(shards)
