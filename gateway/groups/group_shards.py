"""Consumer groups by shard: loaded when their shard comes, after its committed positions."""

from collections.abc import Callable, Collection

from gateway.groups.owners import GroupOwners
from gateway.shard_lifecycle import ShardLifecycle


class GroupShards:
    """The groups' part in the life cycle of shards: see ``ShardState``."""

    def __init__(
        self,
        shards: ShardLifecycle,
        owners: GroupOwners,
        load: Callable[[Collection[int]], None],
    ) -> None:
        """``load`` restores the groups of some shards."""
        self._shards = shards
        self._load = load
        owners.loading = shards.loading
        self.open_shards = set(shards.owned())
        shards.register(self)

    def close(self) -> None:
        """Follow no more; for a node that stops."""
        self._shards.unregister(self)

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: each change is with the coalescer already."""

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: the groups were dropped when the owner changed."""
        self.open_shards.difference_update(shards)

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        self._load(shards)
        self.open_shards.update(shards)
