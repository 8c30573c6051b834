"""Messages that are due soon are prepared, and can still be cancelled, purged or passed."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.config.queues import DelayConfig
from gateway.delays.mover import IN_FLIGHT_BYTES_MAX, MOVED_BYTES_MAX, STAGE_AHEAD_MS
from gateway.errors import Overloaded, StorageUnavailable
from gateway.partition import Write
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from gateway.storage import OnDone
from tests.gateway.delays.delay_node import World, running
from tests.gateway.kernel_in_memory import outcome

SOON_MS = STAGE_AHEAD_MS // 2


async def test_what_is_due_soon_is_ready_and_waits(world: World) -> None:
    topic = await world.topic()
    await world.put(topic, SOON_MS, b"1", b"2")

    await world.settled()
    with_max_timestamp = len(world.delays.mover.staged)
    world.advance(SOON_MS - 1)
    await world.settled()
    early = world.values(topic)
    world.advance(1)
    await world.settled()

    assert (with_max_timestamp, early) == (2, [])
    assert world.values(topic) == [b"1", b"2"]
    assert len(world.delays.mover.staged) == world.delays.total == 0


async def test_what_is_ready_can_be_cancelled(world: World) -> None:
    topic = await world.topic()
    first, _ = await world.put(topic, SOON_MS, b"1", b"2")
    await world.settled()

    found: list[bool] = []
    error = await outcome(
        lambda on_done: found.extend(world.delays.cancel([first, first], on_done))
    )
    again = world.delays.cancel([first], lambda _: None)
    counted = world.delays.count(topic)
    world.advance(SOON_MS)
    await world.settled()
    await world.restart()
    await world.settled()

    assert (error, found, again, counted) == (None, [True, True], [False], 1)
    assert world.values(topic) == [b"2"]


@pytest.mark.parametrize("after_ms", [SOON_MS, 10 * STAGE_AHEAD_MS])
async def test_a_cancellation_that_was_not_kept_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, after_ms: int
) -> None:
    topic = await world.topic()
    [number, _] = await world.put(topic, after_ms, b"1", b"2")
    await world.settled()
    refused: list[OnDone] = []
    with monkeypatch.context() as patch:
        patch.setattr(world.broker, "append", lambda _, done, **__: refused.append(done))
        world.delays.cancel([number], lambda _: None)
        refused[0](StorageUnavailable("the log cannot be written"))

    world.advance(after_ms - 1)
    await world.settled()
    early = world.values(topic)
    world.advance(1)
    await world.settled()

    assert early == []
    assert world.values(topic) == [b"1", b"2"]
    assert world.delays.total == 0


async def test_what_is_ready_can_be_purged(world: World) -> None:
    topic, other = await world.topic("one"), await world.topic("other")
    await world.put(topic, SOON_MS, b"1")
    await world.put(other, SOON_MS, b"kept")
    await world.settled()

    assert await outcome(lambda on_done: world.sharded.purge(topic, on_done)) is None
    counted = world.delays.total
    await world.put(topic, SOON_MS, b"2")
    world.advance(SOON_MS)
    await world.settled()

    assert counted == 1
    assert (world.values(topic), world.values(other)) == ([b"2"], [b"kept"])
    assert world.delays.total == 0


async def test_what_is_ready_goes_with_its_topic(world: World) -> None:
    topic = await world.topic("one")
    await world.put(topic, SOON_MS, b"1")
    await world.settled()

    await world.topics.delete(topic.name)
    again = await world.topic("one")
    world.advance(SOON_MS)
    await world.settled()
    await world.restart()
    await world.settled()

    assert world.values(again) == []
    assert world.delays.total == 0


async def test_what_is_put_later_and_due_before_comes_before(world: World) -> None:
    topic = await world.topic()
    await world.put(topic, SOON_MS, b"2")
    await world.settled()
    await world.put(topic, SOON_MS - 1, b"1")
    await world.put(topic, SOON_MS, b"3")
    await world.put(topic, SOON_MS + 1, b"4")

    for _ in range(SOON_MS + 1):
        world.advance(1)
        await world.settled()

    assert world.values(topic) == [b"1", b"2", b"3", b"4"]


async def test_a_clock_set_back_makes_what_is_ready_wait(world: World) -> None:
    topic = await world.topic()
    await world.put(topic, SOON_MS, b"1")
    await world.settled()
    assert isinstance(world.clock, ManualClock)

    world.clock.step_unix(-3_600_000)
    world.advance(SOON_MS)
    await world.settled()
    early = world.values(topic)
    world.advance(3_600_000)
    await world.settled()

    assert early == []
    assert world.values(topic) == [b"1"]


async def test_a_killed_node_has_lost_nothing_that_was_ready(world: World) -> None:
    topic = await world.topic()
    await world.put(topic, SOON_MS, b"1", b"2")
    await world.settled()
    assert len(world.delays.mover.staged) == 2

    await world.restart()
    world.advance(SOON_MS)
    await world.settled()

    assert world.values(topic) == [b"1", b"2"]


async def test_bytes_on_their_way_into_the_log_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.close()
        world.config = DelayConfig(drafted_bytes_max=1 << 20)
        await world.open()
        topic = await world.topic()
        partition = world.partition(topic)
        due_unix_ms = world.clock.unix_ms() + 1_000
        run = RecordRun(None, [b"x" * 400_000], NO_HEADERS, world.clock.unix_ms())
        drafts = [world.delays.prepare_run(partition, run, due_unix_ms) for _ in range(2)]

        with pytest.raises(Overloaded):
            world.delays.prepare_run(partition, run, due_unix_ms)
        for pending in drafts:
            assert pending.part is not None
            pending.done(Overloaded("not appended"))

        await world.put(topic, 1_000, b"x" * 400_000)
        assert world.delays.total == 1


async def test_a_slow_sync_holds_up_no_append_until_much_is_on_its_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Due messages are appended in time; one slow sync completes all of them together."""
    topic = await world.topic()
    small, large = 30, 2 * IN_FLIGHT_BYTES_MAX // MOVED_BYTES_MAX
    for at in range(small):
        await world.put(topic, SOON_MS + at, b"%d" % at)
    for at in range(large):
        await world.put(topic, 2 * SOON_MS + at, bytes(MOVED_BYTES_MAX))
    held: list[Callable[[], None]] = []
    append = world.broker.append

    def slow(writes: Sequence[Write], on_done: OnDone, **options: bool) -> None:
        append(writes, lambda error: held.append(partial(on_done, error)), **options)

    with monkeypatch.context() as patch:
        patch.setattr(world.broker, "append", slow)
        world.advance(SOON_MS)
        for _ in range(small):
            world.delays.mover.run()
            world.advance(1)
        appended = world.partition(topic).log_end_offset
        world.advance(2 * SOON_MS)
        for _ in range(2 * large):
            world.delays.mover.run()
        bounded = world.partition(topic).log_end_offset - appended
        await outcome(world.broker.after_pending)
    waits_until_unix_ms = world.delays.mover._timer_unix_ms
    for done in held:
        done()
    goes_on_unix_ms = world.delays.mover._timer_unix_ms
    await world.settled()

    assert appended == small
    assert goes_on_unix_ms <= world.clock.unix_ms() < waits_until_unix_ms
    assert 0 < bounded <= IN_FLIGHT_BYTES_MAX // MOVED_BYTES_MAX
    assert world.partition(topic).high_watermark == small + large
    assert world.delays.total == 0
