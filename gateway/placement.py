"""Placement: ownership of partitions and groups, for one node today and a cluster later.

A partition or a group belongs to one of a fixed number of slots (see ``gateway.slots``); a node
owns slots, and the leader epoch of all that lies in a slot grows whenever its owner, or the
owner's incarnation, changes.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Node(NamedTuple):
    """A member of the cluster. ``host`` is for people; protocols advertise their own."""

    node_id: int
    host: str
    rack: str | None = None


class Placement(Protocol):
    """Owners of partitions and groups. Answers come from memory, without waiting."""

    @property
    def node_id(self) -> int:
        """This node's number in its cluster."""
        ...

    @property
    def cluster_id(self) -> str:
        """The cluster's name, chosen once, 22 characters of base64url as Kafka's are."""
        ...

    def nodes(self) -> Sequence[Node]:
        """Return the nodes that are alive, this one included, by ascending number."""
        ...

    def owns(self, slot: int) -> bool:
        """Say whether this node serves what lies in ``slot``."""
        ...

    def leader_epoch(self, slot: int) -> int:
        """Return the leader epoch of what lies in ``slot``; it never goes down (KIP-101)."""
        ...


class SingleNode:
    """A cluster of one: it owns every slot, and its incarnation is every slot's leader epoch.

    The incarnation grows by one at every start, so that a reader who saw a tail that a crash
    then took away is told so by a newer epoch.
    """

    def __init__(
        self, incarnation: int, *, node_id: int, cluster_id: str, host: str = "127.0.0.1"
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self._nodes = (Node(node_id, host),)
        self._leader_epoch = incarnation

    def nodes(self) -> Sequence[Node]:
        """See ``Placement``."""
        return self._nodes

    def owns(self, slot: int) -> bool:
        """See ``Placement``: all slots are ours."""
        assert slot >= 0
        return True

    def leader_epoch(self, slot: int) -> int:
        """See ``Placement``."""
        assert slot >= 0
        return self._leader_epoch
