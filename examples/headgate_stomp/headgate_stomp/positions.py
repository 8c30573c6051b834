"""Positions of durable subscriptions to topics: an internal stream, so that they survive.

A position lies in the shard of its topic's partition. So the node that serves the topic has the
positions of its subscribers, and when the shard moves to another node, they move with it.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.errors import NotLeader, Overloaded
from gateway.partition import Partition
from gateway.sharded_stream import ShardedStream
from gateway.slots import shard_of_key
from gateway.storage import OnDone
from gateway.topics.manager import Topic, TopicManager

STREAM: Final = "__stomp_positions"
_UUID_BYTES: Final = 16
_PARTITION_BYTES: Final = 20
"""Bytes of a key that name the partition, in the form that its shard is computed from."""


class TopicPositions:
    """The offset at which each durable subscription goes on, by partition. Loop only.

    Ask for a partition that ``Broker.partition`` has just returned: then its shard is open here.
    """

    def __init__(self, stream: ShardedStream, broker: Broker, *, positions_max: int) -> None:
        self._stream = stream
        self._shards = broker.shards
        self._positions_max = positions_max

    @classmethod
    async def open(
        cls, broker: Broker, topics: TopicManager, clock: Clock, *, positions_max: int
    ) -> "TopicPositions":
        """Return the positions in this node's shards, and follow shards that come and go.

        Error: ``StorageUnavailable``.
        """
        count = broker.placement.shard_count
        stream = await ShardedStream.open(
            STREAM,
            broker,
            topics,
            clock,
            rule=lambda key, _value: shard_of_key(key[:_PARTITION_BYTES], count),
        )
        await stream.load()
        broker.shards.register(stream)
        positions = cls(stream, broker, positions_max=positions_max)
        topics.on_deleted.append(positions.forget_topic)
        return positions

    def close(self) -> None:
        """Follow shards no more; for an adapter that stops."""
        self._shards.unregister(self._stream)

    def find(self, partition: Partition, subscriber: str) -> int | None:
        """Return the offset at which a subscriber goes on, or None for one that is new."""
        value = self._stream.get(_key(partition, subscriber))
        return None if value is None else int(value)

    def keep(self, subscriber: str, ends: Mapping[Partition, int], on_done: OnDone) -> None:
        """Store where a subscriber goes on; ``on_done`` once it is durable.

        Errors: ``Overloaded`` when there are too many positions; ``NotLeader``.
        """
        items = [(_key(one, subscriber), b"%d" % end) for one, end in ends.items()]
        new_count = sum(self._stream.get(key) is None for key, _ in items)
        if new_count and len(self._stream.values) + new_count > self._positions_max:
            msg = f"positions_max is {self._positions_max}"
            raise Overloaded(msg)
        self._stream.put(items, on_done)

    def forget(self, subscriber: str, partitions: list[Partition], on_done: OnDone) -> None:
        """Remove a subscriber's positions. Error: ``NotLeader``."""
        self._stream.put([(_key(one, subscriber), None) for one in partitions], on_done)

    def forget_topic(self, topic: Topic) -> None:
        """Remove the positions of a topic that was deleted."""
        uuid = topic.uuid.bytes
        gone = [(key, None) for key in self._stream.values if key[:_UUID_BYTES] == uuid]
        if gone:
            with suppress(NotLeader):  # its shard is leaving: the next owner forgets them
                self._stream.put(gone, _ignore)


def _key(partition: Partition, subscriber: str) -> bytes:
    number = partition.number.to_bytes(4, "big")
    return partition.topic.uuid.bytes + number + subscriber.encode()


def _ignore(_error: object) -> None:
    """Let a failed removal be: the key counts for nothing, and a failed write stops the node."""
