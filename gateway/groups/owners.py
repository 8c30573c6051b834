"""Owners of consumer groups: a group's members and positions lie in the shard of its name."""

from collections.abc import Collection

from gateway.errors import CoordinatorLoading, NotCoordinator
from gateway.groups.model import GroupName
from gateway.placement import Node, Placement, owner_id_of
from gateway.slots import shard_of_group


class GroupOwners:
    """Answers which node coordinates a group."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.loading: Collection[int] = ()
        """Shards that have come, whose groups are not loaded yet."""

    def shard(self, name: GroupName) -> int:
        """Return the shard of a group."""
        return shard_of_group(name.namespace, name.name, self.placement.shard_count)

    def owner(self, name: GroupName) -> Node | None:
        """Return the node that coordinates a group; None while nobody does."""
        return self.placement.owner(self.shard(name))

    def owns(self, name: GroupName) -> bool:
        """Say whether this node coordinates a group, and has loaded it."""
        placement = self.placement
        if placement.owns_all and not self.loading:
            return True
        shard = self.shard(name)
        return placement.owns(shard) and shard not in self.loading

    def check(self, name: GroupName) -> None:
        """Raise ``NotCoordinator`` for another node's group; ``CoordinatorLoading``."""
        if not self.owns(name):
            raise self.refusal(name)

    def refusal(self, name: GroupName) -> NotCoordinator | CoordinatorLoading:
        """Return the error for a group of another node, or one that is not loaded yet."""
        shard = self.shard(name)
        if self.placement.owns(shard):
            return CoordinatorLoading("the group is being read")
        return NotCoordinator(
            f"group {name.name[:80]!r} is another node's",
            owner_id=owner_id_of(shard, self.placement),
            epoch=self.placement.epoch(shard),
        )
