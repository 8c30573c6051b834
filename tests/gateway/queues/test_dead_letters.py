"""Dead letters: what goes there, what it says, and that it goes nowhere when it cannot."""

from pathlib import Path
from typing import Any

import pytest

from features.dead_letter import HOPS_MAX
from features.queue.model import Result
from gateway.errors import StorageUnavailable
from gateway.model import parse_batch_header
from gateway.partition import Write
from gateway.queues import dead_letters, move_retries
from gateway.queues.manager import Queue
from gateway.queues.model import Outcome
from gateway.records.codec import I64_MAX, NO_HEADERS, encode_batch, encode_runs
from gateway.records.message_ids import message_id
from gateway.records.record_run import RecordRun
from tests.gateway.kernel_in_memory import outcome
from tests.gateway.queues.queue_node import (
    World,
    extend,
    headers_of,
    is_fed,
    running,
    settle,
    take,
    try_settle,
    values,
)

NOW = 1_600_000_000_000


async def with_dead(world: World, **settings: Any) -> tuple[Queue, Queue]:
    dead = await world.queue("dead")
    return await world.queue(dead_letter_topic="dead", **settings), dead


async def test_a_message_that_came_too_often_is_a_dead_letter(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world, attempts_max=2)
        await world.send(queue, b"poison", key=b"k", headers=[("a", b"1"), ("a", None)])
        for _ in range(2):
            got = await take(queue)
            await settle(queue, got, Outcome.RELEASE)
        assert queue.counts() == (1, 0, 0), "until somebody asks for it once more"
        assert await take(queue) == []
        await world.until(lambda: dead.counts().ready == 1)
        await world.until(lambda: is_fed(dead))
        (letter,) = await take(dead)
    record = letter.record
    assert (record.key, record.value) == (b"k", b"poison")
    assert record.timestamp_unix_ms == got[0].record.timestamp_unix_ms
    assert record.headers[:2] == (("a", b"1"), ("a", None))
    said = headers_of(record)
    assert said["dlq.reason"] == b"attempts"
    assert (said["dlq.source.topic"], said["dlq.source.partition"]) == (b"work", b"0")
    assert (said["dlq.source.offset"], said["dlq.attempts"]) == (b"0", b"2")
    assert (said["dlq.group"], said["dlq.hops"]) == (b"@queue", b"1")
    assert said["message-id"] == message_id(queue.topic.uuid, 0, 0).encode()


async def test_the_last_attempt_may_end_late_while_nobody_asks_for_another(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world, attempts_max=1)
        await world.send(queue, b"slow")
        got = await take(queue)
        world.advance(30_001)
        await world.turn()

        assert await settle(queue, got) == [Result.DONE]

        assert await take(queue) == []
        assert (queue.counts(), dead.counts()) == ((0, 0, 0), (0, 0, 0))


async def test_a_message_that_failed_too_often_is_a_dead_letter_at_once(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world, delivery_limit=1)
        await world.send(queue, b"poison")
        for outcome_ in (Outcome.RELEASE, Outcome.REQUEUE, Outcome.RELEASE):
            await settle(queue, await take(queue), outcome_)
        await world.until(lambda: dead.counts().ready == 1)
        assert queue.counts() == (0, 0, 0)
        await world.until(lambda: is_fed(dead))
        (letter,) = await take(dead)
    said = headers_of(letter.record)
    assert (said["dlq.reason"], said["dlq.attempts"]) == (b"delivery_limit", b"3")


async def test_a_message_that_failed_too_often_is_dropped_without_dead_letters(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(delivery_limit=0)
        await world.send(queue, b"poison", b"good")
        await settle(queue, await take(queue, 1), Outcome.RELEASE)
        await world.until(lambda: world.queues.counters.dropped == 1)
        assert values(await take(queue, 2)) == [b"good"]


async def test_failures_are_not_limited_while_the_dead_letter_topic_is_missing(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(delivery_limit=0, dead_letter_topic="later")
        await world.send(queue, b"poison")
        for _ in range(3):
            await settle(queue, await take(queue), Outcome.RELEASE)
        assert queue.counts() == (1, 0, 0)


async def test_who_waits_gets_what_is_behind_the_dead(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world, attempts_max=1)
        await world.send(queue, *[b"poison"] * 30)
        got = await take(queue, 30)
        await world.send(queue, b"good")
        await settle(queue, got, Outcome.RELEASE)

        assert values(await take(queue, 1, wait_ms=60_000)) == [b"good"]
        await world.until(lambda: dead.counts().ready == 30)


@pytest.mark.parametrize(("order", "later_ms"), [("none", 0), ("key", 60_000)])
async def test_in_order_of_keys_it_is_sent_anew(
    tmp_path: Path, order: str, later_ms: int
) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world, order=order)
        await world.send(queue, b"bad", key=b"k")
        sent_unix_ms = world.clock.unix_ms()
        world.advance(60_000)
        await settle(queue, await take(queue), Outcome.REJECT)
        await world.until(lambda: is_fed(dead))
        (letter,) = await take(dead)
    assert letter.record.timestamp_unix_ms == sent_unix_ms + later_ms


async def test_a_rejected_message_has_moved_when_that_is_told(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world)
        await world.send(queue, b"bad", b"good")
        got = await take(queue)
        assert await settle(queue, got[:1], Outcome.REJECT, reason="ugly") == [Result.DONE]
        assert dead.counts().ready == 1
        assert queue.counts() == (0, 1, 0)
        await world.until(lambda: is_fed(dead))
        (letter,) = await take(dead)
        assert headers_of(letter.record)["dlq.reason"] == b"ugly"
        assert await settle(queue, got[:1], Outcome.ACK) == [Result.GONE]


async def test_without_a_dead_letter_topic_it_is_dropped(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"bad")
        await settle(queue, await take(queue), Outcome.REJECT)
        assert queue.counts() == (0, 0, 0)
        await world.restart()
        assert world.find().counts() == (0, 0, 0)


async def test_an_expired_message_is_a_dead_letter_and_others_come_instead(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world)
        soon = str(world.clock.unix_ms() + 1_000).encode()
        await world.send(queue, *[b"%d" % n for n in range(30)], headers=[("expires-at", soon)])
        await world.send(queue, b"fresh")
        world.advance(1_000)
        assert values(await take(queue)) == [b"fresh"]
        await world.until(lambda: dead.counts().ready == 30)
        await world.until(lambda: is_fed(dead))
        (letter,) = await take(dead, 1)
        said = headers_of(letter.record)
        assert (said["dlq.reason"], said["dlq.expires-at"]) == (b"expired", soon)


async def test_one_that_moves_in_circles_is_dropped(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(dead_letter_topic="work")
        await world.send(queue, b"round")
        for _ in range(HOPS_MAX):
            got = await take(queue, wait_ms=5_000)
            assert values(got) == [b"round"]
            await settle(queue, got, Outcome.REJECT)
            await world.until(lambda: is_fed(queue))
        got = await take(queue)
        assert headers_of(got[0].record)["dlq.hops"] == b"%d" % HOPS_MAX
        await settle(queue, got, Outcome.REJECT)
        assert queue.counts() == (0, 0, 0)
        assert world.queues.counters.dropped == 1


async def test_it_stays_until_there_is_where_it_can_go(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(dead_letter_topic="later")
        await world.send(queue, b"bad")
        results, error = await try_settle(queue, await take(queue), Outcome.REJECT)
        assert (results, error is not None) == ([Result.DONE], True)
        assert await take(queue) == []
        later = await world.queue("later")
        world.advance(5_001)
        await world.until(lambda: later.counts().ready == 1)
        assert queue.counts() == (0, 0, 0)


async def test_while_its_topic_is_not_there_nothing_dies_of_its_attempts(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world, attempts_max=1)
        await world.send(queue, b"poison")
        await world.queues.delete(dead)
        for attempt in (1, 2):
            got = await take(queue)
            assert [one.attempt for one in got] == [attempt]
            await settle(queue, got, Outcome.RELEASE)
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        got = await take(queue)
        assert [one.attempt for one in got] == [3]
        dead = await world.queue("dead")
        await settle(queue, got, Outcome.RELEASE)
        assert await take(queue) == []
        await world.until(lambda: dead.counts().ready == 1)
        assert queue.counts() == (0, 0, 0)


@pytest.mark.parametrize(
    "change", [{"dead_letter_topic": "", "attempts_max": 0}, {"attempts_max": 2}]
)
async def test_what_waits_to_be_moved_goes_again_when_its_policy_has_changed(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world, attempts_max=1)
        await world.send(queue, b"a", b"b")
        await full_for_moves(world, queue)
        assert queue.counts() == (0, 2, 0)
        await world.queues.alter(queue, settings=queue.settings.model_copy(update=change))
        world.advance(5_001)
        await world.until(lambda: queue.counts() == (2, 0, 0))
        got = await take(queue)
        assert [(one.record.value, one.attempt) for one in got] == [(b"a", 2), (b"b", 2)]
        assert (world.queues.counters.dropped, dead.counts().ready) == (0, 0)


async def test_what_was_rejected_goes_again_when_it_has_nowhere_to_go_any_more(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(dead_letter_topic="later")
        await world.send(queue, b"bad")
        _, error = await try_settle(queue, await take(queue), Outcome.REJECT)
        assert error is not None
        settings = queue.settings.model_copy(update={"dead_letter_topic": ""})
        await world.queues.alter(queue, settings=settings)
        world.advance(5_001)
        got = await take(queue, wait_ms=60_000)
        assert values(got) == [b"bad"]
        assert world.queues.counters.dropped == 0
        await settle(queue, got, Outcome.REJECT)  # now it dies where nothing is kept
        assert world.queues.counters.dropped == 1


async def full_for_moves(world: World, queue: Queue) -> None:
    """Use up the attempts of all messages of a queue while the disk takes no move."""

    def refuse(*_of_what: object) -> None:
        raise StorageUnavailable("full")

    got = await take(queue)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.queues.coalescer, "check", refuse)
        await settle(queue, got, Outcome.RELEASE)
        assert await take(queue) == []
        for _ in range(5):
            await world.turn()


async def test_a_batch_that_nobody_can_decode_is_a_dead_letter_by_reference(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world)
        await world.send(queue, b"fine")
        await append(world, garbled(queue))
        await world.send(queue, b"fine too")
        assert values(await take(queue)) == [b"fine", b"fine too"]
        await world.until(lambda: dead.counts().ready == 1)
        await world.until(lambda: is_fed(dead))
        (letter,) = await take(dead)
        assert (letter.record.key, letter.record.value) == (None, None)
        assert letter.record.timestamp_unix_ms == world.clock.unix_ms(), "not of 1970: it stays"
        said = headers_of(letter.record)
        assert (said["dlq.reason"], said["dlq.source.offset"]) == (b"corrupt", b"1")


async def test_a_time_that_nobody_can_write_costs_nobody_anything(tmp_path: Path) -> None:
    """Only a batch's latest time is looked at when it comes in; dead letters keep theirs."""
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world)
        data = encode_batch([(NOW, None, b"far", ()), (NOW + 5, None, b"too far", ())])
        data[27:35] = I64_MAX.to_bytes(8, "big")  # the base of both
        header = parse_batch_header(data)
        await append(world, Write(queue.lanes[0].partition, data, header))
        await world.send(queue, b"good")

        got = await take(queue)
        assert values(got) == [b"far", b"too far", b"good"]
        assert await settle(queue, got, Outcome.REJECT) == [Result.DONE] * 3

        await world.until(lambda: is_fed(dead))
        letters = await take(dead)
    assert values(letters) == [b"far", b"too far", b"good"]
    now = world.clock.unix_ms()
    assert [one.record.timestamp_unix_ms for one in letters] == [now, NOW + 5, now]


async def test_a_bug_that_one_move_meets_leaves_it_and_others_to_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world)
        await world.send(queue, b"1", b"2")
        first, second = await take(queue)

        def break_down(*_of_what: object) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(dead_letters, "append_and_end", break_down)
            _, error = await try_settle(queue, [first], Outcome.REJECT)
            assert isinstance(error, StorageUnavailable)
        await settle(queue, [second], Outcome.REJECT)
        world.advance(move_retries.RETRY_MS)
        await world.until(lambda: dead.counts().ready == 2)


@pytest.mark.parametrize("order", ["key", "fair"])
async def test_a_garbled_batch_does_not_stop_a_queue_with_keys(
    tmp_path: Path, order: str
) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_dead(world, order=order)
        await append(world, garbled(queue))
        await world.send(queue, b"a", key=b"k")
        assert values(await take(queue, wait_ms=5_000)) == [b"a"]
        await world.until(lambda: dead.counts().ready == 1)


async def test_what_was_moved_and_what_was_not_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue, _ = await with_dead(world)
        await world.send(queue, b"bad", b"good")
        got = await take(queue)
        await settle(queue, got[:1], Outcome.REJECT)
        await world.restart()
        queue, dead = world.find(), world.find("dead")
        await world.until(lambda: is_fed(queue) and is_fed(dead))
        assert (queue.counts(), dead.counts()) == ((0, 1, 0), (1, 0, 0))


async def test_a_key_goes_on_when_its_first_message_has_died(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue, _ = await with_dead(world, order="key", attempts_max=1)
        await world.send(queue, b"first", b"second", key=b"k")
        got = await take(queue, 1)
        assert await extend(queue, [(got[0].delivery_id, 0)]) == [Result.DONE]
        assert values(await take(queue, wait_ms=5_000)) == [b"second"]


async def append(world: World, write: Write) -> None:
    assert await outcome(lambda on_done: world.broker.append([write], on_done)) is None


def garbled(queue: Queue) -> Write:
    """A batch whose header is sound and whose records are not."""
    data = encode_runs([RecordRun(b"k", (b"value",), NO_HEADERS, 1_700_000_000_000)])
    data[-8:] = b"\xff" * 8
    return Write(queue.lanes[0].partition, data, parse_batch_header(data))


async def test_what_moved_is_no_longer_held(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.queue("dead")
        queue = await world.queue(dead_letter_topic="dead", lease_ms=60_000)
        await world.send(queue, b"a", b"b")
        items = [(one.delivery_id, Outcome.REJECT) for one in await take(queue)]
        (lane,) = queue.lanes
        queue.settle(items, lambda _results, _error: None)
        await world.queues.upkeep.hold_all()  # before the move is done
        await world.until(lambda: lane.lane.floor == 2)

        await world.queues.upkeep.hold_all()

        assert lane.held_offset == 2


async def test_what_the_dead_letter_topic_never_takes_moves_without_its_value(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        await world.topic("dead", max_message_bytes="1000")
        queue, dead = await with_dead(world)
        said = [("large", b"h" * 500), ("message-id", b"mine"), ("dlq.hops", b"4")]
        await world.send(queue, b"v" * 800, key=b"k", headers=said)
        await world.send(queue, b"behind")
        world.advance(60_000)
        got = await take(queue)

        assert await settle(queue, got, Outcome.REJECT) == [Result.DONE] * 2

        await world.until(lambda: is_fed(dead))
        letter, behind = await take(dead)
        assert (letter.record.key, letter.record.value) == (b"k", None)
        assert letter.record.timestamp_unix_ms == got[0].record.timestamp_unix_ms
        found = headers_of(letter.record)
        assert "large" not in found
        assert found["dlq.left-out"] == b"1486 bytes, at most 939 are taken"
        assert (found["dlq.reason"], found["dlq.source.offset"]) == (b"rejected", b"0")
        assert (found["message-id"], found["dlq.hops"]) == (b"mine", b"5")
        assert behind.record.value == b"behind"
        assert "dlq.left-out" not in headers_of(behind.record)
        assert (queue.counts(), queue.lanes[0].lane.floor) == ((0, 0, 0), 2)


async def test_a_key_that_is_too_large_to_move_is_left_out_too(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.topic("dead", max_message_bytes="1000")
        queue, dead = await with_dead(world)
        await world.send(queue, b"v", key=b"k" * 2_000, headers=[("message-id", b"m" * 2_000)])

        await settle(queue, await take(queue), Outcome.REJECT)

        await world.until(lambda: is_fed(dead))
        (letter,) = await take(dead)
        assert (letter.record.key, letter.record.value) == (None, None)
        own_id = message_id(queue.topic.uuid, 0, 0).encode()
        assert headers_of(letter.record)["message-id"] == own_id


@pytest.mark.parametrize("is_corrupt", [False, True])
async def test_where_keys_are_compacted_a_dead_letter_without_one_has_its_id(
    tmp_path: Path,
    is_corrupt: bool,  # noqa: FBT001
) -> None:
    async with running(tmp_path) as world:
        await world.topic("dead", cleanup_policy="compact")
        queue, dead = await with_dead(world)
        if is_corrupt:
            await append(world, garbled(queue))
            assert await take(queue) == []
        else:
            await world.send(queue, b"bad")
            await settle(queue, await take(queue), Outcome.REJECT)
        await world.until(lambda: dead.counts().ready == 1)

        await world.until(lambda: is_fed(dead))
        (letter,) = await take(dead)
        assert letter.record.key == message_id(queue.topic.uuid, 0, 0).encode()
        assert letter.record.value == (b"" if is_corrupt else b"bad"), "null would be removed"
