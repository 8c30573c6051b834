"""Owners of consumer groups: a group's members and positions lie in the shard of its name."""

from gateway.errors import NotCoordinator
from gateway.groups.model import GroupName
from gateway.placement import Node, Placement, owner_id_of
from gateway.slots import shard_of_group


class GroupOwners:
    """Answers which node coordinates a group."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement

    def shard(self, name: GroupName) -> int:
        """Return the shard of a group."""
        return shard_of_group(name.namespace, name.name, self.placement.shard_count)

    def owner(self, name: GroupName) -> Node | None:
        """Return the node that coordinates a group; None while nobody does."""
        return self.placement.owner(self.shard(name))

    def owns(self, name: GroupName) -> bool:
        """Say whether this node coordinates a group."""
        placement = self.placement
        return placement.owns_all or placement.owns(self.shard(name))

    def check(self, name: GroupName) -> None:
        """Raise ``NotCoordinator`` for a group that another node owns."""
        if not self.owns(name):
            raise self.refusal(name)

    def refusal(self, name: GroupName) -> NotCoordinator:
        """Return the error for a group of another node, with that node."""
        shard = self.shard(name)
        return NotCoordinator(
            f"group {name.name[:80]!r} is another node's",
            owner_id=owner_id_of(shard, self.placement),
            epoch=self.placement.epoch(shard),
        )
