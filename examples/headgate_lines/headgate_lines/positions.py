"""Positions of named readers: an internal stream, so that they survive a restart."""

import asyncio
from typing import Final

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.errors import Overloaded, StorageUnavailable
from gateway.sharded_stream import ShardedStream
from gateway.topics.manager import TopicManager

STREAM: Final = "__lines_positions"


class ReaderPositions:
    """The offset at which each reader goes on, by topic. Loop only."""

    def __init__(self, stream: ShardedStream, *, readers_max: int) -> None:
        self._stream = stream
        self._readers_max = readers_max

    @classmethod
    async def open(
        cls, broker: Broker, topics: TopicManager, clock: Clock, *, readers_max: int
    ) -> "ReaderPositions":
        """Return the positions that are stored. Error: ``StorageUnavailable``."""
        stream = await ShardedStream.open(STREAM, broker, topics, clock)
        await stream.load()
        return cls(stream, readers_max=readers_max)

    def find(self, topic: str, reader: str) -> int | None:
        """Return the offset at which a reader goes on, or None for one that is new."""
        value = self._stream.get(_key(topic, reader))
        return None if value is None else int(value)

    async def keep(self, topic: str, reader: str, offset: int) -> None:
        """Store where a reader goes on; return once it is durable.

        Errors: ``Overloaded`` when there are too many readers; ``StorageUnavailable``.
        """
        key = _key(topic, reader)
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


def _key(topic: str, reader: str) -> bytes:
    return f"{topic} {reader}".encode()  # neither has a space
