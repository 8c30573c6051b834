"""Messages wait until they are due and come once, in order, through restarts and clock steps."""

import asyncio
from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.config.queues import DelayConfig
from gateway.delays import stream
from gateway.delays.manager import DelayBounds
from gateway.errors import MessageTooLarge, Overloaded, PolicyViolation, StorageUnavailable
from gateway.model import parse_batch_header
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from tests.gateway.delays.delay_node import World, running
from tests.gateway.kernel_in_memory import outcome
from tests.support.waiting import until

YEAR_MS = 365 * 86_400_000


async def test_message_comes_at_its_time_and_not_before(world: World) -> None:
    topic = await world.topic()
    await world.put(topic, 5_000, b"later")

    world.advance(4_999)
    await world.settled()
    early = world.values(topic)
    world.advance(1)
    await world.settled()

    assert early == []
    assert world.values(topic) == [b"later"]
    assert world.delays.total == 0


async def test_what_a_message_is_stays(world: World) -> None:
    topic = await world.topic()
    put_unix_ms = world.clock.unix_ms()
    await world.put(topic, 1_000, b"v", key=b"k", headers=[("a", b"1"), ("a", None)])
    await world.put(topic, 2_000, None, key=None, headers=[("message-id", b"own")])

    world.advance(2_000)
    await world.settled()

    first, second = world.records(topic)
    assert first[1:4] == (put_unix_ms, b"k", b"v")
    assert first.headers[:3] == (
        ("a", b"1"),
        ("a", None),
        ("deliver-at", b"%d" % (put_unix_ms + 1_000)),
    )
    assert first.headers[3][0] == "message-id"
    assert second[1:4] == (put_unix_ms, None, None)
    assert second.headers == (
        ("message-id", b"own"),
        ("deliver-at", b"%d" % (put_unix_ms + 2_000)),
    )


async def test_each_message_of_a_run_has_an_id_of_its_own(world: World) -> None:
    topic = await world.topic()
    numbers = await world.put(topic, 1_000, b"1", b"2", b"3")

    world.advance(1_000)
    await world.settled()

    ids = {dict(record.headers)["message-id"] for record in world.records(topic)}
    assert len(ids) == len(set(numbers)) == 3


async def test_the_order_is_that_of_times_and_then_of_puts(world: World) -> None:
    topic = await world.topic()
    await world.put(topic, 3_000, b"c1", b"c2")
    await world.put(topic, 1_000, b"a")
    await world.put(topic, 2_000, b"b")
    await world.put(topic, 3_000, b"c3")

    world.advance(10_000)
    await world.settled()

    assert world.values(topic) == [b"a", b"b", b"c1", b"c2", b"c3"]


@pytest.mark.parametrize("after_ms", [0, 300, 70_000, 5 * 3_600_000, 60 * 86_400_000, YEAR_MS])
async def test_it_waits_through_restarts(world: World, after_ms: int) -> None:
    topic = await world.topic()
    await world.put(topic, after_ms, b"v", key=b"k")
    before_ms = after_ms // 2

    await world.restart()
    world.advance(before_ms)
    await world.settled()
    await world.restart()
    early = world.values(topic) if after_ms else []
    world.advance(after_ms - before_ms)
    await world.settled()
    await world.restart()
    await world.settled()

    assert early == []
    assert world.values(topic) == [b"v"]
    assert world.delays.total == 0


async def test_what_became_due_while_the_node_was_away_comes_in_order(world: World) -> None:
    topic = await world.topic()
    for after_ms in (9 * 86_400_000, 1, 86_400_000, 70_000, 2):
        await world.put(topic, after_ms, b"%d" % after_ms)

    await world.close()
    world.advance(YEAR_MS)
    await world.open()
    await world.settled()

    assert world.values(topic) == [b"1", b"2", b"70000", b"86400000", b"777600000"]


async def test_clock_set_forward_brings_what_is_due_then(world: World) -> None:
    topic = await world.topic()
    await world.put(topic, 3_600_000, b"1")
    await world.put(topic, 3_700_000, b"2")
    assert isinstance(world.clock, ManualClock)

    world.clock.step_unix(3_600_000)
    await world.settled()

    assert world.values(topic) == [b"1"]


async def test_clock_set_back_brings_nothing_twice_and_nothing_early(world: World) -> None:
    topic = await world.topic()
    await world.put(topic, 1_000, b"1")
    world.advance(1_000)
    await world.settled()
    assert isinstance(world.clock, ManualClock)

    world.clock.step_unix(-3_600_000)
    world.clock.begin_anew()
    await world.restart()
    await world.put(topic, 1_000, b"2")
    world.advance(999)
    await world.settled()
    early = world.values(topic)
    world.advance(1)
    await world.settled()

    assert early == [b"1"]
    assert world.values(topic) == [b"1", b"2"]


async def test_counts_are_by_topic(world: World) -> None:
    one, other = await world.topic("one"), await world.topic("other")
    await world.put(one, 1_000, b"1", b"2")
    await world.put(one, 2_000, b"3")
    await world.put(other, 1_000, b"4")
    before = [world.delays.count(one), world.delays.count(other), world.delays.total]

    world.advance(1_000)
    await world.settled()

    assert before == [3, 1, 4]
    assert [world.delays.count(one), world.delays.count(other)] == [1, 0]


async def test_cancelled_message_never_comes(world: World) -> None:
    topic = await world.topic()
    first, second = await world.put(topic, 1_000, b"1", b"2")
    found: list[bool] = []

    error = await outcome(
        lambda on_done: found.extend(world.delays.cancel([first, 77], on_done))
    )
    again = world.delays.cancel([first], lambda _: None)
    counted = world.delays.count(topic)
    await world.restart()
    world.advance(1_000)
    await world.settled()

    assert (error, found, again, counted) == (None, [True, False], [False], 1)
    assert world.values(topic) == [b"2"]
    assert world.delays.cancel([second], lambda _: None) == [False]


async def test_purge_takes_out_what_waits_and_not_what_comes_then(world: World) -> None:
    topic, other = await world.topic("one"), await world.topic("other")
    await world.put(topic, 1_000, b"1", b"2")
    await world.put(other, 1_000, b"kept")

    assert await outcome(lambda on_done: world.sharded.purge(topic, on_done)) is None
    purged = world.delays.count(topic)
    await world.put(topic, 1_000, b"3")
    await world.restart()
    world.advance(1_000)
    await world.settled()

    assert purged == 0
    assert (world.values(topic), world.values(other)) == ([b"3"], [b"kept"])
    assert world.delays.total == 0


async def test_purge_holds_for_a_put_that_is_on_its_way(world: World) -> None:
    topic = await world.topic()
    due_unix_ms = world.clock.unix_ms() + 1_000
    run = RecordRun(None, [b"1"], NO_HEADERS, world.clock.unix_ms())
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    world.put_run(world.partition(topic), run, due_unix_ms, lambda _: None)
    world.sharded.purge(topic, done.set_result)
    await done

    assert world.delays.total == 0


async def test_deleted_topic_takes_what_waits_with_it(world: World) -> None:
    topic, other = await world.topic("one"), await world.topic("other")
    await world.put(topic, 1_000, b"1")
    await world.put(other, 1_000, b"kept")

    await world.topics.delete(topic.name)
    counted = world.delays.total
    again = await world.topic("one")
    await world.restart()
    world.advance(1_000)
    await world.settled()

    assert counted == 1
    assert (world.values(again), world.values(other)) == ([], [b"kept"])


async def test_full_disk_refuses_a_put_and_puts_off_what_is_due(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        topic = await world.topic()
        await world.put(topic, 1_000, b"1")
        world.disk_is_full = True

        with pytest.raises(StorageUnavailable) as refused:
            await world.put(topic, 1_000, b"2")
        world.advance(1_000)
        await world.settled()
        moved = world.values(topic)
        world.disk_is_full = False
        world.advance(1_000)
        await world.settled()

        assert refused.value.retriable
        assert moved == []
        assert world.values(topic) == [b"1"]
        assert world.delays.total == 0


async def test_bounds_refuse_what_is_too_much_too_far_or_too_large(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.close()
        world.config = DelayConfig(messages_max=2)
        await world.open()
        topic = await world.topic(delay_max_ms="1000", max_message_bytes="500")
        await world.put(topic, 1_000, b"1")

        with pytest.raises(Overloaded):
            await world.put(topic, 1_000, b"2", b"3")
        with pytest.raises(PolicyViolation):
            await world.put(topic, 1_001, b"2")
        with pytest.raises(MessageTooLarge):
            await world.put(topic, 1_000, b"2" * 501)
        assert world.delays.total == 1


async def test_stream_is_cut_off_and_written_anew(tmp_path: Path) -> None:
    async with running(tmp_path, bounds=DelayBounds(room_bytes=20_000)) as world:
        topic = await world.topic()
        await world.put(topic, YEAR_MS, b"far")
        for _ in range(40):
            await world.put(topic, 1_000, *[b"x" * 100] * 50)
            world.advance(1_000)
            await world.settled()
        before_bytes = world.delays.stream.size_bytes

        world.delays.stream.keep_small()
        await world.delays.stream.quiet()
        world.delays.stream.keep_small()

        assert before_bytes > 200_000
        assert world.delays.stream.size_bytes < before_bytes // 4
        assert world.delays.total == 1
        await world.restart()
        world.advance(YEAR_MS)
        await world.settled()
        assert world.values(topic)[-1] == b"far"
        assert world.values(topic).count(b"far") == 1


async def test_stream_is_looked_at_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHECK_S", 0.001)
    async with running(tmp_path, bounds=DelayBounds(room_bytes=2_000)) as world:
        topic = await world.topic()
        await world.put(topic, YEAR_MS, b"far")
        await world.put(topic, YEAR_MS, bytes(10_000))
        await world.put(topic, 1, *[bytes(100)] * 200)
        world.advance(1)
        await world.settled()

        world.delays.stream.start()

        await until(lambda: world.delays.stream.rewrites > 0)
        world.delays.stream.close()


async def test_nothing_waits_and_nothing_is_kept(world: World) -> None:
    topic = await world.topic()
    await world.put(topic, 1_000, b"1", b"2")
    world.advance(1_000)
    await world.settled()

    world.delays.stream.keep_small()

    assert world.stream.log_start_offset == world.stream.high_watermark
    assert world.delays.stream.size_bytes == 0


async def test_bodies_that_do_not_fit_in_memory_are_read_back(tmp_path: Path) -> None:
    async with running(tmp_path, bounds=DelayBounds(bodies_bytes=2_000)) as world:
        topic = await world.topic()
        for after_ms in (900, 100, 500, 700, 300):
            await world.put(topic, after_ms, *[b"%d" % after_ms] * 20)

        world.advance(1_000)
        await world.settled()

        assert world.values(topic) == [
            value for value in (b"100", b"300", b"500", b"700", b"900") for _ in range(20)
        ]
        assert world.delays.bodies.size_bytes == 0


async def test_retention_counts_from_when_a_message_came(world: World) -> None:
    topic = await world.topic(retention_ms="60000")
    await world.put(topic, 3_600_000, b"v")
    world.advance(3_600_000)
    await world.settled()
    now_unix_ms = world.clock.unix_ms()

    partition = world.partition(topic)

    found = await world.broker.offset_for_time(partition, now_unix_ms)
    batches = world.broker.read(partition, 0, bytes_max=1)

    assert found is not None
    assert found[0] == 0
    assert batches is not None  # a settled copy of it goes by what stands in the batch
    assert parse_batch_header(batches[0]).max_timestamp_unix_ms == now_unix_ms
    assert world.records(topic)[0].timestamp_unix_ms == now_unix_ms - 3_600_000


async def test_full_queue_puts_off_its_own_messages_only(world: World) -> None:
    full = await world.topic("full", cleanup_policy="queue", hold_bytes_max="-1")
    other = await world.topic("other")
    await world.put(full, 1_000, b"q1", b"q2")
    await world.put(other, 1_000, b"o")
    await world.topics.alter_configs(full.name, {"hold.bytes.max": "0"})
    await world.broker_append(full, b"there")

    world.advance(1_000)
    await world.settled()
    between = (world.values(full), world.values(other))
    await world.topics.alter_configs(full.name, {"hold.bytes.max": "-1"})
    world.advance(1_000)
    await world.settled()

    assert between == ([b"there"], [b"o"])
    assert world.values(full) == [b"there", b"q1", b"q2"]
