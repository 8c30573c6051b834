"""Steps of the wall clock: nothing in a queue becomes too old, or expires, for them."""

from pathlib import Path

import pytest

from tests.gateway.queues.queue_node import World, running, take, values

HOUR_MS = 3_600_000
RETENTION_MS = 60_000
FORWARDS = pytest.mark.parametrize("step_ms", [HOUR_MS, 365 * 24 * HOUR_MS])
STEPS = pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 365 * 24 * HOUR_MS])


def expiry(world: World, span_ms: int) -> list[tuple[str, bytes | None]]:
    return [("expires-at", b"%d" % world.clock.deadline_unix_ms(span_ms))]


@FORWARDS
async def test_retention_counts_what_has_passed(tmp_path: Path, step_ms: int) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(retention_ms=RETENTION_MS)
        await world.send(queue, b"before")
        world.clock.step_unix(step_ms)
        world.advance(RETENTION_MS - 1_000)
        await world.send(queue, b"after")
        await world.queues.upkeep.expire_all()
        assert queue.counts().ready == 2
        world.advance(1_001)
        await world.queues.upkeep.expire_all()
        assert queue.counts().ready == 1
        assert values(await take(queue)) == [b"after"]


async def test_after_a_step_backwards_retention_comes_late_never_early(tmp_path: Path) -> None:
    """Messages that come while unix time is held level have one timestamp."""
    async with running(tmp_path) as world:
        queue = await world.queue(retention_ms=RETENTION_MS)
        await world.send(queue, b"before")
        world.clock.step_unix(-HOUR_MS)
        world.advance(RETENTION_MS)
        await world.send(queue, b"after")
        world.advance(RETENTION_MS - 1)
        await world.queues.upkeep.expire_all()
        assert queue.counts().ready == 2
        world.advance(HOUR_MS)
        await world.queues.upkeep.expire_all()
        assert queue.counts().ready == 0


@STEPS
async def test_what_is_not_too_old_is_handed_out(tmp_path: Path, step_ms: int) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(retention_ms=RETENTION_MS)
        await world.send(queue, b"a", b"b")
        world.clock.step_unix(step_ms)
        world.advance(RETENTION_MS - 1_000)
        assert values(await take(queue, 1)) == [b"a"]
        world.advance(1_001 + max(-step_ms, 0))
        assert await take(queue) == []


@STEPS
async def test_expiry_counts_what_has_passed(tmp_path: Path, step_ms: int) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        queue = await world.queue(dead_letter_topic="dead")
        world.clock.step_unix(
            HOUR_MS // 2
        )  # so that they have come after a step, and before one
        await world.send(queue, b"before", headers=expiry(world, 10_000))
        await world.send(queue, b"held", headers=expiry(world, 10_000))
        world.clock.step_unix(step_ms)
        world.advance(5_000)
        await world.send(queue, b"after", headers=expiry(world, 10_000))
        world.advance(4_999)
        await world.queues.upkeep.expire_all()
        assert queue.counts().ready == 3
        assert values(await take(queue, 1)) == [b"before"]
        world.advance(1)
        await world.queues.upkeep.expire_all()
        await world.until(lambda: dead.counts().ready == 1)
        assert values(await take(queue)) == [b"after"]
