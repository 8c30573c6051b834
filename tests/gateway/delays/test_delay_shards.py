"""Delayed messages lie in the shard of their partition, and move with it."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from gateway.broker import Broker
from gateway.clock import ManualClock
from gateway.coalescer import Coalescer
from gateway.config.queues import DelayConfig
from gateway.delays.sharded import ShardedDelays
from gateway.errors import NotLeader, Overloaded, StorageUnavailable
from gateway.model import TopicName
from gateway.partition import Write
from gateway.placement import shard_of
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from gateway.testing.placement import SettablePlacement
from gateway.topics.manager import Topic
from tests.gateway.kernel_in_memory import House, outcome, running

SHARDS = 64
PARTITIONS = 12
LATER_MS = 600_000


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with running(tmp_path, shard_count=1) as one:
        yield one


async def opened(house: House) -> ShardedDelays:
    return await ShardedDelays.open(house.broker, house.topics, house.clock, DelayConfig())


async def restarted(house: House, shard_count: int) -> ShardedDelays:
    house.shard_count = shard_count
    await house.restart()
    return await opened(house)


async def delayed(house: House, delays: ShardedDelays) -> tuple[Topic, list[int]]:
    """Delay single messages and runs for all partitions; cancel one of each."""
    topic = house.topics.find(TopicName("default", "work"))
    topic = topic or await house.topic("work", PARTITIONS)
    ids: list[int] = []
    for number in range(PARTITIONS):
        for name, count in ((b"one", 2), (b"run", 20)):
            values = tuple(b"%s %d-%d" % (name, number, at) for at in range(count))
            found = await put(house, delays, topic, number, values)
            ids += found
            assert await cancelled(house, delays, number, found[:1]) == [True]
    return topic, ids


async def put(
    house: House, delays: ShardedDelays, topic: Topic, number: int, values: Sequence[bytes]
) -> list[int]:
    """Delay a run as the write path does; return the numbers of its messages."""
    partition = house.broker.partition(topic, number)
    pending = delays.take_run(partition, run_of(house, values))
    assert pending is not None
    assert pending.part is not None
    error = await outcome(partial(Coalescer(house.broker).add, *pending.part))
    pending.done(error)
    assert error is None
    return pending.numbers


def run_of(house: House, values: Sequence[bytes]) -> RecordRun:
    run = RecordRun(None, tuple(values), NO_HEADERS, house.clock.unix_ms())
    run.deliver_at_unix_ms = house.clock.unix_ms() + LATER_MS
    return run


async def cancelled(
    house: House, delays: ShardedDelays, number: int, ids: Sequence[int]
) -> list[bool]:
    """Cancel messages of a partition; return for each whether it was delayed."""
    topic = house.topics.get(TopicName("default", "work"))
    found: list[bool] = []
    owner = delays.of(house.broker.partition(topic, number))
    assert await outcome(lambda done: found.extend(owner.cancel(ids, done))) is None
    return found


EXPECTED = {
    number: sorted(
        [b"one %d-1" % number, *(b"run %d-%d" % (number, at) for at in range(1, 20))]
    )
    for number in range(PARTITIONS)
}


async def delivered(house: House, delays: ShardedDelays) -> dict[int, list[bytes]]:
    """Let time pass; return what each partition has."""
    topic = house.topics.get(TopicName("default", "work"))
    assert isinstance(house.clock, ManualClock)
    house.clock.advance(2 * LATER_MS)
    if not delays._is_started:
        delays.start()
    for _ in range(10_000):
        delays.run()
        await outcome(house.broker.after_pending)
        if not delays.total and not delays.is_busy:
            break
    return {
        number: sorted(map(_text, house.values(house.broker.partition(topic, number))))
        for number in range(PARTITIONS)
    }


def _text(value: bytes | None) -> bytes:
    assert value is not None
    return value


def used(house: House) -> set[int]:
    """Return the shards whose partition of the stream holds entries that live."""
    topic = house.topics.get(TopicName("default", "__delays"))
    partitions = [house.broker.partition(topic, n) for n in range(len(topic.partition_ids))]
    return {one.number for one in partitions if one.high_watermark > one.log_start_offset}


def homes(house: House, topic: Topic) -> set[int]:
    placement = house.broker.placement
    return {shard_of(topic, number, placement) for number in range(PARTITIONS)}


@pytest.mark.parametrize("path", [(1,), (64,), (1, 64), (64, 1), (64, 8, 64)])
async def test_messages_move_when_the_number_of_shards_changes(
    house: House, path: Sequence[int]
) -> None:
    delays = await restarted(house, path[0])
    _, ids = await delayed(house, delays)
    for shard_count in path:
        delays.close()
        delays = await restarted(house, shard_count)
        topic = house.topics.get(TopicName("default", "work"))
        assert delays.total == PARTITIONS * 20
        assert set(delays._by_number) >= homes(house, topic)
    assert len(ids) == len(set(ids))
    assert await delivered(house, delays) == EXPECTED


@pytest.mark.parametrize("appends", [0, 1, 5])
@pytest.mark.parametrize("then", [1, 64])
async def test_a_move_that_is_cut_short_loses_and_doubles_nothing(
    house: House, appends: int, then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = await opened(house)
    await delayed(house, delays)
    delays.close()
    append = Broker.append
    left = appends

    def stopping(self: Broker, writes: Sequence[Write], on_done: object, **how: bool) -> None:
        nonlocal left
        if left == 0:
            raise StorageUnavailable("killed")
        left -= 1
        append(self, writes, on_done, **how)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Broker, "append", stopping)
        with pytest.raises(StorageUnavailable, match="killed"):
            await restarted(house, 64)

    delays = await restarted(house, then)
    assert delays.total == PARTITIONS * 20
    assert await delivered(house, delays) == EXPECTED


async def test_messages_leave_and_come_back_with_their_shard(house: House) -> None:
    house.placement = placement = SettablePlacement(SHARDS)
    delays = await restarted(house, SHARDS)
    topic, ids = await delayed(house, delays)
    delays.start()
    assert used(house) == homes(house, topic)
    shard = shard_of(topic, 0, placement)
    own = [n for n in range(PARTITIONS) if shard_of(topic, n, placement) == shard]

    placement.give([shard])
    for _ in range(2):
        with pytest.raises(NotLeader):
            delays.take_run(house.broker.partition(topic, 0), run_of(house, (b"x",)))
        await house.broker.shards.settled()
    assert delays.total == (PARTITIONS - len(own)) * 20
    house.clock.advance(2 * LATER_MS)
    placement.take([shard])
    await house.broker.shards.settled()

    assert await delivered(house, delays) == EXPECTED
    assert not any(await cancelled(house, delays, 0, ids))


async def test_a_start_loads_no_message_of_another_node(house: House) -> None:
    house.placement = SettablePlacement(SHARDS)
    delays = await restarted(house, SHARDS)
    topic, _ = await delayed(house, delays)
    delays.close()
    house.placement = SettablePlacement(SHARDS)
    away = sorted({0, *homes(house, topic)})[: SHARDS // 2]
    house.placement.give(away)
    delays = await restarted(house, SHARDS)
    topic = house.topics.get(topic.name)
    owned = [n for n in range(PARTITIONS) if house.broker.owns(topic, n)]
    assert delays.total == len(owned) * 20
    house.placement.take(away)
    await house.broker.shards.settled()
    assert delays.total == PARTITIONS * 20
    assert await delivered(house, delays) == EXPECTED


async def test_a_purge_holds_for_all_shards(house: House) -> None:
    house.placement = SettablePlacement(SHARDS)
    delays = await restarted(house, SHARDS)
    topic, _ = await delayed(house, delays)
    assert await outcome(partial(delays.purge, topic)) is None
    assert delays.count(topic) == 0
    await delayed(house, delays)
    delays.close()
    delays = await restarted(house, SHARDS)
    assert delays.total == PARTITIONS * 20
    assert await delivered(house, delays) == EXPECTED


async def test_bounds_are_those_of_all_shards(house: House) -> None:
    house.placement = SettablePlacement(SHARDS)
    await restarted(house, SHARDS)
    config = DelayConfig(messages_max=3)
    delays = await ShardedDelays.open(house.broker, house.topics, house.clock, config)
    topic = await house.topic("work", PARTITIONS)
    for number in range(3):
        await put(house, delays, topic, number, (b"v",))

    with pytest.raises(Overloaded):
        await put(house, delays, topic, 3, (b"v",))
    shard = shard_of(topic, 0, house.placement)
    house.placement.give([shard])
    await house.broker.shards.settled()

    free = [n for n in range(3, PARTITIONS) if house.broker.owns(topic, n)]
    await put(house, delays, topic, free[0], (b"v",))


async def test_a_shard_without_messages_costs_no_memory(house: House) -> None:
    delays = await restarted(house, SHARDS)
    topic = await house.topic("work", PARTITIONS)
    assert delays.open_shards == set(range(SHARDS))
    assert not delays._by_number
    await put(house, delays, topic, 0, (b"v",))
    assert set(delays._by_number) == {shard_of(topic, 0, house.broker.placement)}
