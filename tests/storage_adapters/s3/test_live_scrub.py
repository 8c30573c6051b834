"""The scrub of a running node over S3: an outage is no damage, and damage is no outage."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.broker import Broker
from gateway.clock import ManualClock
from gateway.config.settings import BrokerConfig, TopicDefaults
from gateway.errors import StorageUnavailable
from gateway.metadata.sql import SqlMetadata
from gateway.model import TopicName
from gateway.partition import Write
from gateway.placement import SingleNode
from gateway.testing.storage import make_batch
from gateway.topics.manager import TopicManager
from gateway.upkeep import scrub as scrub_module
from gateway.upkeep.scrub import Scrub, ScrubState
from storage_adapters.s3.adapter import S3Storage
from tests.storage_adapters.s3.s3_nodes import NodeBucket, place
from tests.support.s3_proxy import Answer, FlipBody, S3Proxy
from tests.support.storage_host import TopicsHost
from tests.support.waiting import until

__all__ = ["place"]

BATCH_BYTES = len(make_batch(0, 1))


class Node(TopicsHost):
    """Topics and a broker over a bucket behind a proxy, opened anew so that no cache helps."""

    storage: S3Storage
    broker: Broker

    def __init__(self, place: NodeBucket, folder: Path, proxy: S3Proxy) -> None:
        self.metadata_url = place.url
        self._config = place.config(
            endpoint_url=proxy.url, retry_ms_max=0, request_timeout_ms=20_000
        )
        self._folder = folder
        self._clock = ManualClock()

    async def open(self) -> None:
        self._metadata = SqlMetadata("sqlite", data_dir=self._folder)
        await self._metadata.open()
        self.topics = TopicManager(self._metadata, defaults=TopicDefaults(), clock=self._clock)
        await self.topics.load()
        self.storage = S3Storage(self._config, data_dir=self._folder, clock=self._clock)
        await self.storage.open(self)
        placement = SingleNode(
            self.storage.incarnation, node_id=1, cluster_id="cluster-of-one-node-22"
        )
        self.broker = Broker(self.storage, placement, self._clock, BrokerConfig())

    async def close(self) -> None:
        await self.topics.close()
        await self.storage.close()
        await self._metadata.close()

    async def add(self, name: str, count: int) -> None:
        topic = await self.topics.create(TopicName("default", name), partitions=1, configs={})
        partition = self.broker.partition(topic, 0)
        for number in range(count):
            kept: list[StorageUnavailable | None] = []
            write = self.broker.prepare(partition, bytearray(make_batch(number, 1)))
            assert isinstance(write, Write)
            self.broker.append([write], kept.append)
            await until(lambda kept=kept: bool(kept))  # type: ignore[misc]
            assert kept == [None]


@pytest.fixture
async def node(place: NodeBucket, tmp_path: Path, proxy: S3Proxy) -> AsyncIterator[Node]:
    node = Node(place, tmp_path, proxy)
    await node.open()
    await node.add("a", 3)
    await node.add("b", 2)
    await node.close()
    await node.open()
    yield node
    await node.close()


async def test_an_outage_is_read_again_and_is_no_damage(
    node: Node, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub_module, "RETRY_PAUSES_S", (0.0,))
    scrub = Scrub(node.topics, node.broker, 1 << 30)
    proxy.add(Answer(503, "SlowDown"), method="GET", times=1)

    await scrub.run_once()

    assert (scrub.damages, scrub.damages_count, scrub.unread) == ([], 0, [])
    assert scrub.checked_bytes == 5 * BATCH_BYTES
    assert scrub.passes == 1
    assert node.broker.stored.counts == {}


async def test_an_outage_that_lasts_is_reported_and_is_no_damage(
    node: Node, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub_module, "RETRY_PAUSES_S", (0.0, 0.0))
    scrub = Scrub(node.topics, node.broker, 0)
    rule = proxy.add(Answer(503, "SlowDown"), method="GET")
    scrub.start()

    scrub.begin(bytes_per_s=1 << 30)
    await scrub.wait(60)

    assert (scrub.state, scrub.passes) == (ScrubState.IDLE, 0)
    assert scrub.error.startswith(
        "a-0 from offset 0 on and 1 more partition(s) could not be read"
    )
    assert [one[:3] for one in scrub.unread] == [("a", 0, 0), ("b", 0, 0)]
    assert (scrub.damages, node.broker.stored.counts) == ([], {})

    rule.off()
    scrub.begin(bytes_per_s=1 << 30)
    await scrub.wait(60)

    assert (scrub.error, scrub.unread, scrub.passes) == ("", [], 1)
    assert scrub.pass_bytes == 5 * BATCH_BYTES
    scrub.stop()


async def test_a_pass_ends_when_nothing_can_be_read(
    node: Node, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub_module, "UNREAD_MAX", 1)
    scrub = Scrub(node.topics, node.broker, 1 << 30)
    proxy.add(Answer(503, "SlowDown"), method="GET")

    with pytest.raises(StorageUnavailable, match="a-0 from offset 0 on could not be read"):
        await scrub.run_once()

    assert [one.topic for one in scrub.unread] == ["a"]


async def test_damage_is_reported_and_the_rest_is_read(node: Node, proxy: S3Proxy) -> None:
    scrub = Scrub(node.topics, node.broker, 1 << 30)
    proxy.add(FlipBody(at=200), method="GET", key=".seg")  # in the one batch of an object

    await scrub.run_once()

    assert scrub.unread == []
    assert node.broker.stored.counts == {"a": 3, "b": 2}
    assert [one[:3] for one in scrub.damages] == [
        *(("a", 0, offset) for offset in range(3)),
        *(("b", 0, offset) for offset in range(2)),
    ]
