"""Transient queues: made at once, nothing of them is stored, and nothing of them is left."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from features.queue.lane import Lane
from gateway.errors import Overloaded, PolicyViolation, TopicExists
from gateway.model import TopicName
from gateway.partition import Partition
from gateway.queues.lanes import QueueLane
from gateway.queues.manager import Queue
from gateway.queues.model import Outcome, Overflow, QueueSettings
from gateway.queues.transient import CONFIGS, TransientQueues
from gateway.topics.index import Topic
from tests.gateway.queues.queue_node import World, running, settle, take, values
from tests.support.waiting import turns

MIB = 1024 * 1024


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as found:
        yield found


def transient(world: World) -> Callable[..., Queue]:
    maker = TransientQueues(world.queues, world.topics, world.broker, world.clock)

    def create(name: str = "reply", **settings: Any) -> Queue:
        return maker.create(
            TopicName("default", name), QueueSettings(**settings), attributes={"a": "b"}
        )

    return create


async def test_messages_go_through_and_nothing_is_stored(world: World) -> None:
    before = world.storage.next_sequence
    queue = transient(world)()

    await world.send(queue, b"one", b"two", b"three")
    first, second = await take(queue, 2)
    await settle(queue, [first])
    await settle(queue, [second], Outcome.RELEASE)

    assert values(await take(queue)) == [b"two", b"three"]
    assert queue.counts().in_flight == 2
    assert world.storage.next_sequence == before
    assert await world.metadata.topics() == [
        row for row in await world.metadata.topics() if row.name.name.startswith("__")
    ]
    assert await world.metadata.queues() == []


async def test_a_restart_ends_it(world: World) -> None:
    queue = transient(world)()
    await world.send(queue, b"one")

    await world.restart()

    assert world.queues.everything() == []
    assert world.topics.find(TopicName("default", "reply")) is None
    again = transient(world)()
    assert await take(again) == []


def _instances() -> Counter[str]:
    gc.collect()
    kinds = (Queue, QueueLane, Lane, Partition, Topic)
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds))


async def test_a_thousand_come_and_go_and_nothing_is_left(world: World) -> None:
    create = transient(world)
    before = _instances()
    partition_count = world.topics.partition_count

    for number in range(1_000):
        queue = create(f"reply-{number}")
        if number % 50 == 0:
            await world.send(queue, b"one", b"two")
            assert values(await take(queue, 1)) == [b"one"]
        assert world.queues.delete_transient(queue)
    del queue
    world.advance(60_000)  # timers of leases know their lanes until they are due
    await world.turn()

    assert world.topics.partition_count == partition_count
    assert world.split.memory_used_bytes == 0
    assert len(world.broker.holders) == 0
    assert world.topics.pending_deletes() == {}
    assert _instances() == before


async def test_settled_messages_leave_memory(world: World) -> None:
    queue = transient(world)()

    for _ in range(40):
        await world.send(queue, bytes(128 * 1024))
        await settle(queue, await take(queue))

    await world.turn()
    assert world.split.memory_used_bytes < MIB


async def test_the_oldest_of_a_full_queue_go_and_publishers_are_not_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONFIGS, "memory.bytes.max", str(MIB))
    queue = transient(world)()

    for number in range(40):
        await world.send(queue, bytes([number]) * (128 * 1024))
    await world.turn()

    left = values(await take(queue, 40, bytes_max=1 << 30))
    assert left == [bytes([number]) * (128 * 1024) for number in range(40 - len(left), 40)]
    assert 4 <= len(left) <= 9
    assert world.queues.counters.dropped == 40 - len(left)
    assert world.split.memory_used_bytes < 2 * MIB


async def test_a_full_queue_moves_its_oldest_to_the_dead_letters(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONFIGS, "memory.bytes.max", str(MIB))
    dead = await world.queue("dead")
    queue = transient(world)(dead_letter_topic="dead")

    for number in range(40):
        await world.send(queue, bytes([number]) * (128 * 1024))
    await world.until(lambda: queue.counts().ready + dead.counts().ready == 40)

    assert dead.counts().ready >= 31
    assert values(await take(dead, 1)) == [bytes(128 * 1024)]


async def test_a_full_queue_refuses_where_it_is_made_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONFIGS, "memory.bytes.max", str(MIB))
    queue = transient(world)(overflow=Overflow.REJECT_PUBLISH, length_bytes_max=100 * MIB)

    async def fill() -> None:
        for _ in range(40):
            await world.send(queue, bytes(128 * 1024))

    with pytest.raises(Overloaded):
        await fill()
    assert queue.counts().ready >= 7


async def test_dead_letters_go_to_the_log_and_come_from_it(world: World) -> None:
    dead = await world.queue("dead", attempts_max=1)
    queue = transient(world)(attempts_max=1, dead_letter_topic="dead")
    await world.queues.alter(
        dead, settings=QueueSettings(attempts_max=1, dead_letter_topic="reply")
    )

    await world.send(queue, b"one")
    await settle(queue, await take(queue), Outcome.REJECT)
    [one] = await take(dead, wait_ms=60_000)
    assert one.record.value == b"one"
    await settle(dead, [one], Outcome.REJECT)

    assert values(await take(queue, wait_ms=60_000)) == [b"one"]
    assert dead.counts().in_flight == dead.counts().ready == 0


async def test_a_queue_of_a_stored_topic_in_memory_is_there_after_a_restart(
    world: World,
) -> None:
    topic = await world.topic("m", storage_class="memory")
    queue = await world.queues.create(topic, QueueSettings(), owns_topic=True)
    await world.send(queue, b"one", b"two")
    await settle(queue, await take(queue, 1))

    await world.restart()

    queue = world.find("m")
    assert await take(queue) == []
    await world.send(queue, b"three")
    assert values(await take(queue)) == [b"three"]


async def test_names_are_those_of_all_topics(world: World) -> None:
    create = transient(world)
    await world.topic("kept")
    with pytest.raises(TopicExists):
        create("kept")
    task = asyncio.create_task(world.topic("being-made"))
    await turns(10)  # now it is being stored, or is there
    while not task.done():
        with pytest.raises(TopicExists):
            create("being-made")
        await world.turn()
    create("reply")
    with pytest.raises(TopicExists):
        await world.topic("reply")


async def test_it_is_not_changed(world: World) -> None:
    queue = transient(world)()

    with pytest.raises(PolicyViolation):
        await world.topics.alter_configs(queue.name, {"retention.ms": "1"})
    with pytest.raises(PolicyViolation):
        await world.topics.add_partitions(queue.name, 2)
    await world.queues.alter(queue, settings=QueueSettings(lease_ms=1_000))
    await world.queues.delete(queue)
    assert await world.metadata.queues() == []
    assert world.topics.find(queue.name) is None
