"""What is purged on its way stays away, and nothing ends the timer of what waits."""

import asyncio

from gateway.coalescer import Coalescer
from gateway.records import NO_HEADERS, RecordRun
from tests.gateway.delays.world import World
from tests.gateway.house import outcome


async def test_purge_of_what_is_on_its_way_holds_after_a_restart(world: World) -> None:
    topic = await world.topic()
    run = RecordRun(None, [b"a", b"b"], NO_HEADERS, world.clock.unix_ms())
    draft = world.delays.draft_run(world.partition(topic), run, world.clock.unix_ms() + 1_000)
    part = draft.part
    assert part is not None
    world.delays.purge(topic, ignored)
    others = Coalescer(world.broker)  # an adapter's own, which a purge does not see
    error = await outcome(lambda on_done: others.add(*part, on_done))
    draft.done(error)
    before = (world.delays.total, world.delays.bodies.size_bytes)

    await world.restart()
    world.advance(1_000)
    await world.settled()

    assert before == (0, 0)
    assert world.values(topic) == []


def ignored(_error: object) -> None:
    """Nobody waits for it."""


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
