"""Records that any protocol appends wait until their time: delay as a step of the write path."""

import asyncio
from pathlib import Path

import pytest

from gateway.config.queues import DelayConfig
from gateway.errors import Overloaded, PolicyViolation
from gateway.partition import Partition, Write
from gateway.records.codec import NO_HEADERS, encode_batch, encode_headers
from gateway.records.keyed import KeyedRecords
from gateway.records.record_run import RecordRun, Run
from tests.gateway.delays.delay_node import World, running
from tests.gateway.kernel_in_memory import outcome

LATER_MS = 60_000


def run_due(world: World, value: bytes, after_ms: int) -> RecordRun:
    """A run whose headers say when it is to be delivered."""
    now_unix_ms = world.clock.unix_ms()
    headers = encode_headers([("deliver-at", b"%d" % (now_unix_ms + after_ms))])
    return RecordRun(b"k", (value,), headers, now_unix_ms)


def run_of(world: World, *values: bytes) -> RecordRun:
    return RecordRun(b"k", values, NO_HEADERS, world.clock.unix_ms())


async def add(world: World, partition: Partition, run: Run) -> None:
    assert await outcome(lambda done: world.coalescer.add(partition, run, done)) is None


async def test_run_waits_for_the_time_in_its_headers(world: World) -> None:
    topic = await world.topic()
    later, due = run_due(world, b"later", LATER_MS), run_due(world, b"due", 0)

    await add(world, world.partition(topic), later)
    await add(world, world.partition(topic), due)
    before = world.values(topic)
    world.advance(LATER_MS)
    await world.settled()

    assert (before, later.base_offset, due.base_offset) == ([b"due"], -1, 0)
    assert world.values(topic) == [b"due", b"later"]


async def test_headers_count_where_the_topic_allows_delays(world: World) -> None:
    topic = await world.topic(delay_enable="false")

    await add(world, world.partition(topic), run_due(world, b"x", LATER_MS))

    assert world.values(topic) == [b"x"]


async def test_time_of_a_run_counts_in_any_topic(world: World) -> None:
    topic = await world.topic(delay_enable="false")
    run = run_of(world, b"1", b"2")
    run.deliver_at_unix_ms = world.clock.unix_ms() + LATER_MS

    await add(world, world.partition(topic), run)
    before = world.values(topic), world.delays.count(topic)
    await world.restart()
    world.advance(LATER_MS)
    await world.settled()

    assert before == ([], 2)
    assert world.values(topic) == [b"1", b"2"]


async def test_records_of_different_keys_wait_with_their_keys(world: World) -> None:
    topic = await world.topic()
    headers = run_due(world, b"", LATER_MS).headers
    run = KeyedRecords([b"a", b"b"], [b"1", b"2"], headers, world.clock.unix_ms())

    await add(world, world.partition(topic), run)
    before = world.values(topic)
    world.advance(LATER_MS)
    await world.settled()

    assert before == []
    assert [(one.key, one.value) for one in world.records(topic)] == [
        (b"a", b"1"),
        (b"b", b"2"),
    ]


async def test_what_waits_is_in_the_append_of_the_others(world: World) -> None:
    topic, other = await world.topic("one"), await world.topic("other")
    rounds = world.coalescer.rounds_appended
    parts = [
        (world.partition(topic), run_due(world, b"later", LATER_MS)),
        (world.partition(other), run_of(world, b"now")),
    ]

    assert await outcome(lambda done: world.coalescer.add_many(parts, done)) is None

    assert world.coalescer.rounds_appended == rounds + 1
    assert (world.values(topic), world.values(other)) == ([], [b"now"])
    assert world.delays.total == 1


async def test_refused_part_leaves_nothing_that_waits(world: World) -> None:
    topic, strict = await world.topic("one"), await world.topic("two", delay_max_ms="1000")
    parts = [
        (world.partition(topic), run_due(world, b"fits", LATER_MS)),
        (world.partition(strict), run_due(world, b"too far", LATER_MS)),
    ]

    with pytest.raises(PolicyViolation):
        world.coalescer.add_many(parts, lambda _: None)

    assert (world.delays.total, world.delays._counts.pending_count) == (0, 0)


async def test_records_moved_as_they_are_do_not_wait(world: World) -> None:
    topic = await world.topic()
    parts = [(world.partition(topic), run_due(world, b"x", LATER_MS))]

    assert await outcome(lambda done: world.coalescer.add_many(parts, done, as_is=True)) is None

    assert (world.values(topic), world.delays.total) == ([b"x"], 0)


def batch_due(world: World, *afters_ms: int) -> bytearray:
    now_unix_ms = world.clock.unix_ms()
    return encode_batch(
        [
            (now_unix_ms, None, b"%d" % ms, [("deliver-at", b"%d" % (now_unix_ms + ms))])
            for ms in afters_ms
        ]
    )


async def test_batches_that_are_not_appended_count_for_one_turn(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.close()
        world.config = DelayConfig(messages_max=2)
        await world.open()
        topic = await world.topic(partitions=2)
        first, second = world.partition(topic, 0), world.partition(topic, 1)

        world.broker.prepare(first, batch_due(world, 1_000, 2_000))
        with pytest.raises(Overloaded):
            world.broker.prepare(second, batch_due(world, 1_000))
        await asyncio.sleep(0)
        write = world.broker.prepare(second, batch_due(world, 1_000, 2_000))
        assert isinstance(write, Write)
        assert await outcome(lambda done: world.broker.append([write], done)) is None

        assert (world.delays.total, write.base_offset) == (2, -1)
        assert world.delays._counts.reserved_count == 0


class _Seen:
    """A step that only notes what it is asked about."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def take_batch(self, write: Write) -> None:
        self.counts.append(write.header.record_count)

    def take_run(self, partition: Partition, run: Run) -> None:
        del partition
        self.counts.append(len(run.values))


async def test_next_step_sees_what_the_one_before_left(world: World) -> None:
    seen = _Seen()
    world.broker.write_steps.append(seen)
    partition = world.partition(await world.topic())

    world.broker.prepare(partition, batch_due(world, 0, 1_000, 0))
    world.broker.prepare(partition, batch_due(world, 1_000))
    await add(world, partition, run_due(world, b"later", LATER_MS))
    await add(world, partition, run_of(world, b"1", b"2", b"3"))

    assert seen.counts == [2, 3]
