"""Placement: ownership of shards, for one node today and a cluster later.

Partitions, groups and sessions lie in shards (see ``gateway.slots``). A shard has one owner, and
the leader epoch of all that lies in it grows whenever its owner, or the owner's incarnation,
changes. Whoever serves a partition or a group asks here first.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from gateway.slots import shard_of_partition

OnShards = Callable[[Collection[int]], None]
"""Callback with the numbers of shards. It is cheap, does not wait and does not raise."""


class Node(NamedTuple):
    """A member of the cluster. ``host`` is for people; protocols advertise their own."""

    node_id: int
    host: str
    rack: str | None = None


class Placement(Protocol):
    """Owners of shards. Answers come from memory, without waiting."""

    before_release: list[OnShards]
    """Called while this node still owns the shards, in the same turn of the loop as the change:
    what is gathered for them is appended now."""
    on_change: list[OnShards]
    """Called in the turn in which the owner or the epoch of shards has changed, in order."""

    @property
    def node_id(self) -> int:
        """This node's number in its cluster."""
        ...

    @property
    def cluster_id(self) -> str:
        """The cluster's name, chosen once, 22 characters of base64url as Kafka's are."""
        ...

    @property
    def shard_count(self) -> int:
        """Number of shards, fixed for the cluster."""
        ...

    @property
    def owns_all(self) -> bool:
        """Whether every shard is this node's."""
        ...

    def nodes(self) -> Sequence[Node]:
        """Return the nodes that are alive, this one included, by ascending number."""
        ...

    def owner(self, shard: int) -> Node | None:
        """Return the node that serves a shard; None while nobody does."""
        ...

    def owns(self, shard: int) -> bool:
        """Say whether this node serves a shard."""
        ...

    def epoch(self, shard: int) -> int:
        """Return the leader epoch of what lies in a shard; it never goes down (KIP-101)."""
        ...


class PlacedTopic(Protocol):
    """Topic, as far as the shards of its partitions depend on it."""

    uuid: UUID

    @property
    def is_internal(self) -> bool:
        """Whether it is an internal stream."""
        ...


def shard_of(topic: PlacedTopic, number: int, placement: Placement) -> int:
    """Return the shard of a topic's partition.

    An internal stream's partition ``n`` holds what belongs to shard ``n``.
    """
    if topic.is_internal:
        return number % placement.shard_count
    return shard_of_partition(topic.uuid, number, placement.shard_count)


def owner_id_of(shard: int, placement: Placement) -> int:
    """Return the number of the node that serves a shard; -1 while nobody does."""
    owner = placement.owner(shard)
    return -1 if owner is None else owner.node_id


class SingleNode:
    """A cluster of one: it owns every shard, and its incarnation is every shard's epoch.

    The incarnation grows by one at every start, so that a reader who saw a tail that a crash
    then took away is told so by a newer epoch.
    """

    owns_all = True

    def __init__(
        self,
        incarnation: int,
        *,
        node_id: int,
        cluster_id: str,
        host: str = "127.0.0.1",
        shard_count: int = 1,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.shard_count = shard_count
        self.before_release: list[OnShards] = []
        self.on_change: list[OnShards] = []
        self._nodes = (Node(node_id, host),)
        self._epoch = incarnation

    def nodes(self) -> Sequence[Node]:
        """See ``Placement``."""
        return self._nodes

    def owner(self, shard: int) -> Node:
        """See ``Placement``: this node."""
        assert 0 <= shard < self.shard_count
        return self._nodes[0]

    def owns(self, shard: int) -> bool:
        """See ``Placement``: all shards are ours."""
        assert 0 <= shard < self.shard_count
        return True

    def epoch(self, shard: int) -> int:
        """See ``Placement``."""
        assert 0 <= shard < self.shard_count
        return self._epoch
