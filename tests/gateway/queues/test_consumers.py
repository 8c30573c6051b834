"""Registered consumers: credit, priority, turns with receives, one active, and their ends."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from features.queue.model import Outcome, SettledRange
from gateway.errors import Overloaded
from gateway.model import EXPIRES_AT
from gateway.queues.consumers import CREDIT_UNLIMITED, CancelReason, Consumer, QueueInUse
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.model import QueueSettings
from gateway.queues.queue import Queue
from tests.gateway.queues.queue_node import World, is_fed, running, take, take_now
from tests.gateway.queues.test_cold_reads import ColdDisk


class Sink:
    """An adapter's end of a consumer, which remembers what came."""

    def __init__(self, queue: Queue, world: World, **how: Any) -> None:
        self.queue = queue
        self.ranges: list[DeliveredRange] = []
        self.turns: list[int] = []
        self.dealt: list[int] = []  # most messages of each turn
        self.reasons: list[CancelReason] = []
        self.holder = how.pop("holder", None) or world.queues.new_holder()
        self.consumer: Consumer = queue.consumers.subscribe(self, holder=self.holder, **how)

    def on_ranges(self, ranges: Sequence[DeliveredRange]) -> None:
        self.ranges += ranges
        self.turns.append(sum(len(one.offsets) for one in ranges))
        self.dealt.append(self.consumer.messages_max)

    def on_cancelled(self, reason: CancelReason) -> None:
        self.reasons.append(reason)

    @property
    def offsets(self) -> list[int]:
        return [at for one in self.ranges for at in one.offsets]

    @property
    def values(self) -> list[bytes | None]:
        return [one.value for found in self.ranges for one in self.queue.records_of(found)]

    async def settle(self, outcome: Outcome = Outcome.ACK, count: int = 1_000_000) -> int:
        """Settle all that came, or the first ``count`` ranges; return the number of messages."""
        some, self.ranges = self.ranges[:count], self.ranges[count:]
        total = 0
        for one in some:
            done: asyncio.Future[list[int]] = asyncio.Future()
            settled = [SettledRange(one.offsets, one.attempt, outcome)]
            self.queue.settle_ranges(
                one.number,
                settled,
                lambda counts, _, done=done: done.set_result(counts),  # type: ignore[misc]
                holder=self.holder,
            )
            total += sum(await asyncio.wait_for(done, 60))
        return total


async def fill(world: World, queue: Queue, count: int) -> None:
    await world.send(queue, *[b"m%d" % n for n in range(count)])


async def turn(world: World, turns: int = 5) -> None:
    for _ in range(turns):
        await world.turn()


async def test_a_consumer_gets_no_more_than_its_credit(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        sink = Sink(queue, world, credit=4)
        await fill(world, queue, 10)
        await world.until(lambda: len(sink.offsets) == 4)
        await turn(world)
        assert sink.values == [b"m0", b"m1", b"m2", b"m3"]
        assert sink.consumer.credit == 0
        assert await sink.settle() == 4
        sink.consumer.grant(100)
        await world.until(lambda: len(sink.offsets) == 6)
        assert sink.consumer.credit == 94
        assert queue.counts() == (0, 6, 0)


async def test_messages_of_a_batch_come_as_one_range_in_a_turn(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await fill(world, queue, 300)
        sink = Sink(queue, world, credit=CREDIT_UNLIMITED)
        await world.until(lambda: len(sink.offsets) == 300)
        assert sink.turns == [300]
        assert len(sink.ranges) <= 3  # as many as there are batches
        assert sink.consumer.credit == CREDIT_UNLIMITED - 300


async def test_consumers_of_a_queue_share_what_is_there(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(partitions=3)
        sinks = [Sink(queue, world, credit=CREDIT_UNLIMITED) for _ in range(3)]
        for _ in range(6):
            await fill(world, queue, 30)
        await world.until(lambda: queue.counts().ready == 0)
        counts = [len(sink.offsets) for sink in sinks]
        assert sum(counts) == 180
        assert max(counts) - min(counts) <= 30


async def test_one_message_after_the_other_goes_round(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        sinks = [Sink(queue, world, credit=10) for _ in range(3)]
        for number in range(9):
            await world.send(queue, b"%d" % number)
            await world.until(lambda: queue.counts().ready == 0)
        assert [sink.values for sink in sinks] == [
            [b"0", b"3", b"6"],
            [b"1", b"4", b"7"],
            [b"2", b"5", b"8"],
        ]


async def test_a_lower_priority_gets_what_the_higher_cannot_take(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        low = Sink(queue, world, credit=100, priority=1)
        high = Sink(queue, world, credit=3, priority=2)
        await fill(world, queue, 2)
        await world.until(lambda: queue.counts().ready == 0)
        assert (low.offsets, high.offsets) == ([], [0, 1])
        await fill(world, queue, 4)
        await world.until(lambda: queue.counts().ready == 0)
        assert (low.offsets, high.offsets) == ([3, 4, 5], [0, 1, 2])
        high.consumer.grant(10)
        high.consumer.pause()
        await fill(world, queue, 1)
        await world.until(lambda: queue.counts().ready == 0)
        assert low.offsets[-1] == 6


async def test_a_paused_consumer_gets_nothing_until_it_resumes(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        sink = Sink(queue, world, credit=10)
        sink.consumer.pause()
        await fill(world, queue, 3)
        await turn(world)
        assert sink.offsets == []
        sink.consumer.resume()
        await world.until(lambda: sink.offsets == [0, 1, 2])


async def test_consumers_and_receives_share_a_turn(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        sink = Sink(queue, world, credit=10)
        received: list[DeliveredRange] = []
        for number in range(6):
            if queue.waiting_count == 0:
                queue.receive_ranges(
                    1, bytes_max=1, on_done=received.extend, wait_ms=20_000, holder=1
                )
            await world.send(queue, b"%d" % number)
            await world.until(lambda: queue.counts().ready == 0)
        assert len(received) == 3
        assert sorted([one.offsets.start for one in received] + sink.offsets) == list(range(6))


async def test_a_receive_goes_after_consumers_of_a_higher_priority(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        high = Sink(queue, world, credit=1, priority=1)
        waiting = asyncio.ensure_future(take(queue, 1, wait_ms=20_000))
        await turn(world, 1)
        await fill(world, queue, 2)
        assert [one.record.value for one in await waiting] == [b"m1"]
        assert high.values == [b"m0"]


async def test_a_consumer_that_wants_a_queue_for_itself_has_no_others(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        sink = Sink(queue, world, is_exclusive=True)
        with pytest.raises(QueueInUse):
            Sink(queue, world)
        sink.consumer.cancel()
        Sink(queue, world)
        with pytest.raises(QueueInUse):
            Sink(queue, world, is_exclusive=True)


async def test_of_single_active_consumers_the_next_begins_when_one_leaves(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(single_active=True)
        first = Sink(queue, world, credit=10)
        second = Sink(queue, world, credit=10)
        third = Sink(queue, world, credit=10, priority=1)
        await fill(world, queue, 2)
        await world.until(lambda: queue.counts().ready == 0)
        assert (first.offsets, second.offsets, third.offsets) == ([0, 1], [], [])
        first.consumer.cancel()
        assert (second.consumer.is_active, third.consumer.is_active) == (False, True)
        await fill(world, queue, 1)
        await world.until(lambda: third.offsets == [2])
        assert await first.settle() == 2  # what it had stays its own
        third.consumer.cancel()
        await fill(world, queue, 1)
        await world.until(lambda: second.offsets == [3])


async def test_whether_one_consumer_is_active_may_change(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(single_active=True)
        sinks = [Sink(queue, world, credit=2, priority=n) for n in (0, 0, 5)]

        await world.queues.alter(queue, settings=QueueSettings(single_active=False))
        assert [sink.consumer.is_active for sink in sinks] == [True, True, True]
        await fill(world, queue, 6)
        await world.until(lambda: [len(sink.offsets) for sink in sinks] == [2, 2, 2])

        await world.queues.alter(queue, settings=QueueSettings(single_active=True))
        assert [sink.consumer.is_active for sink in sinks] == [True, False, False]
        sinks[0].consumer.cancel()
        assert [sink.consumer.is_active for sink in sinks] == [False, False, True]
        assert len(world.queues._context.leaser) == 1


async def test_messages_come_back_with_the_end_of_their_holder(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        gone = Sink(queue, world, credit=5)
        await fill(world, queue, 5)
        await world.until(lambda: len(gone.offsets) == 5)
        gone.consumer.cancel()
        other = Sink(queue, world, credit=5)
        await turn(world)
        assert other.offsets == []
        queue.end_holder(gone.holder)
        await world.until(lambda: other.offsets == [0, 1, 2, 3, 4])
        assert {one.attempt for one in other.ranges} == {2}
        assert await gone.settle() == 0
        assert await other.settle() == 5


async def test_what_is_released_comes_again_and_what_is_returned_counts_not(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        sink = Sink(queue, world, credit=1)
        await fill(world, queue, 1)
        for outcome, attempt in (
            (Outcome.RETURN, 1),
            (Outcome.RELEASE, 1),
            (Outcome.RETURN, 2),
            (Outcome.ACK, 2),
        ):
            await world.until(lambda: len(sink.ranges) == 1)
            assert sink.ranges[0].attempt == attempt
            sink.consumer.set_credit(1)
            assert await sink.settle(outcome) == 1
        await turn(world)
        assert sink.ranges == []


async def test_messages_delivered_at_most_once_are_settled_as_they_leave(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        sink = Sink(queue, world, credit=CREDIT_UNLIMITED, settles_at_once=True)
        await fill(world, queue, 20)
        await world.until(lambda: len(sink.offsets) == 20)
        assert queue.counts() == (0, 0, 0)
        await turn(world)
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        assert queue.counts() == (0, 0, 0)


async def test_expired_messages_use_no_credit(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        expires = [(EXPIRES_AT, b"%d" % (world.clock.unix_ms() + 100))]
        await world.send(queue, b"old", headers=expires)
        await world.send(queue, b"new")
        world.clock.advance(101)
        sink = Sink(queue, world, credit=1)
        await world.until(lambda: sink.values == [b"new"])


async def test_messages_on_the_disk_use_credit_when_they_come(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a", b"b", b"c")
        disk = ColdDisk(world, queue)
        sink = Sink(queue, world, credit=2)
        await turn(world)
        assert (sink.offsets, sink.consumer.credit) == ([], 2)
        disk.spun.set()
        await world.until(lambda: sink.values == [b"a", b"b"])
        await turn(world)
        assert sink.consumer.credit == 0
        assert queue.counts() == (1, 2, 0)


async def test_a_consumer_hears_of_its_reads_from_the_disk(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a", b"b", b"c")
        disk = ColdDisk(world, queue)
        seen: list[int] = []
        sink = Sink(queue, world, credit=2, on_reading=seen.append)
        await turn(world)
        assert seen == [2]
        disk.spun.set()
        await world.until(lambda: sink.values == [b"a", b"b"])
        assert seen == [2, 0]


async def test_large_messages_are_read_and_taken_as_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as world:
        monkeypatch.setattr("gateway.queues.receivers.FOUND_BYTES_MAX", 250_000)
        queue = await world.queue()
        sent = [b"%02d" % n * 50_000 for n in range(40)]  # 4 MB, the disk gives 1 MiB a read
        await world.send(queue, *sent)
        disk = ColdDisk(world, queue)
        sink = Sink(queue, world, credit=CREDIT_UNLIMITED, bytes_max=150_000)
        disk.spun.set()
        await world.until(lambda: len(sink.offsets) > 0)
        assert disk.reads == 1
        await world.until(lambda: len(sink.offsets) == 40)
        assert sink.values == sent
        # Four times what 150,000 bytes hold, and one, as soon as the size is known.
        assert (sink.dealt[0], max(sink.dealt[1:])) == (40, 6)
        assert {one.attempt for one in sink.ranges} == {1}


async def test_a_consumer_that_leaves_while_its_messages_are_read_leaves_them(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a", b"b")
        disk = ColdDisk(world, queue)
        sink = Sink(queue, world, credit=2)
        await turn(world)
        sink.consumer.cancel()
        disk.spun.set()
        other = Sink(queue, world, credit=2)
        await world.until(lambda: other.values == [b"a", b"b"])
        assert sink.ranges == []
        assert {one.attempt for one in other.ranges} == {1}


@pytest.mark.parametrize("how", ["delete", "stop"])
async def test_the_end_of_a_queue_ends_its_consumers(tmp_path: Path, how: str) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        sinks = [Sink(queue, world, credit=1) for _ in range(2)]
        if how == "delete":
            await world.queues.delete(queue)
        else:
            await world.restart()
        reason = CancelReason.DELETED if how == "delete" else CancelReason.STOPPED
        assert [sink.reasons for sink in sinks] == [[reason], [reason]]
        assert len(queue.consumers) == 0


async def test_a_bug_of_a_consumer_is_the_end_of_it_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        asyncio.get_running_loop().set_exception_handler(lambda *_of_what: None)
        queue = await world.queue()
        bad = Sink(queue, world, credit=10)
        bad.on_ranges = 1 // 1  # type: ignore[method-assign, assignment]
        good = Sink(queue, world, credit=10)
        await fill(world, queue, 1)
        await world.until(lambda: bad.reasons == [CancelReason.FAILED])
        await fill(world, queue, 2)
        await world.until(lambda: good.offsets == [1, 2])
        queue.end_holder(bad.holder)
        await world.until(lambda: good.offsets == [1, 2, 0])


async def test_a_bug_at_the_end_of_a_queue_keeps_nothing_open(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        sinks = [Sink(queue, world, credit=1) for _ in range(2)]
        sinks[0].on_cancelled = 1 // 1  # type: ignore[method-assign, assignment]
        (lane,) = queue.lanes
        await world.queues.delete(queue)
        assert sinks[1].reasons == [CancelReason.DELETED]
        assert (len(queue.consumers), lane.is_gone) == (0, True)


async def test_consumers_count_as_receivers_that_wait(tmp_path: Path) -> None:
    async with running(tmp_path, receivers_max=2) as world:
        queue = await world.queue()
        first = Sink(queue, world)
        Sink(queue, world)
        with pytest.raises(Overloaded):
            Sink(queue, world)
        with pytest.raises(Overloaded):
            take_now(queue, wait_ms=10)
        first.consumer.cancel()
        Sink(queue, world)


@pytest.mark.parametrize("seed", range(6))
async def test_any_order_of_calls_delivers_each_message_to_one_holder(  # noqa: PLR0915 - a walk
    tmp_path: Path, seed: int
) -> None:
    """A plain model: who holds which message, and how much credit each has left."""
    chance = random.Random(seed)
    async with running(tmp_path) as world:
        queue = await world.queue(partitions=chance.choice([1, 3]), lease_ms=1 << 25)
        sinks: list[Sink] = []
        given: dict[Sink, int] = {}
        seen: dict[Sink, int] = {}
        sent = settled = 0
        for _ in range(80):
            what = chance.choice(
                ["send", "send", "join", "grant", "ack", "ack", "back", "leave"]
            )
            if what == "send":
                count = chance.randrange(1, 30)
                await world.send(queue, *[b"%d" % (sent + n) for n in range(count)])
                sent += count
            elif what == "join" or not sinks:
                credit = chance.choice([0, 1, 7, 100])
                sinks.append(
                    Sink(queue, world, credit=credit, priority=chance.choice([0, 0, 1]))
                )
                given[sinks[-1]] = credit
            elif what == "grant":
                sink = chance.choice(sinks)
                given[sink] += 5
                sink.consumer.grant(5)
            elif what == "leave":
                sink = sinks.pop(chance.randrange(len(sinks)))
                sink.consumer.cancel()
                queue.end_holder(sink.holder)
            else:
                sink = chance.choice(sinks)
                seen[sink] = sum(sink.turns)
                outcome = Outcome.ACK if what == "ack" else Outcome.RELEASE
                count = await sink.settle(outcome, chance.randrange(1, 4))
                settled += count if what == "ack" else 0
            await turn(world, 2)
            held = [
                (one.number, at) for sink in sinks for one in sink.ranges for at in one.offsets
            ]
            assert len(held) == len(set(held)), "two have the same message"
            for sink in sinks:
                assert sink.consumer.credit == given[sink] - sum(sink.turns) >= 0
            counts = queue.counts()
            assert counts.in_flight == len(held)
            assert sum(counts) == sent - settled
            assert not counts.ready or not any(sink.consumer.is_ready for sink in sinks)
        last = Sink(queue, world, credit=CREDIT_UNLIMITED)
        for sink in sinks:
            sink.consumer.cancel()
            queue.end_holder(sink.holder)
        await world.until(lambda: queue.counts().ready == 0)
        assert await last.settle() == sent - settled
        assert sum(queue.counts()) == 0
