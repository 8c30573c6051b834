"""A house with compaction."""

from functools import partial

from gateway.config.settings import CompactionConfig
from gateway.partition import Partition
from gateway.records.codec import decode_batch, encode_batch
from gateway.sharded_stream import ShardedStream
from gateway.upkeep.compaction import COMPACTION_TOPIC, Compaction
from gateway.writer import Write
from tests.gateway.kernel_in_memory import House, outcome

CONFIG = CompactionConfig(interval_ms=10, bytes_per_s_max=1 << 40)


class Cleaned:
    """A house with compaction."""

    compaction: Compaction

    def __init__(self, house: House) -> None:
        self.house = house

    async def open(self, config: CompactionConfig = CONFIG) -> None:
        house = self.house
        stream = await ShardedStream.open(
            COMPACTION_TOPIC, house.broker, house.topics, house.clock
        )
        self.compaction = Compaction(house.broker, house.topics, house.clock, config, stream)
        await self.compaction.load()

    async def topic(self, **configs: str) -> Partition:
        return await self.house.partition("state", **{"cleanup_policy": "compact", **configs})

    async def append(self, partition: Partition, *items: tuple[bytes, bytes | None]) -> None:
        """Append each key and value as a batch of its own."""
        for item in items:
            await self.append_batch(partition, item)

    async def append_batch(
        self, partition: Partition, *items: tuple[bytes, bytes | None]
    ) -> None:
        """Append keys and values as one batch."""
        now_unix_ms = self.house.clock.unix_ms()
        batch = encode_batch([(now_unix_ms, key, value, ()) for key, value in items])
        write = self.house.broker.prepare(partition, batch)
        assert isinstance(write, Write)
        assert await outcome(partial(self.house.broker.append, [write])) is None

    def stored(self, partition: Partition) -> list[tuple[int, bytes | None, bytes | None]]:
        batches = self.house.broker.read(
            partition, partition.log_start_offset, bytes_max=1 << 30
        )
        records = [record for batch in batches or () for record in decode_batch(batch)]
        return [(record.offset, record.key, record.value) for record in records]

    def values(self, partition: Partition) -> list[bytes | None]:
        return [value for _, _, value in self.stored(partition)]


def numbered(key: bytes, count: int) -> list[tuple[bytes, bytes | None]]:
    return [(key, b"%d" % number) for number in range(count)]
