"""Messages that are put together and due together are one in the log; each is still one message."""

from pathlib import Path

import pytest

from features.delay.entries import RUN, is_waiting
from features.delay.runs import RUN_COUNT_MIN
from features.delay.state import DelayState
from gateway.delays.batches import values_of
from gateway.delays.manager import DelayBounds
from gateway.delays.mover import STAGE_AHEAD_MS
from gateway.delays.stream import DelayStream
from gateway.errors import StorageUnavailable
from gateway.model import parse_batch_header
from gateway.records.codec import NO_HEADERS, encode_batch
from gateway.records.record_run import RecordRun
from gateway.storage import OnDone
from gateway.topics.manager import Topic
from tests.gateway.delays.delay_node import World, running
from tests.gateway.delays.test_delay_split import produce, record
from tests.gateway.kernel_in_memory import outcome

SOON_MS = STAGE_AHEAD_MS // 2
LATER_MS = 5_000
VALUES = [b"%d" % number for number in range(RUN_COUNT_MIN + 3)]


def entries(world: World) -> list[bytes]:
    """Return the waiting entries in the order of the stream."""
    stream = world.stream
    batches = world.broker.read(stream, stream.log_start_offset, bytes_max=1 << 30)
    found = [value for batch in batches or () for _, value in values_of(batch)]
    return [value for value in found if is_waiting(value)]


def batch_sizes(world: World, topic: Topic) -> list[int]:
    """Return the record counts of a topic's batches."""
    batches = world.broker.read(world.partition(topic), 0, bytes_max=1 << 30)
    return [parse_batch_header(batch).record_count for batch in batches or ()]


async def cancelled(world: World, *numbers: int) -> list[bool]:
    found: list[bool] = []
    error = await outcome(
        lambda on_done: found.extend(world.delays.cancel(list(numbers), on_done))
    )
    assert error is None
    return found


async def test_a_run_is_one_entry_and_one_batch(world: World) -> None:
    topic = await world.topic()
    numbers = await world.put(topic, LATER_MS, *VALUES, key=b"k", headers=[("a", b"1")])
    await world.put(topic, LATER_MS, *VALUES[: RUN_COUNT_MIN - 1])

    stored = [value[0] for value in entries(world)]
    counted = world.delays.total
    world.advance(LATER_MS)
    await world.settled()

    assert stored == [RUN] + [1] * (RUN_COUNT_MIN - 1)
    assert counted == len(VALUES) + RUN_COUNT_MIN - 1
    assert numbers == list(range(numbers[0], numbers[0] + len(VALUES)))
    assert world.values(topic) == VALUES + VALUES[: RUN_COUNT_MIN - 1]
    assert batch_sizes(world, topic) == [len(VALUES), RUN_COUNT_MIN - 1]
    assert world.delays.mover.moved == counted
    assert world.delays.total == 0


async def test_each_record_of_a_producers_batch_is_as_it_came(world: World) -> None:
    topic = await world.topic()
    put_unix_ms = world.clock.unix_ms()
    records = [
        record(world, value, after_ms=LATER_MS, other=[("a", value)]) for value in VALUES
    ]
    records = [(put_unix_ms - 5 * at, *one[1:]) for at, one in enumerate(records)]

    await produce(world, topic, encode_batch(records))
    await world.restart()
    world.advance(LATER_MS)
    await world.settled()

    moved = world.records(topic)
    assert batch_sizes(world, topic) == [len(VALUES)]
    assert [one.timestamp_unix_ms for one in moved] == [one[0] for one in records]
    assert [(one.key, one.value) for one in moved] == [(b"key", value) for value in VALUES]
    due = b"%d" % (put_unix_ms + LATER_MS)
    assert [one.headers[:2] for one in moved] == [
        (("a", value), ("deliver-at", due)) for value in VALUES
    ]
    assert len({dict(one.headers)["message-id"] for one in moved}) == len(VALUES)
    stored = world.broker.read(world.partition(topic), 0, bytes_max=1)
    assert stored is not None
    assert parse_batch_header(stored[0]).max_timestamp_unix_ms == world.clock.unix_ms()


async def test_append_time_is_that_of_the_due_append(world: World) -> None:
    topic = await world.topic(message_timestamp_type="LogAppendTime")
    await world.put(topic, LATER_MS, *VALUES)
    world.advance(LATER_MS)
    await world.settled()

    assert {one.timestamp_unix_ms for one in world.records(topic)} == {world.clock.unix_ms()}
    assert batch_sizes(world, topic) == [len(VALUES)]


async def test_more_than_a_batch_may_hold_become_several_runs(world: World) -> None:
    topic = await world.topic()
    small = [b"%d" % number for number in range(600)]
    large = [b"%d" % number + bytes(9_000) for number in range(20)]
    numbers = await world.put(topic, LATER_MS, *small)
    numbers = [*numbers, *await world.put(topic, LATER_MS, *large)]

    assert numbers == sorted(set(numbers))
    assert len(numbers) == 620
    world.advance(LATER_MS)
    await world.settled()

    assert world.values(topic) == small + large
    assert len(batch_sizes(world, topic)) < 10


async def test_runs_and_others_come_in_the_order_of_their_times_and_puts(world: World) -> None:
    topic = await world.topic()
    await world.put(topic, LATER_MS, b"1")
    await world.put(topic, LATER_MS, *VALUES)
    await world.put(topic, LATER_MS, b"2")
    await world.put(topic, LATER_MS - 1, *VALUES)

    world.advance(LATER_MS)
    await world.settled()

    assert world.values(topic) == [*VALUES, b"1", *VALUES, b"2"]


@pytest.mark.parametrize("after_ms", [SOON_MS, LATER_MS])
async def test_a_message_of_a_run_is_cancelled_alone(world: World, after_ms: int) -> None:
    topic = await world.topic()
    numbers = await world.put(topic, after_ms, *VALUES)
    await world.settled()

    found = await cancelled(world, numbers[0], numbers[4], numbers[4] + 1_000)
    again = world.delays.cancel([numbers[4]], lambda _: None)
    counted = world.delays.count(topic)
    await world.restart()
    found += await cancelled(world, numbers[0], numbers[-1])
    world.advance(after_ms)
    await world.settled()
    await world.restart()
    await world.settled()

    assert (found, again) == ([True, True, False, False, True], [False])
    assert counted == len(VALUES) - 2
    assert world.values(topic) == [*VALUES[1:4], *VALUES[5:-1]]
    assert world.delays.total == 0
    assert not world.delays.state.runs


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("after_ms", [SOON_MS, LATER_MS])
async def test_a_run_of_which_all_is_cancelled_leaves_nothing(
    world: World, after_ms: int, *, restarts: bool
) -> None:
    topic = await world.topic()
    numbers = await world.put(topic, after_ms, *VALUES)
    await world.settled()

    assert all(await cancelled(world, *numbers))
    if restarts:
        await world.restart()
    left = (world.delays.total, len(world.delays.mover.staged), bool(world.delays.state.runs))
    world.advance(after_ms)
    await world.settled()
    world.delays.stream.keep_small()

    assert left == (0, 0, False)
    assert world.values(topic) == []
    assert world.delays.stream.size_bytes == 0


async def test_what_is_cancelled_of_a_run_stays_away_when_the_stream_is_written_anew(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, bounds=DelayBounds(room_bytes=2_000)) as world:
        topic = await world.topic()
        numbers = await world.put(topic, 100 * LATER_MS, *VALUES)
        await cancelled(world, numbers[2])
        for _ in range(60):
            await world.put(topic, 1, *[bytes(100)] * 20)
            world.advance(1)
            await world.settled()
        first_offset = world.stream.log_start_offset
        world.delays.stream.keep_small()
        await world.delays.stream.quiet()
        world.delays.stream.keep_small()
        assert world.stream.log_start_offset > first_offset + 10
        before = len(world.values(topic))

        await world.restart()
        counted = world.delays.total
        world.advance(100 * LATER_MS)
        await world.settled()

        assert counted == len(VALUES) - 1
        assert world.values(topic)[before:] == VALUES[:2] + VALUES[3:]


@pytest.mark.parametrize("fails", ["before", "between", "after"])
async def test_a_cancellation_that_was_not_kept_loses_nothing_of_its_run(
    world: World, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Before the others have gone, while they are on their way, or then: it comes all the same."""
    topic = await world.topic()
    numbers = await world.put(topic, LATER_MS, *VALUES)
    refused: list[OnDone] = []
    with monkeypatch.context() as patch:
        patch.setattr(world.broker, "append", lambda _, done, **__: refused.append(done))
        world.delays.cancel([numbers[3]], lambda _: None)
    error = StorageUnavailable("the log cannot be written")

    if fails == "before":
        refused[0](error)
    world.advance(LATER_MS)
    world.delays.mover.run()
    if fails == "between":
        refused[0](error)
    await world.settled()
    if fails == "after":
        refused[0](error)
    await world.settled()
    came = world.values(topic)
    left = (world.delays.total, bool(world.delays.state.runs))
    await world.restart()
    await world.settled()

    assert sorted(filter(None, came)) == sorted(VALUES)
    assert left == (0, False)
    assert world.values(topic) == came


def begin_to_cancel(world: World, monkeypatch: pytest.MonkeyPatch, number: int) -> OnDone:
    """Cancel a message, and return what says that the log has it."""
    held: list[OnDone] = []
    with monkeypatch.context() as patch:
        patch.setattr(world.broker, "append", lambda _, done, **__: held.append(done))
        world.delays.cancel([number], lambda _: None)
    return held[0]


async def test_a_cancellation_that_ends_after_the_others_have_gone_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await world.topic()
    numbers = await world.put(topic, LATER_MS, *VALUES)
    kept = begin_to_cancel(world, monkeypatch, numbers[3])
    world.advance(LATER_MS)
    await world.settled()
    counted = world.delays.total
    kept(None)

    assert counted == 1
    assert world.values(topic) == VALUES[:3] + VALUES[4:]
    assert world.delays.total == 0
    assert not world.delays.state.runs


async def test_a_purge_while_a_cancellation_is_on_its_way_counts_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await world.topic()
    numbers = await world.put(topic, LATER_MS, *VALUES)
    kept = begin_to_cancel(world, monkeypatch, numbers[3])
    assert await outcome(lambda on_done: world.sharded.purge(topic, on_done)) is None
    world.advance(LATER_MS)
    await world.settled()
    kept(None)
    world.delays.stream.keep_small()

    assert world.values(topic) == []
    assert world.delays.total == 0
    assert world.delays.stream.size_bytes == 0


async def test_a_purge_of_a_run_on_its_way_holds_after_a_restart(world: World) -> None:
    topic = await world.topic()
    due_unix_ms = world.clock.unix_ms() + 1_000
    run = RecordRun(None, VALUES, NO_HEADERS, world.clock.unix_ms())
    pending = world.delays.prepare_run(world.partition(topic), run, due_unix_ms)
    part = pending.part
    assert part is not None
    world.sharded.purge(topic, lambda _: None)
    pending.done(await outcome(lambda on_done: world.coalescer.add(*part, on_done)))
    before = (world.delays.total, world.delays.bodies.size_bytes)

    await world.restart()
    world.advance(1_000)
    await world.settled()

    assert before == (0, 0)
    assert world.values(topic) == []


async def test_a_run_that_is_too_large_for_its_topic_by_now_is_cut(world: World) -> None:
    topic = await world.topic()
    values = [b"%d" % number + bytes(100) for number in range(RUN_COUNT_MIN)]
    await world.put(topic, LATER_MS, *values)
    await world.topics.alter_configs(topic.name, {"max.message.bytes": "600"})

    world.advance(LATER_MS)
    await world.settled()

    assert world.values(topic) == values
    assert max(batch_sizes(world, topic)) < RUN_COUNT_MIN


async def test_a_full_disk_puts_off_a_run_as_it_is(world: World) -> None:
    topic = await world.topic()
    numbers = await world.put(topic, LATER_MS, *VALUES)
    world.disk_is_full = True
    world.advance(LATER_MS)
    await world.settled()

    assert await cancelled(world, numbers[1]) == [True]
    world.disk_is_full = False
    world.advance(1_000)
    await world.settled()

    assert world.values(topic) == [VALUES[0], *VALUES[2:]]
    assert world.delays.total == 0


async def test_runs_that_do_not_fit_in_memory_are_read_back(tmp_path: Path) -> None:
    async with running(tmp_path, bounds=DelayBounds(bodies_bytes=1_000)) as world:
        topic = await world.topic()
        for after_ms in (900, 100, 500):
            await world.put(topic, after_ms, *[b"%d" % after_ms] * 20)

        world.advance(1_000)
        await world.settled()

        assert world.values(topic) == [b"100"] * 20 + [b"500"] * 20 + [b"900"] * 20
        assert world.delays.bodies.size_bytes == 0


async def test_what_is_due_together_of_a_mixed_batch_is_one_run(world: World) -> None:
    """Messages of one due time are a run in the order of the batch, whatever lies between."""
    topic = await world.topic()
    afters_ms = [LATER_MS + 1_000 * (at % 3) for at in range(3 * RUN_COUNT_MIN)] + [
        LATER_MS + 7
    ]
    batch = [record(world, b"%d" % at, after_ms=ms) for at, ms in enumerate(afters_ms)]

    await produce(world, topic, encode_batch(batch))
    stored = sorted(value[0] for value in entries(world))
    world.advance(2 * LATER_MS)
    await world.settled()

    by_time = sorted(range(len(afters_ms)), key=afters_ms.__getitem__)
    assert stored == [1, RUN, RUN, RUN]
    assert world.values(topic) == [b"%d" % at for at in by_time]


async def test_the_highest_number_is_that_of_a_runs_last_message(world: World) -> None:
    topic = await world.topic()
    numbers = await world.put(topic, LATER_MS, *VALUES)
    state = DelayState(world.clock.unix_ms())
    stream = DelayStream(world.stream, world.broker, world.clock, state)

    assert await stream.load(lambda _uuid, _number: 0) == numbers[-1]
    assert state.count == len(VALUES)


async def test_a_timestamp_after_the_due_time_is_within_what_its_batch_says(
    world: World,
) -> None:
    topic = await world.topic()
    ahead_unix_ms = world.clock.unix_ms() + 10 * LATER_MS
    records = [
        (ahead_unix_ms - at, *record(world, value, after_ms=LATER_MS)[1:])
        for at, value in enumerate(VALUES)
    ]

    await produce(world, topic, encode_batch(records))
    world.advance(LATER_MS)
    await world.settled()

    stored = world.broker.read(world.partition(topic), 0, bytes_max=1)
    assert stored is not None
    assert parse_batch_header(stored[0]).max_timestamp_unix_ms == ahead_unix_ms
    assert world.records(topic)[1].timestamp_unix_ms == ahead_unix_ms - 1
