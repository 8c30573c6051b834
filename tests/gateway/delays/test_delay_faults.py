"""Messages purged during a move stay away; no fault ends the timer or blocks other messages."""

import asyncio

import pytest

from features.delay.runs import RUN_COUNT_MIN
from gateway.coalescer import Coalescer
from gateway.delays.due_message_cache import KEEP_MS
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from tests.gateway.delays.delay_node import World
from tests.gateway.kernel_in_memory import outcome

READ_BACK_MS = 2 * KEEP_MS


async def test_purge_of_what_is_on_its_way_holds_after_a_restart(world: World) -> None:
    topic = await world.topic()
    run = RecordRun(None, [b"a", b"b"], NO_HEADERS, world.clock.unix_ms())
    pending = world.delays.prepare_run(
        world.partition(topic), run, world.clock.unix_ms() + 1_000
    )
    part = pending.part
    assert part is not None
    world.sharded.purge(topic, ignored)
    others = Coalescer(world.broker)  # an adapter's own, which a purge does not see
    error = await outcome(lambda on_done: others.add(*part, on_done))
    pending.done(error)
    before = (world.delays.total, world.delays.bodies.size_bytes)

    await world.restart()
    world.advance(1_000)
    await world.settled()

    assert before == (0, 0)
    assert world.values(topic) == []


def ignored(_error: object) -> None:
    """Ignore the result."""


async def test_a_bug_while_something_is_moved_does_not_end_the_timer(world: World) -> None:
    topic = await world.topic()
    await world.put(topic, 100, b"v")
    world.advance(100)
    loop = asyncio.get_running_loop()
    failed = asyncio.Event()
    loop.set_exception_handler(lambda *_: failed.set())
    append = world.broker.append
    world.broker.append = None  # type: ignore[method-assign,assignment] # the timer fails
    await asyncio.wait_for(failed.wait(), 60)
    world.broker.append = append  # type: ignore[method-assign]

    came = asyncio.Event()
    partition = world.partition(topic)
    world.broker.wait_readable([partition], bytes_min=1, on_ready=came.set)
    await asyncio.wait_for(came.wait(), 60)

    assert world.values(topic) == [b"v"]


def damage(world: World, data: bytes, index: int = 0) -> None:
    """Change a byte of what lies in the log's files, as a bad disk does."""
    files = [path for path in world.folder.rglob("*") if path.is_file()]
    found = [(path, at) for path in files if (at := path.read_bytes().find(data)) >= 0]
    assert found
    for path, at in found:
        with path.open("r+b") as file:
            file.seek(at + index)
            file.write(bytes([data[index] ^ 0x40]))


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_damaged_run_does_not_hold_up_the_others(
    world: World, *, cancels: bool
) -> None:
    """Nor is it sent on with a checksum that says that it is whole."""
    topic = await world.topic()
    values = [b"%d of a run" % number for number in range(RUN_COUNT_MIN)]
    numbers = await world.put(topic, READ_BACK_MS, *values)
    await world.put(topic, READ_BACK_MS, b"alone")
    await world.put(topic, READ_BACK_MS, *[b"of another"] * RUN_COUNT_MIN)
    if cancels:
        assert await outcome(lambda done: world.delays.cancel([numbers[3]], done)) is None
    damage(world, values[0])

    world.advance(READ_BACK_MS)
    await world.settled()
    world.delays.stream.keep_small()

    assert world.values(topic) == [b"alone", *[b"of another"] * RUN_COUNT_MIN]
    assert world.delays.mover.refused == 0
    assert (world.delays.total, bool(world.delays.state.runs)) == (0, False)
    assert world.delays.stream.size_bytes == 0


@pytest.mark.parametrize("index", [8, 27], ids=["topic", "partition"])
async def test_a_message_of_no_known_destination_does_not_hold_up_the_others(
    world: World, index: int
) -> None:
    topic = await world.topic()
    [number] = await world.put(topic, READ_BACK_MS, b"astray")
    await world.put(topic, READ_BACK_MS, b"alone")
    damage(world, number.to_bytes(8, "big") + topic.uuid.bytes + bytes(4), index)

    world.advance(READ_BACK_MS)
    await world.settled()

    assert world.values(topic) == [b"alone"]
    assert world.delays.mover.refused == 0
    assert world.delays.total == 0
