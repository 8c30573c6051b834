"""Redrive: back or elsewhere, with a rate, progress and an end; each message in one place."""

from pathlib import Path

import pytest

from gateway.errors import InvalidRequest, PolicyViolation
from gateway.model import TopicName
from gateway.queues.manager import Queue
from gateway.queues.model import Outcome
from gateway.queues.redrive import KEPT_MAX
from tests.gateway.queues.queue_node import (
    World,
    headers_of,
    is_fed,
    running,
    settle,
    take,
    values,
)


async def dead_letters(world: World, count: int) -> tuple[Queue, Queue]:
    """A queue whose messages have all become dead letters."""
    dead = await world.queue("dead")
    queue = await world.queue(dead_letter_topic="dead", lease_ms=60_000)
    await world.send(queue, *[b"%d" % n for n in range(count)], key=b"k", headers=[("a", b"1")])
    while got := await take(queue):
        await settle(queue, got, Outcome.REJECT)
    await world.until(lambda: dead.counts().ready == count and is_fed(dead))
    return queue, dead


async def test_dead_letters_go_back_where_they_came_from(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue, dead = await dead_letters(world, 300)
        world.clock.advance(1_000)
        redrive = world.queues.redrives.start(dead, destination=None, rate_per_s=None)
        assert (redrive.status, redrive.total_at_start) == ("RUNNING", 300)
        await world.until(lambda: not redrive.is_active)
        assert (redrive.status, redrive.moved) == ("COMPLETED", 300)
        assert (dead.counts(), queue.counts()) == ((0, 0, 0), (300, 0, 0))
        await world.until(lambda: is_fed(queue))
        (message,) = await take(queue, 1)
        assert (message.record.key, message.attempt) == (b"k", 1)
        assert set(headers_of(message.record)) == {"a", "message-id", "dlq.hops"}
        assert message.record.timestamp_unix_ms == world.clock.unix_ms()
        assert world.queues.redrives.of(dead) == [redrive]
        with pytest.raises(PolicyViolation):
            world.queues.redrives.cancel(redrive.handle)


async def test_dead_letters_go_elsewhere(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        _, dead = await dead_letters(world, 3)
        other = await world.queue("other")
        name = TopicName("default", "other")
        redrive = world.queues.redrives.start(dead, destination=name, rate_per_s=None)
        await world.until(lambda: not redrive.is_active and is_fed(other))
        assert values(await take(other)) == [b"0", b"1", b"2"]


async def test_a_rate_is_kept_and_a_redrive_can_be_cancelled(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        _, dead = await dead_letters(world, 20)
        redrive = world.queues.redrives.start(dead, destination=None, rate_per_s=5)
        await world.until(lambda: redrive.moved == 5)
        with pytest.raises(PolicyViolation):
            world.queues.redrives.start(dead, destination=None, rate_per_s=None)
        assert world.queues.redrives.cancel(redrive.handle) is redrive
        assert redrive.status == "CANCELLING"
        await world.until(lambda: not redrive.is_active)
        assert (redrive.status, redrive.moved) == ("CANCELLED", 5)
        assert dead.counts() == (15, 0, 0)


async def test_one_that_does_not_say_whence_it_came_stays_and_the_others_go(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue, dead = await dead_letters(world, 2)
        await world.send(dead, b"stray")
        await world.until(lambda: dead.counts().ready == 3 and is_fed(dead))

        redrive = world.queues.redrives.start(dead, destination=None, rate_per_s=None)
        await world.until(lambda: not redrive.is_active)

        assert (redrive.status, redrive.moved, redrive.skipped) == ("COMPLETED", 2, 1)
        assert (dead.counts().ready, queue.counts().ready) == (1, 2)


@pytest.mark.parametrize("destination", [None, TopicName("default", "work")])
async def test_a_letter_without_its_message_stays(
    tmp_path: Path, destination: TopicName | None
) -> None:
    """The letter names its message's place: an empty message instead would lose that."""
    async with running(tmp_path) as world:
        queue, dead = await dead_letters(world, 2)
        headers = [("dlq.source.topic", b"work"), ("dlq.left-out", b"9 bytes, at most 8")]
        await world.send(dead, b"", headers=headers)
        await world.until(lambda: dead.counts().ready == 3 and is_fed(dead))

        redrive = world.queues.redrives.start(dead, destination=destination, rate_per_s=None)
        await world.until(lambda: not redrive.is_active)

        assert (redrive.status, redrive.moved, redrive.skipped) == ("COMPLETED", 2, 1)
        assert (dead.counts().ready, queue.counts().ready) == (1, 2)


async def test_a_destination_that_is_not_there_fails(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        _, dead = await dead_letters(world, 2)
        name = TopicName("default", "nowhere")
        redrive = world.queues.redrives.start(dead, destination=name, rate_per_s=None)
        await world.until(lambda: not redrive.is_active)
        assert (redrive.status, redrive.moved) == ("FAILED", 0)
        assert dead.counts() == (2, 0, 0)


@pytest.mark.parametrize("name", [b"__queues", b"__delays"])
async def test_nothing_goes_to_an_internal_topic(tmp_path: Path, name: bytes) -> None:
    """A client that may write to the dead-letter topic may write any header."""
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        await world.send(dead, b"forged", key=b"k", headers=[("dlq.source.topic", name)])
        await world.until(lambda: dead.counts().ready == 1 and is_fed(dead))
        redrive = world.queues.redrives.start(dead, destination=None, rate_per_s=None)
        await world.until(lambda: not redrive.is_active)
        assert (redrive.status, redrive.moved, redrive.skipped) == ("COMPLETED", 0, 1)
        assert dead.counts().ready == 1

        internal = TopicName("default", name.decode())
        redrive = world.queues.redrives.start(dead, destination=internal, rate_per_s=None)
        await world.until(lambda: not redrive.is_active)
        assert (redrive.status, redrive.moved) == ("FAILED", 0)


async def test_only_origins_that_were_named_get_messages_back(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue, dead = await dead_letters(world, 2)
        other = await world.queue("other")
        await world.send(dead, b"forged", headers=[("dlq.source.topic", b"other")])
        await world.until(lambda: dead.counts().ready == 3 and is_fed(dead))
        redrive = world.queues.redrives.start(
            dead, destination=None, rate_per_s=None, origins=frozenset({queue.name})
        )
        await world.until(lambda: not redrive.is_active)
        assert (redrive.moved, redrive.skipped) == (2, 1)
        assert (queue.counts().ready, other.counts().ready) == (2, 0)


async def test_the_newest_are_remembered(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        started = []
        for _ in range(KEPT_MAX + 2):
            redrive = world.queues.redrives.start(dead, destination=None, rate_per_s=None)
            started.append(redrive)
            await world.until(lambda redrive=redrive: not redrive.is_active)  # type: ignore[misc]
        assert world.queues.redrives.of(dead) == started[: -KEPT_MAX - 1 : -1]
        with pytest.raises(InvalidRequest):
            world.queues.redrives.cancel("unknown")


async def test_it_ends_though_what_it_moves_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        await world.send(dead, b"a", b"b")
        name = TopicName("default", "dead")
        redrive = world.queues.redrives.start(dead, destination=name, rate_per_s=None)
        await world.until(lambda: not redrive.is_active)
        assert (redrive.status, redrive.moved) == ("COMPLETED", 2)


async def test_a_redrive_survives_the_end_of_its_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        _, dead = await dead_letters(world, 20)
        redrive = world.queues.redrives.start(dead, destination=None, rate_per_s=2)
        await world.until(lambda: redrive.moved == 2)
        await world.queues.delete(dead)
        await world.until(lambda: not redrive.is_active)
        assert world.queues.redrives.of(dead) == []


async def test_a_redrive_that_fails_costs_no_attempt(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead", attempts_max=1)
        await world.send(dead, b"a")
        nowhere = TopicName("default", "nowhere")
        redrive = world.queues.redrives.start(dead, destination=nowhere, rate_per_s=None)
        await world.until(lambda: not redrive.is_active)
        assert redrive.status == "FAILED"
        await world.restart()
        dead = world.find("dead")
        await world.until(lambda: is_fed(dead))
        (letter,) = await take(dead)
        assert letter.attempt == 1
