"""Retention: the decision as a pure function, the passes over real storages and broker."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker import Broker
from gateway.clock import ManualClock
from gateway.config.settings import BrokerConfig, RetentionConfig, TopicDefaults
from gateway.errors import StorageUnavailable
from gateway.metadata.sql import SqlMetadata
from gateway.model import TopicName
from gateway.placement import SingleNode
from gateway.records.codec import encode_batch
from gateway.registry import storage_class
from gateway.topics.manager import Topic, TopicManager
from gateway.upkeep.retention import Retention, first_to_keep
from gateway.writer import Write
from tests.support.storage_host import TopicsHost

ORDERS = TopicName("default", "orders")
DAY_MS = 86_400_000
NOW_UNIX_MS = 1_700_000_000_000


def batch_of(count: int, timestamp_unix_ms: int) -> bytearray:
    return encode_batch([(timestamp_unix_ms, b"key", b"value", ())] * count)


class Node(TopicsHost):
    """The parts of a node that retention needs, over storages in memory."""

    def __init__(self, topics: TopicManager, clock: ManualClock) -> None:
        self.topics = topics
        self.clock = clock
        self.broker: Broker
        self.retention: Retention

    def append(
        self,
        topic: Topic,
        *,
        number: int = 0,
        count: int = 1,
        timestamp_unix_ms: int | None = None,
    ) -> asyncio.Future[None]:
        """Append a batch, made now if not said otherwise; the future ends when it is kept."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_done(error: StorageUnavailable | None) -> None:
            assert error is None
            done.set_result(None)

        partition = self.broker.partition(topic, number)
        made_unix_ms = timestamp_unix_ms or self.clock.unix_ms()
        write = self.broker.prepare(partition, batch_of(count, made_unix_ms))
        assert isinstance(write, Write)
        self.broker.append([write], on_done)
        return done

    def start_offset(self, topic: Topic, number: int = 0) -> int:
        return self.broker.storage.bounds(topic.partition_ids[number]).start

    async def settle(self) -> None:
        """Wait for what is on its way to the storage."""
        done = asyncio.Event()
        self.broker.after_pending(lambda _: done.set())
        await done.wait()


@pytest.fixture(params=["memory", "segment_log"])
async def node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Node]:
    metadata = SqlMetadata("sqlite", data_dir=tmp_path)
    await metadata.open()
    clock = ManualClock(NOW_UNIX_MS)
    topics = TopicManager(metadata, defaults=TopicDefaults(), clock=clock)
    await topics.load()
    made = Node(topics, clock)
    storage_of = storage_class(request.param)
    storage = storage_of(storage_of.Config(), data_dir=tmp_path, clock=clock)
    await storage.open(made)
    placement = SingleNode(storage.incarnation, node_id=1, cluster_id="test")
    made.broker = Broker(storage, placement, clock, BrokerConfig())
    made.retention = Retention(topics, made.broker, clock, RetentionConfig(interval_ms=100))
    yield made
    made.retention.stop()
    await storage.close()
    await metadata.close()


async def test_what_is_too_old_goes_and_the_rest_stays(node: Node) -> None:
    topic = await node.topics.create(ORDERS, configs={"retention.ms": str(DAY_MS)})
    await node.append(topic, count=3)
    node.clock.advance(DAY_MS // 2)
    await node.append(topic, count=5)

    node.clock.advance(DAY_MS // 2)
    await node.retention.run_once()
    assert node.start_offset(topic) == 0  # the first batch is exactly a day old

    node.clock.advance(1)
    await node.retention.run_once()
    assert node.start_offset(topic) == 3
    assert node.broker.partition(topic, 0).log_start_offset == 3

    node.clock.advance(DAY_MS)
    await node.retention.run_once()
    assert node.start_offset(topic) == 8
    assert node.retention.passes == 3
    assert node.retention.truncations == 2


async def test_records_are_as_old_as_the_clock_as_it_is_says(node: Node) -> None:
    """The clock was two days ahead, and was set right; producers' clocks always were right."""
    topic = await node.topics.create(ORDERS, configs={"retention.ms": str(DAY_MS)})
    node.clock.step_unix(2 * DAY_MS)
    node.clock.unix_ms()
    node.clock.step_unix(-2 * DAY_MS)
    await node.append(topic, timestamp_unix_ms=NOW_UNIX_MS)

    await node.retention.run_once()
    assert node.start_offset(topic) == 0

    node.clock.advance(DAY_MS + 1)
    await node.retention.run_once()
    assert node.start_offset(topic) == 1


async def test_what_is_too_much_goes(node: Node) -> None:
    batch_bytes = len(batch_of(2, NOW_UNIX_MS))
    topic = await node.topics.create(
        ORDERS,
        partitions=2,
        configs={"retention.bytes": str(3 * batch_bytes), "retention.ms": "-1"},
    )
    for _ in range(5):
        await node.append(topic, number=1, count=2)

    await node.retention.run_once()

    assert node.start_offset(topic, 0) == 0
    assert node.start_offset(topic, 1) == 4


async def test_a_topic_without_limits_keeps_everything(node: Node) -> None:
    topic = await node.topics.create(ORDERS, configs={"retention.ms": "-1"})
    await node.append(topic)
    node.clock.advance(1000 * DAY_MS)

    await node.retention.run_once()

    assert node.start_offset(topic) == 0


async def test_internal_topics_are_left_alone(node: Node) -> None:
    topic = await node.topics.create(TopicName("default", "__cursors"), internal=True)
    await node.append(topic)
    node.clock.advance(1000 * DAY_MS)

    await node.retention.run_once()

    assert node.start_offset(topic) == 0


async def test_a_changed_limit_holds_at_the_next_pass(node: Node) -> None:
    topic = await node.topics.create(ORDERS)
    await node.append(topic, count=4)
    node.clock.advance(1000)
    await node.retention.run_once()
    assert node.start_offset(topic) == 0

    await node.topics.alter_configs(ORDERS, {"retention.ms": "999"})
    await node.retention.run_once()

    assert node.start_offset(topic) == 4


async def test_an_unused_partition_gets_no_state_in_the_broker(node: Node) -> None:
    topic = await node.topics.create(ORDERS, partitions=300)

    await node.retention.run_once()

    assert topic.partitions == [None] * 300


async def test_a_pass_lets_others_have_their_turn(node: Node) -> None:
    await node.topics.create(ORDERS, partitions=300)
    turns: list[int] = []
    loop = asyncio.get_running_loop()

    def take_turn() -> None:
        turns.append(len(turns))
        loop.call_soon(take_turn)

    loop.call_soon(take_turn)
    await node.retention.run_once()

    assert len(turns) >= 300 // 64


async def test_a_topic_that_goes_away_during_a_pass_is_passed_over(node: Node) -> None:
    topic = await node.topics.create(ORDERS, partitions=2, configs={"retention.ms": "1"})
    await node.append(topic, number=0)
    await node.append(topic, number=1)
    node.clock.advance(2)
    storage = node.broker.storage
    look_up = storage.base_offset_for_time

    async def delete_meanwhile(partition_id: int, timestamp_unix_ms: int) -> int | None:
        await node.topics.delete(ORDERS)
        return await look_up(partition_id, timestamp_unix_ms)

    storage.base_offset_for_time = delete_meanwhile  # type: ignore[method-assign]
    await node.retention.run_once()

    assert node.retention.truncations == 0
    assert node.start_offset(topic, 0) == node.start_offset(topic, 1) == 0


async def test_passes_are_made_once_per_interval(node: Node) -> None:
    topic = await node.topics.create(ORDERS, configs={"retention.ms": "1"})
    await node.append(topic, count=2)
    node.clock.advance(2)
    gone = asyncio.Event()
    truncate = node.broker.truncate_before

    def truncate_and_tell(*args: Any) -> None:
        truncate(*args)
        gone.set()

    setattr(node.broker, "truncate_before", truncate_and_tell)  # noqa: B010 - for mypy
    node.retention.start()

    await asyncio.wait_for(gone.wait(), timeout=30)
    await node.settle()

    assert node.start_offset(topic) == 2


offsets = st.integers(0, 50)


@given(start=offsets, more=offsets, young=st.none() | offsets, sized=offsets)
def test_the_decision(start: int, more: int, young: int | None, sized: int) -> None:
    high_watermark = start + more

    offset = first_to_keep(
        log_start_offset=start,
        high_watermark=high_watermark,
        first_young_offset=young,
        first_within_size=sized,
    )

    kept_from = start if offset is None else offset
    assert start <= kept_from <= high_watermark
    assert (offset is None) == (kept_from == start)
    for lost in range(start, kept_from):
        assert young is None or lost < young or lost < sized
    if kept_from < high_watermark:
        assert young is not None
        assert kept_from >= min(young, high_watermark)
        assert kept_from >= min(sized, high_watermark)
