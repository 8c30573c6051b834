"""Queues that refuse their publishers when they are full, and lengths in bytes."""

import asyncio
import random
from pathlib import Path

import pytest

from features.queue.lane import Lane
from gateway.errors import PolicyViolation, QueueFull, StorageUnavailable
from gateway.partition import Write
from gateway.queues import lane_sizes
from gateway.queues.consumers import CREDIT_UNLIMITED
from gateway.queues.model import Delivery, Outcome
from gateway.queues.queue import Queue
from gateway.records.codec import encode_batch, encode_headers
from gateway.records.record_run import RecordRun
from tests.gateway.queues.queue_node import (
    World,
    headers_of,
    is_fed,
    running,
    settle,
    take,
    values,
)
from tests.gateway.queues.test_consumers import Sink
from tests.gateway.queues.test_message_ttl import named, settled


async def try_send(world: World, queue: Queue, *messages: bytes) -> list[bytes]:
    """Send messages, each a run of its own, in one turn; return those that were taken."""
    taken: list[bytes] = []
    done: list[asyncio.Future[StorageUnavailable | None]] = []
    for message in messages:
        run = RecordRun(None, (message,), encode_headers(()), world.clock.unix_ms())
        answer: asyncio.Future[StorageUnavailable | None] = asyncio.Future()
        try:
            world.queues.coalescer.add(queue.partition_for(None), run, answer.set_result)
        except QueueFull:
            continue
        taken.append(message)
        done.append(answer)
    assert set(await asyncio.gather(*done)) <= {None}
    return taken


async def test_a_full_queue_refuses_and_takes_again_when_there_is_room(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(length_max=3, overflow="reject-publish")
        assert await try_send(world, queue, *named(0, 5)) == named(0, 3)
        assert await try_send(world, queue, b"no") == []
        await world.until(lambda: is_fed(queue))
        out = await take(queue, 2)
        assert await try_send(world, queue, *named(5, 8)) == named(5, 7)
        assert queue.counts() == (3, 2, 0)
        await settle(queue, out, Outcome.RELEASE)  # nothing is dropped: only publishers wait
        await settled(world)
        assert queue.counts() == (5, 0, 0)
        assert await try_send(world, queue, b"no") == []
        assert world.queues.counters.refused == 5


async def test_a_producers_batch_is_refused_by_a_full_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(length_max=2, overflow="reject-publish")
        batch = encode_batch([(world.clock.unix_ms(), None, b"v", ())] * 3)
        write = world.broker.prepare(queue.lanes[0].partition, bytearray(batch))
        assert isinstance(write, Write)
        done: asyncio.Future[StorageUnavailable | None] = asyncio.Future()
        world.broker.append([write], done.set_result)
        with pytest.raises(PolicyViolation, match="work is full"):  # in the same turn
            world.broker.prepare(queue.lanes[0].partition, bytearray(batch))
        assert await done is None


async def test_messages_for_waiting_consumers_are_not_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(length_max=1, overflow="reject-publish")
        sink = Sink(queue, world, credit=CREDIT_UNLIMITED)
        assert len(await try_send(world, queue, *named(0, 500))) == 500
        await world.until(lambda: len(sink.offsets) == 500)


async def test_a_limit_goes_with_its_setting_and_with_its_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(length_max=1, overflow="reject-publish", partitions=2)
        assert len(world.broker.append_limits) == 2
        changed = queue.settings.model_copy(update={"length_max": 0})
        await world.queues.alter(queue, settings=changed)
        assert not world.broker.append_limits
        await world.queues.alter(
            queue, settings=queue.settings.model_copy(update={"length_max": 1})
        )
        assert len(world.broker.append_limits) == 2
        await world.restart()
        assert len(world.broker.append_limits) == 2
        await world.queues.delete(world.find())
        assert not world.broker.append_limits


async def test_each_of_two_groups_with_a_limit_refuses_by_its_own(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        wide = await world.queue(length_max=5, overflow="reject-publish")
        settings = wide.settings.model_copy(update={"length_max": 2})
        narrow = await world.queues.create(wide.topic, settings, group="audit")
        assert await try_send(world, wide, *named(0, 9)) == named(0, 2)
        await world.until(lambda: is_fed(wide) and is_fed(narrow))

        await settle(narrow, await take(narrow))
        assert await try_send(world, wide, *named(2, 9)) == named(2, 4)
        await world.until(lambda: is_fed(wide) and is_fed(narrow))
        await settle(narrow, await take(narrow))
        assert await try_send(world, wide, *named(4, 9)) == named(4, 5)  # the other one is full
        assert (wide.counters.refused, narrow.counters.refused) == (4, 12)


async def test_a_limit_holds_on_when_another_group_gives_its_own_up(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        first = await world.queue(length_max=9, overflow="reject-publish")
        settings = first.settings.model_copy(update={"length_max": 1})
        second = await world.queues.create(first.topic, settings, group="audit")

        await world.queues.alter(
            first, settings=first.settings.model_copy(update={"length_max": 0})
        )

        assert await try_send(world, first, *named(0, 3)) == named(0, 1)
        await world.queues.delete(second)
        assert not world.broker.append_limits


async def test_what_is_being_appended_has_its_room_until_that_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(length_max=2, overflow="reject-publish")
        assert await try_send(world, queue, b"a") == [b"a"]
        limit = world.broker.append_limits[queue.lanes[0].partition.partition_id]
        run = RecordRun(None, (b"x", b"y"), encode_headers(()), 0)
        limit.reserve(run)
        assert limit.room_for(run) == 0
        limit.release(run)
        assert limit.room_for(run) == 1


class ReadRun(RecordRun):
    """Run that counts how often its values are looked at."""

    __slots__ = ("reads",)
    reads: int

    def __getattribute__(self, name: str) -> object:
        if name == "values":
            object.__setattr__(self, "reads", object.__getattribute__(self, "reads") + 1)
        return super().__getattribute__(name)


async def test_a_check_looks_at_no_run_that_is_being_appended(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(length_max=7, overflow="reject-publish")
        limit = world.broker.append_limits[queue.lanes[0].partition.partition_id]
        runs = []
        for _ in range(5):
            run = ReadRun.__new__(ReadRun)
            run.reads = 0
            RecordRun.__init__(run, None, (b"v",), encode_headers(()), 0)
            limit.reserve(run)
            runs.append(run)
        reads = [run.reads for run in runs]
        limit.check(1)
        assert [run.reads for run in runs] == reads
        limit.release(runs.pop())
        runs[0].base_offset = runs[1].base_offset = 0  # their messages are in the log: not here
        wanted = RecordRun(None, (b"v",) * 9, encode_headers(()), 0)
        assert limit.room_for(wanted) == 5
        for run in runs:
            limit.release(run)
        assert limit.room_for(wanted) == 7


async def test_bytes_are_those_of_ready_values(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(length_bytes_max=100, overflow="reject-publish")
        assert await try_send(world, queue, b"a" * 60, b"b" * 41, b"c" * 40) == [
            b"a" * 60,
            b"c" * 40,
        ]
        assert await try_send(world, queue, b"d") == []
        await world.until(lambda: is_fed(queue))
        [first] = await take(queue, 1)
        assert await try_send(world, queue, b"e" * 61, b"f" * 60) == [b"f" * 60]
        await settle(queue, [first], Outcome.RELEASE)
        assert await try_send(world, queue, b"") == []
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        await settled(world)
        assert await try_send(world, queue, b"g") == []


async def test_consumers_that_select_or_have_all_they_may_are_no_demand(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(length_max=2, overflow="reject-publish", in_flight_max=3)
        picky = Sink(queue, world, credit=CREDIT_UNLIMITED, matches=lambda _: False)
        assert await try_send(world, queue, *named(0, 5)) == named(0, 2)
        await world.until(lambda: is_fed(queue))
        picky.consumer.cancel()
        sink = Sink(queue, world, credit=CREDIT_UNLIMITED)
        await world.until(lambda: len(sink.offsets) == 2)
        assert await try_send(world, queue, *named(2, 9)) == named(2, 5)
        await world.until(lambda: queue.counts() == (2, 3, 0))
        assert await try_send(world, queue, b"no") == []


async def test_bytes_are_looked_up_near_the_limit_only_and_of_few_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(length_bytes_max=100, overflow="reject-publish")
        with monkeypatch.context() as patched:
            patched.setattr(Lane, "ready_ranges", None)
            assert len(await try_send(world, queue, *[b"v" * 10] * 9)) == 9
        await world.until(lambda: is_fed(queue))
        _, *others = await take(queue, 9)
        await settle(queue, others[::2], Outcome.RELEASE)
        assert await try_send(world, queue, b"v" * 61) == []
        monkeypatch.setattr(lane_sizes, "PARTS_MAX", 1)
        monkeypatch.setattr(Lane, "ready_ranges", None)
        assert await try_send(world, queue, b"v" * 61, b"v" * 60) == [b"v" * 60]


async def test_the_oldest_go_above_the_bytes(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        queue = await world.queue(length_bytes_max=100, dead_letter_topic="dead")
        await world.send(queue, *[b"%02d" % n + b"x" * 8 for n in range(15)])
        await world.until(lambda: queue.counts().ready == 10)
        await world.send(queue, b"y" * 55)
        await world.until(lambda: queue.counts().ready == 5)
        await world.send(queue, b"z" * 101)
        await world.until(lambda: queue.counts().ready == 0)
        await world.until(lambda: dead.counts().ready == 17 and is_fed(dead))
        letters = await take(dead, 20)
        assert [int(one[:2]) for one in values(letters)[:15] if one] == list(range(15))
        assert {headers_of(one.record)["dlq.reason"] for one in letters} == {b"maxlen"}


class Model:
    """A queue with bounds as a list of positions and values."""

    def __init__(self, length_max: int, bytes_max: int, *, drops: bool) -> None:
        self.length_max = length_max
        self.bytes_max = bytes_max
        self.drops = drops
        self.ready: list[tuple[int, bytes]] = []
        self.out: dict[int, tuple[int, bytes]] = {}
        self.sent = 0

    def is_over(self, messages: list[tuple[int, bytes]]) -> bool:
        size_bytes = sum(len(value) for _, value in messages)
        is_long = bool(self.length_max) and len(messages) > self.length_max
        return is_long or (bool(self.bytes_max) and size_bytes > self.bytes_max)

    def send(self, values: list[bytes]) -> list[bytes]:
        taken = []
        for value in values:
            if self.drops or not self.is_over([*self.ready, (self.sent, value)]):
                self.ready.append((self.sent, value))
                taken.append(value)
                self.sent += 1
        self.shorten()
        return taken

    def take(self, count: int) -> list[tuple[int, bytes]]:
        taken, self.ready = self.ready[:count], self.ready[count:]
        self.out.update((one[0], one) for one in taken)
        return taken

    def release(self, positions: list[int]) -> None:
        self.ready = sorted([*self.ready, *(self.out.pop(at) for at in positions)])
        self.shorten()

    def shorten(self) -> None:
        while self.drops and self.is_over(self.ready):
            self.ready.pop(0)

    @property
    def counts(self) -> tuple[int, int, int]:
        return len(self.ready), len(self.out), 0


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
@pytest.mark.parametrize("seed", range(4))
async def test_a_queue_is_bounded_as_a_list_is(
    tmp_path: Path, seed: int, overflow: str
) -> None:
    chance = random.Random(seed)
    async with running(tmp_path) as world:
        length_max = chance.choice([0, 8, 15])
        bytes_max = chance.choice([40, 90]) if not length_max or chance.random() < 0.5 else 0
        queue = await world.queue(
            length_max=length_max,
            length_bytes_max=bytes_max,
            overflow=overflow,
            lease_ms=40_000_000,
        )
        model = Model(length_max, bytes_max, drops=overflow == "drop-head")
        held: dict[int, Delivery] = {}
        for _ in range(25):
            what = chance.random()
            if what < 0.5:
                batch = [b"v" * chance.randrange(12) for _ in range(chance.randrange(1, 9))]
                assert await try_send(world, queue, *batch) == model.send(batch)
                await world.until(lambda: is_fed(queue))
            elif what < 0.75:
                got = await take(queue, chance.randrange(1, 6))
                wanted = model.take(len(got))
                assert values(got) == [value for _, value in wanted]
                held.update(zip([at for at, _ in wanted], got, strict=True))
            elif held:
                some = chance.sample(sorted(held), chance.randrange(1, len(held) + 1))
                await settle(queue, [held.pop(at) for at in some], Outcome.RELEASE)
                model.release(some)
            await world.until(lambda: queue.counts() == model.counts)
