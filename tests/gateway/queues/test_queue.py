"""A queue as a whole: limits, purge, browse, order, delay, retention, and its end."""

import asyncio
from pathlib import Path

import pytest

from features.queue.model import Result
from gateway.errors import Overloaded, TopicNotFound
from gateway.model import TopicName
from gateway.queues.manager import Queue, QueueExists
from gateway.queues.model import Delivery, DeliveryId, Outcome, QueueSettings
from tests.gateway.kernel_in_memory import outcome
from tests.gateway.queues.queue_node import (
    extend,
    is_fed,
    running,
    settle,
    take,
    take_now,
    try_settle,
    values,
)


@pytest.mark.parametrize("partitions", [1, 3])
async def test_no_more_are_in_flight_than_may_be(tmp_path: Path, partitions: int) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(partitions=partitions, in_flight_max=4)
        await world.send(queue, *[b"%d" % n for n in range(9)])
        assert not queue.is_full
        got = await take(queue)
        assert (len(got), queue.is_full) == (4, True)
        waiting = asyncio.ensure_future(take(queue, wait_ms=20_000))
        await world.turn()
        await settle(queue, got[:1])
        assert len(await waiting) == 1
        assert queue.counts().in_flight == 4


async def test_purge_leaves_nothing_but_what_comes_later(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(partitions=2)
        await world.send(queue, b"a", b"b", b"c", b"d")
        got = await take(queue, 1)
        assert await outcome(queue.purge) is None
        assert queue.counts() == (0, 0, 0)
        assert await settle(queue, got) == [Result.GONE]
        await world.send(queue, b"later")
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        assert values(await take(queue)) == [b"later"]


async def test_browsing_takes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a", b"b", b"c", b"d")
        got = await take(queue, 2)
        await settle(queue, got[:1])
        seen = await queue.browse(10)
        assert [(one.number, one.state, one.record.value) for one in seen] == [
            (0, "in_flight", b"b"),
            (0, "ready", b"c"),
            (0, "ready", b"d"),
        ]
        later = await queue.browse(1, from_offsets={0: 3})
        assert [one.record.value for one in later] == [b"d"]
        record = await queue.get(0, 2)
        assert record is not None
        assert record.value == b"c"
        assert [await queue.get(0, 4), await queue.get(1, 0)] == [None, None]
        assert queue.counts() == (2, 1, 0)


async def test_browsing_finds_what_is_behind_what_is_done(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, *[b"%d" % n for n in range(20)])
        await settle(queue, (await take(queue, 15))[1:])
        assert [one.record.value for one in await queue.browse(3)] == [b"0", b"15", b"16"]


async def test_a_key_has_one_message_in_flight_at_a_time(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="key")
        await world.send(queue, b"a1", key=b"a")
        await world.send(queue, b"b1", key=b"b")
        await world.send(queue, b"a2", key=b"a")
        first = await take(queue, 1)
        second = await take(queue, 1)
        assert (values(first), values(second)) == ([b"a1"], [b"b1"])
        assert await take(queue) == []
        waiting = asyncio.ensure_future(take(queue, wait_ms=20_000))
        await world.turn()
        await settle(queue, first)
        assert values(await waiting) == [b"a2"]


async def test_a_quiet_tenant_behind_a_noisy_one_is_found(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair", partitions=2)
        for lane in queue.lanes:
            noisy = [b"x%d" % n for n in range(200)]
            await world.send(queue, *noisy, key=_key_of(queue, lane.number, b"noisy"))
            await world.send(queue, b"q", key=_key_of(queue, lane.number, b"quiet"))
        await take(queue, 40)
        await take(queue, 40)
        got = await take(queue, 2)
        assert values(got) == [b"q", b"q"]


def _key_of(queue: Queue, number: int, prefix: bytes) -> bytes:
    """A key of that partition."""
    keys = (b"%s-%d" % (prefix, n) for n in range(1_000))
    return next(key for key in keys if queue.partition_for(key).number == number)


async def test_a_message_is_visible_when_it_is_old_enough(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(delay_ms=1_000)
        at_once = str(world.clock.unix_ms()).encode()
        await world.send(queue, b"later")
        await world.send(queue, b"now", headers=[("deliver-at", at_once)])
        assert values(await take(queue)) == [b"now"]
        assert queue.counts() == (0, 1, 1)
        waiting = asyncio.ensure_future(take(queue, wait_ms=20_000))
        await world.turn()
        world.advance(1_001)
        assert values(await waiting) == [b"later"]


async def test_a_clock_that_is_set_ends_no_lease_and_no_delay(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(delay_ms=1_000, lease_ms=5_000)
        world.clock.step_unix(3_600_000)
        await world.send(queue, b"a")
        assert await take(queue) == []
        world.advance(1_001)
        assert values(await take(queue)) == [b"a"]
        world.clock.step_unix(-7_200_000)
        world.advance(4_998)
        assert take_now(queue) == []
        world.advance(10)
        assert values(await take(queue)) == [b"a"]


async def test_what_is_too_old_is_not_handed_out_and_goes(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(retention_ms=60_000, lease_ms=50_000)
        await world.send(queue, b"old", b"old too", b"still old")
        world.advance(30_000)
        held = await take(queue, 1)
        await world.send(queue, b"young")
        world.advance(30_001)
        await world.queues.upkeep.expire_all()
        assert queue.counts() == (1, 1, 0)
        assert values(await take(queue)) == [b"young"]
        world.advance(20_000)
        assert take_now(queue) == [], "what was in flight when it became too old goes too"
        assert await settle(queue, held) == [Result.GONE]


async def test_what_expires_at_the_front_moves_though_nobody_receives(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        queue = await world.queue(dead_letter_topic="dead")
        soon = str(world.clock.unix_ms() + 1_000).encode()
        await world.send(
            queue, *[b"%d" % n for n in range(100)], headers=[("expires-at", soon)]
        )
        await world.send(queue, b"stays")
        world.advance(999)
        await world.queues.upkeep.expire_all()
        assert queue.counts().ready == 101
        world.advance(1)
        await world.queues.upkeep.expire_all()
        await world.until(lambda: dead.counts().ready == 100)
        (message,) = await take(queue)
        assert (message.record.value, message.attempt) == (b"stays", 1)


async def test_retention_follows_what_is_settled(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        partition_id = queue.topic.partition_ids[0]
        holders = world.broker.holders
        await world.send(queue, b"a", b"b", b"c")
        assert holders.settled(partition_id) == 0
        got = await take(queue)
        await settle(queue, got[:2])
        await world.queues.upkeep.hold_all()
        assert [(hold.name, hold.offset) for hold in holders.of(partition_id)] == [
            ("queue:@queue", 2)
        ]
        await world.restart()
        assert world.broker.holders.settled(partition_id) == 2


async def test_messages_that_the_log_has_lost_are_passed_over(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a", b"b", b"c")
        partition = queue.lanes[0].partition
        await outcome(lambda done: world.broker.truncate_before(partition, 2, done))
        assert values(await take(queue)) == [b"c"]
        await world.restart()
        queue = world.find()
        assert queue.counts() == (0, 1, 0)


async def test_the_end_of_a_holder_frees_what_it_had(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a", b"b")
        gone, other = world.queues.new_holder(), world.queues.new_holder()
        await take(queue, 1, holder=gone)
        await take(queue, 1, holder=other)
        queue.end_holder(gone)
        assert values(await take(queue)) == [b"a"]
        await world.restart()
        queue = world.find()
        assert values(await take(queue)) == [b"b"], "no connection survives a restart"


async def test_leases_can_be_extended_and_given_up(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(lease_ms=1_000)
        await world.send(queue, b"long", b"short")
        long, short = await take(queue)
        unknown = DeliveryId(9, 0, 1)
        ids = [(long.delivery_id, 10_000), (short.delivery_id, 0), (unknown, 5)]
        assert await extend(queue, ids) == [Result.DONE, Result.DONE, Result.GONE]
        assert values(await take(queue)) == [b"short"]
        world.advance(1_001)
        again = await take(queue)
        assert values(again) == [b"short"]
        results, _ = await try_settle(queue, [short], Outcome.RELEASE)
        assert results == [Result.STALE]


async def test_a_queue_is_changed_and_found_again(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        world.clock.advance(5)
        await world.queues.alter(queue, settings=QueueSettings(lease_ms=7), tags={"a": "b"})
        await world.queues.alter(queue, attributes={"sqs.Policy": "{}"})
        await world.restart()
        queue = world.find()
        assert (queue.settings.lease_ms, queue.tags) == (7, {"a": "b"})
        assert (queue.attributes, queue.protocol) == ({"sqs.Policy": "{}"}, "sqs")
        assert queue.changed_unix_ms == queue.created_unix_ms + 5


async def test_order_can_be_set_later(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"1", b"2", key=b"k")
        await world.queues.alter(queue, settings=QueueSettings(order="key"))
        await world.until(lambda: is_fed(queue))
        assert values(await take(queue, 1)) == [b"1"]
        assert await take(queue, 1) == []


async def test_a_queue_exists_once(tmp_path: Path) -> None:
    async with running(tmp_path, queues_max=1) as world:
        queue = await world.queue()
        with pytest.raises(QueueExists):
            await world.queues.create(queue.topic, QueueSettings())
        with pytest.raises(Overloaded):
            await world.queues.create(queue.topic, QueueSettings(), group="second")


async def test_a_deleted_queue_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        partition_id = queue.topic.partition_ids[0]
        await world.send(queue, b"a")
        answers: list[list[Delivery]] = []
        await take(queue)
        queue.receive(1, bytes_max=1, wait_ms=1_000, on_done=answers.append)
        await world.queues.delete(queue)
        assert answers == [[]]
        assert world.topics.find(TopicName("default", "work")) is None
        assert world.broker.holders.of(partition_id) == []
        with pytest.raises(TopicNotFound):
            await world.queues.delete(queue)
        again = await world.queue()
        assert again.counts() == (0, 0, 0)
        await world.restart()
        assert [one.name.name for one in world.queues.everything()] == ["work"]


async def test_a_group_that_is_made_anew_begins_anew(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        topic = await world.topic("events")
        settings = QueueSettings()
        first = await world.queues.create(topic, settings, group="g")
        await world.send(first, b"a", b"b")
        await settle(first, await take(first, 1))
        await world.queues.delete(first)
        assert world.topics.find(topic.name) is topic
        second = await world.queues.create(topic, settings, group="g", from_start=True)
        await world.until(lambda: is_fed(second))
        assert values(await take(second)) == [b"a", b"b"]
        await world.restart()
        found = world.queues.find(topic.name, "g")
        assert found is not None
        assert found.counts() == (0, 2, 0)


async def test_a_topic_takes_its_queues_along(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a")
        await world.topics.delete(queue.name)
        assert (world.queues.everything(), queue.is_gone) == ([], True)
        await world.restart()
        assert world.queues.everything() == []


async def test_new_partitions_get_lanes(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a")
        await world.topics.add_partitions(queue.name, 3)
        await world.send(queue, b"b", b"c", b"d")
        got = await take(queue)
        assert sorted(one.number for one in got) == [0, 0, 1, 2]
        await settle(queue, got)
        await world.restart()
        assert world.find().counts() == (0, 0, 0)


async def test_sources_of_dead_letters_are_known(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        await world.queue("b", dead_letter_topic="dead")
        await world.queue("a", dead_letter_topic="dead")
        await world.queue("c")
        names = [queue.name.name for queue in world.queues.sources_of(dead.name)]
        assert names == ["a", "b"]
        assert [queue.name.name for queue in world.queues.queues()] == ["a", "b", "c", "dead"]


async def test_only_so_many_wait(tmp_path: Path) -> None:
    async with running(tmp_path, receivers_max=2) as world:
        queue = await world.queue()
        for _ in range(2):
            queue.receive(1, bytes_max=1, wait_ms=1_000, on_done=lambda _: None)
        with pytest.raises(Overloaded):
            queue.receive(1, bytes_max=1, wait_ms=1_000, on_done=lambda _: None)
        assert await take(queue) == [], "who does not wait is answered"


async def test_partitions_have_their_turns(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(partitions=3)
        await world.send(queue, *[b"%d" % n for n in range(60)])
        numbers = [{one.number for one in await take(queue, 5)} for _ in range(6)]
        assert all(len(some) == 1 for some in numbers)
        assert len(set.union(*numbers[:3])) == len(set.union(*numbers[3:])) == 3


async def test_messages_of_many_batches_come_in_the_order_in_which_they_are_taken(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="key")
        for n in range(6):
            await world.send(queue, b"%d" % n, key=b"k%d" % n)
        await world.send(queue, *[b"%d" % n for n in range(6, 12)], key=b"k0")
        world.queues._context.message_cache.forget(queue.topic.partition_ids)
        places = [5, 0, 7, 6, 2, 3, 4, 11]
        bodies = world.queues._context.message_cache.find(queue.lanes[0].partition, places)
        assert bodies is not None
        assert [body.value for body in bodies] == [b"%d" % place for place in places]
