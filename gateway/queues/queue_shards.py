"""Lanes of all queues by shard: loaded from the journal, and closed when their shard leaves."""

from collections.abc import Callable, Collection, Iterable, Mapping

from gateway.placement import shard_of
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.queue import Queue


class QueueShards:
    """The queues' part in the life cycle of shards: see ``ShardState``."""

    def __init__(self, context: QueueContext, queues: Callable[[], Iterable[Queue]]) -> None:
        self._context = context
        self._placement = context.broker.placement
        self._queues = queues
        self.open_shards: set[int] = set()
        context.broker.placement.on_change.append(self._follow_owners)

    def close(self) -> None:
        """Stop to follow owners."""
        self._context.broker.placement.on_change.remove(self._follow_owners)

    def quiesce_shards(self, _shards: Collection[int]) -> None:
        """See ``ShardState``."""
        self._context.journal.seal()

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        self.open_shards.difference_update(shards)
        for queue in self._queues():
            queue.remove_lanes([lane for lane in queue.lanes if lane.partition.shard in shards])
        self._context.journal.close_shards(shards)

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        wanted = frozenset(shards)
        lanes = [
            (queue, lane)
            for queue in self._queues()
            for lane in self._lanes_of(queue, self._numbers(queue, wanted))
        ]
        loader = _Loader({lane.lane_id: lane for _, lane in lanes})
        await self._context.journal.load_shards(shards, loader.on_entry)
        self.open_shards |= wanted
        now = self._context.clock.steady_unix_ms()
        for queue, lane in lanes:
            if queue.is_gone or lane.partition.is_gone:  # meanwhile
                continue
            queue.add_lanes([lane])
            effects = lane.lane.recovered(now)
            lane.open()
            lane.done(effects)
            lane.tick()  # leases have ended meanwhile
        for queue in self._queues():  # some may have got partitions meanwhile
            self.grow(queue)
            queue.renew_presence()

    def grow(self, queue: Queue) -> None:
        """Add a lane for each new partition of the topic in shards that are open."""
        present = {lane.number for lane in queue.lanes}
        numbers = [n for n in self._numbers(queue, self.open_shards) if n not in present]
        added = self._lanes_of(queue, numbers)
        queue.add_lanes(added)
        for lane in added:
            lane.open()

    def _numbers(self, queue: Queue, shards: Collection[int]) -> list[int]:
        """Return the numbers of the queue's partitions that lie in some shards."""
        numbers = range(len(queue.topic.partition_ids))
        if self._placement.shard_count == 1:
            return list(numbers) if shards else []
        return [n for n in numbers if shard_of(queue.topic, n, self._placement) in shards]

    def _lanes_of(self, queue: Queue, numbers: Iterable[int]) -> list[QueueLane]:
        """Return new lanes, of which the journal has nothing so far. Error: ``NotLeader``."""
        lanes = []
        for number in numbers:
            partition = self._context.broker.loaded_partition(queue.topic, number)
            lane = queue.new_lane(partition, partition.log_start_offset)
            lane.is_ahead = True  # its first entry is a snapshot
            lanes.append(lane)
        return lanes

    def _follow_owners(self, _shards: Collection[int]) -> None:
        """Stop to serve the queues of which another node owns a partition now."""
        for queue in self._queues():
            if any(lane.partition.is_gone for lane in queue.lanes):
                queue.leave_node()


class _Loader:
    """Replays the journal. Entries before a lane's snapshot belong to a deleted queue."""

    def __init__(self, lanes: Mapping[bytes, QueueLane]) -> None:
        self._lanes = lanes

    def on_entry(self, lane_id: bytes, entry: bytes, is_snapshot: bool) -> None:  # noqa: FBT001
        """See ``gateway.queues.journal.OnEntry``."""
        lane = self._lanes.get(lane_id)
        if lane is None or (lane.is_ahead and not is_snapshot):
            return
        lane.lane.apply(entry)
        lane.is_ahead = False
