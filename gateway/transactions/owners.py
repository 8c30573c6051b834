"""Owners of transactional ids: the transactions of an id lie in the shard of its name."""

from gateway.broker import Broker
from gateway.errors import CoordinatorLoading, NotCoordinator
from gateway.placement import Node, owner_id_of
from gateway.slots import shard_of_transactional_id
from gateway.transactions.journal import TransactionalId


class TransactionOwners:
    """Answers which node coordinates a transactional id."""

    def __init__(self, broker: Broker) -> None:
        self._placement = broker.placement
        self._shards = broker.shards

    def shard(self, name: TransactionalId) -> int:
        """Return the shard of an id."""
        return shard_of_transactional_id(name.name, self._placement.shard_count)

    def owner(self, name: TransactionalId) -> Node | None:
        """Return the node that coordinates an id; None while nobody does."""
        return self._placement.owner(self.shard(name))

    def owns(self, name: TransactionalId) -> bool:
        """Say whether this node coordinates an id, and has loaded it."""
        return self._shards.is_open(self.shard(name))

    def epoch(self, name: TransactionalId) -> int:
        """Return the epoch of the shard of an id: that of the coordinator in markers."""
        return self._placement.epoch(self.shard(name))

    def check(self, name: TransactionalId) -> None:
        """Raise ``NotCoordinator`` for another node's id; ``CoordinatorLoading``."""
        shard = self.shard(name)
        if self._shards.is_open(shard):
            return
        if self._placement.owns(shard):
            raise CoordinatorLoading("transactions are being read")
        raise NotCoordinator(
            f"transactional id {name.name[:80]!r} is another node's",
            owner_id=owner_id_of(shard, self._placement),
            epoch=self._placement.epoch(shard),
        )
