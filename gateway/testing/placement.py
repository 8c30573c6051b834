"""Placement that a test sets: shards are given to another node, and taken back."""

from collections.abc import Collection, Sequence
from typing import Final

from gateway.placement import Node, OnShards

CLUSTER_ID: Final = "cluster-of-the-test-22"


class SettablePlacement:
    """Cluster of two nodes, of which this one is the first; it owns every shard at first.

    A change happens in one turn of the loop: ``before_release``, the new owner with an epoch one
    higher, ``on_change``. Appends that were enqueued before complete afterwards, so wait for
    ``Broker.after_pending`` before another kernel on the same storage takes the shard.
    """

    def __init__(
        self,
        shard_count: int,
        *,
        epoch: int = 1,
        node: Node = Node(1, "127.0.0.1"),  # noqa: B008 - immutable
        other: Node = Node(2, "127.0.0.2"),  # noqa: B008 - immutable
    ) -> None:
        self.node_id = node.node_id
        self.cluster_id = CLUSTER_ID
        self.shard_count = shard_count
        self.before_release: list[OnShards] = []
        self.on_change: list[OnShards] = []
        self.node = node
        self.other = other
        self._owners: list[Node | None] = [node] * shard_count
        self._epochs = [epoch] * shard_count

    @property
    def owns_all(self) -> bool:
        """See ``Placement``."""
        return all(owner is self.node for owner in self._owners)

    def nodes(self) -> Sequence[Node]:
        """See ``Placement``."""
        return sorted((self.node, self.other))

    def owner(self, shard: int) -> Node | None:
        """See ``Placement``."""
        return self._owners[shard]

    def owns(self, shard: int) -> bool:
        """See ``Placement``."""
        return self._owners[shard] is self.node

    def epoch(self, shard: int) -> int:
        """See ``Placement``."""
        return self._epochs[shard]

    def share_epochs(self, other: "SettablePlacement") -> None:
        """Count epochs together with another node's placement of the same shards."""
        self._epochs = other._epochs  # noqa: SLF001 - of its own class

    def give(self, shards: Collection[int]) -> None:
        """Give shards to the other node."""
        self._set(shards, self.other)

    def abandon(self, shards: Collection[int]) -> None:
        """Leave shards without an owner."""
        self._set(shards, None)

    def take(self, shards: Collection[int]) -> None:
        """Take shards back."""
        self._set(shards, self.node)

    def renew(self, shards: Collection[int]) -> None:
        """Raise the epochs of shards, whose owner stays."""
        for shard in shards:
            self._epochs[shard] += 1
        for follow in self.on_change:
            follow(shards)

    def _set(self, shards: Collection[int], owner: Node | None) -> None:
        changed = [shard for shard in shards if self._owners[shard] is not owner]
        released = [shard for shard in changed if self._owners[shard] is self.node]
        if released:
            for seal in self.before_release:
                seal(released)
        for shard in changed:
            self._owners[shard] = owner
            self._epochs[shard] += 1
        if changed:
            for follow in self.on_change:
                follow(changed)
