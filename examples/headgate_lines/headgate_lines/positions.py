"""Positions of named readers: an internal stream, so that they survive a restart.

A position lies in the shard of its topic's partition. So the node that serves the topic has the
positions of its readers, and when the shard moves to another node, they move with it.
"""

import asyncio
from typing import Final

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.errors import Overloaded, StorageUnavailable
from gateway.partition import Partition
from gateway.sharded_stream import ShardedStream
from gateway.slots import shard_of_key
from gateway.topics.manager import TopicManager

STREAM: Final = "__lines_positions"
_PARTITION_BYTES: Final = 20
"""Bytes of a key that name the partition, in the form that its shard is computed from."""


class ReaderPositions:
    """The offset at which each reader goes on, by partition. Loop only.

    Ask for a partition that ``Broker.partition`` has just returned: then its shard is open here.
    """

    def __init__(self, stream: ShardedStream, broker: Broker, *, readers_max: int) -> None:
        self._stream = stream
        self._shards = broker.shards
        self._readers_max = readers_max

    @classmethod
    async def open(
        cls, broker: Broker, topics: TopicManager, clock: Clock, *, readers_max: int
    ) -> "ReaderPositions":
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
        return cls(stream, broker, readers_max=readers_max)

    def close(self) -> None:
        """Follow shards no more; for an adapter that stops."""
        self._shards.unregister(self._stream)

    def find(self, partition: Partition, reader: str) -> int | None:
        """Return the offset at which a reader goes on, or None for one that is new."""
        value = self._stream.get(_key(partition, reader))
        return None if value is None else int(value)

    async def keep(self, partition: Partition, reader: str, offset: int) -> None:
        """Store where a reader goes on; return once it is durable.

        Errors: ``Overloaded`` when there are too many readers; ``NotLeader``;
        ``StorageUnavailable``.
        """
        key = _key(partition, reader)
        if self._stream.get(key) is None and len(self._stream.values) >= self._readers_max:
            msg = f"readers_max is {self._readers_max}"
            raise Overloaded(msg)
        loop = asyncio.get_running_loop()
        kept: asyncio.Future[StorageUnavailable | None] = loop.create_future()

        def on_done(error: StorageUnavailable | None) -> None:
            if not kept.done():  # the connection may have gone
                kept.set_result(error)

        self._stream.put([(key, b"%d" % offset)], on_done)
        if (error := await kept) is not None:
            raise error


def _key(partition: Partition, reader: str) -> bytes:
    number = partition.number.to_bytes(4, "big")
    return partition.topic.uuid.bytes + number + reader.encode()
