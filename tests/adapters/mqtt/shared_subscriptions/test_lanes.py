"""Delivery state of shared subscriptions, through restarts and full disks."""

from pathlib import Path
from zlib import crc32

import pytest

from adapters.mqtt.shared_subscriptions.groups import ShareGroup
from adapters.mqtt.shared_subscriptions.lanes import ShareLane
from gateway.queues import snapshot_pieces
from tests.adapters.mqtt.disk_faults import RARELY, full_disk, no_room_for
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop
from tests.support.waiting import until

SHARED = ("$share/g/t", 2)
STRATEGIES = ("round_robin", "sticky", "hash_topic")


async def member(
    one: RestartableNode, name: str, *, kept: bool = True, window: int = 100
) -> Client:
    client = await one.client(name, kept=kept, found=((Prop.RECEIVE_MAXIMUM, window),))
    if not client.session_present:
        await client.subscribe(SHARED)
    return client


async def only_member(one: RestartableNode, *, window: int = 100) -> Client:
    """Return "gone", whose session ends with it; "kept", of such a window, is away."""
    kept = await member(one, "kept", window=window)
    await kept.drop()
    await one.gone("kept")
    return await member(one, "gone", kept=False)


async def publish(one: RestartableNode, messages: list[bytes], *, qos: int = 1) -> None:
    publisher = await one.client("p")
    await publisher.publish("t", messages, qos=qos)
    await one.delivered()


def group_of(one: RestartableNode) -> ShareGroup:
    [group] = one.adapter.node.context.groups.values()
    return group


def lane_of(one: RestartableNode) -> ShareLane:
    [lane] = group_of(one).lanes.values()
    return lane


def attempts_of(one: RestartableNode, name: str) -> list[tuple[int, int]]:
    """Return (first offset, attempt) of what is on its way to a member."""
    session = one.session(name)
    assert session is not None
    return [(run.first_offset, run.attempt) for run in session.outbox.inflight]


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_what_nobody_holds_after_a_restart_goes_to_others(
    tmp_path: Path, strategy: str, *, crash: bool
) -> None:
    mqtt = {"shared_strategy": strategy, **RARELY}
    async with restartable_node(tmp_path, mqtt=mqtt) as one:
        gone = await only_member(one)
        await publish(one, numbered(6))
        had = await gone.messages(6)
        for found in had[:2]:
            await gone.acknowledge(found)
        await gone.silent()
        await one.restart(crash=crash)
        back = await member(one, "kept")
        assert payloads(await back.messages(4)) == numbered(4, start=2)
        assert attempts_of(one, "kept") == [(2, 2)]
        await publish(one, [b"new"])
        [new] = await back.messages(1)
        assert (new.payload, new.dup) == (b"new", False)
        assert attempts_of(one, "kept") == [(2, 2), (6, 1)]


@pytest.mark.parametrize("crash", [False, True])
async def test_what_a_kept_session_holds_after_a_restart_stays_its_own(
    tmp_path: Path, *, crash: bool
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        first = await member(one, "a")
        await publish(one, numbered(4))
        before = await first.messages(4)
        await first.acknowledge(before[1])
        await first.silent()
        await one.restart(crash=crash)
        second = await member(one, "b")
        await second.silent()
        assert lane_of(one).lane.counts(4).in_flight == 3
        back = await member(one, "a")
        again = await back.messages(4 if crash else 3)
        mine = [x for x in again if x.payload != b"1"]
        assert [(x.packet_id, x.payload) for x in mine] == [
            (x.packet_id, x.payload) for x in before if x.payload != b"1"
        ]
        await back.acknowledge(mine[0])
        await back.silent()
        await one.client("a")  # its session is over
        assert payloads(await second.messages(2)) == [b"2", b"3"]
        await second.silent()


async def test_attempts_count_the_members_that_had_a_message(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        first = await member(one, "a", kept=False)
        await publish(one, numbered(2))
        await first.messages(2)
        second = await member(one, "b", kept=False, window=1)
        await first.leave()
        await second.messages(1)
        assert attempts_of(one, "b") == [(0, 2)]
        third = await member(one, "c", kept=False)
        await third.messages(1)
        assert attempts_of(one, "c") == [(1, 2)]
        await second.leave()
        await third.messages(1)
        assert attempts_of(one, "c") == [(1, 2), (0, 3)]


@pytest.mark.parametrize("crash", [False, True])
async def test_qos_2_of_a_session_that_ended_goes_to_nobody(
    tmp_path: Path, *, crash: bool
) -> None:  # MQTT-4.8.2-5
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        gone = await only_member(one)
        await publish(one, numbered(3), qos=2)
        await gone.messages(3)
        await one.restart(crash=crash)
        back = await member(one, "kept")
        await back.silent()
        assert not lane_of(one).lane.open_count


async def test_what_was_given_back_goes_before_what_is_new(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        gone = await only_member(one, window=2)
        await publish(one, numbered(3))
        await gone.messages(3)
        await gone.leave()
        await publish(one, numbered(3, start=3))
        back = await member(one, "kept", window=2)
        assert payloads(await back.take(6)) == numbered(6)
        await until(lambda: not lane_of(one).lane.open_count)
        assert not group_of(one).behind


async def test_what_expired_or_was_cut_off_while_it_was_given_back_is_done(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path) as one:
        gone = await only_member(one)
        await publish(one, [b"cut off"])
        publisher = await one.client("q")
        await publisher.publish("t", [b"expires"], found=[(Prop.MESSAGE_EXPIRY, 1)])
        await publish(one, [b"stays"])
        await gone.messages(3)
        await gone.leave()
        await one.gone("gone")
        one.clock.advance(2_000)
        one.kernel.broker.truncate_before(one.partition(), 1, lambda _error: None)
        back = await member(one, "kept")
        assert payloads(await back.take(1)) == [b"stays"]
        await until(lambda: not lane_of(one).lane.open_count)
        await publish(one, [b"new"])
        assert payloads(await back.take(1)) == [b"new"]


async def test_what_is_too_large_for_a_member_is_done(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one.client("a", found=[(Prop.MAXIMUM_PACKET_SIZE, 100)])
        await client.subscribe(SHARED)
        await publish(one, [b"1", b"2" * 200, b"3", b"4" * 200])
        found = await client.messages(2)
        assert payloads(found) == [b"1", b"3"]
        assert lane_of(one).lane.open_count == 2
        for message in found:
            await client.acknowledge(message)
        await client.silent()
        assert not lane_of(one).lane.open_count


async def test_what_the_disk_refuses_is_in_the_next_snapshot(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        gone = await only_member(one)
        await publish(one, numbered(4))
        had = await gone.messages(4)
        other, publisher = await one.client("other", kept=True), await one.client("q")
        await other.subscribe(("other", 1))
        with full_disk(one):
            await gone.acknowledge(had[0])
            await gone.silent()
            await until(lambda: lane_of(one).is_ahead)
        await publisher.publish("other", [b"1"])
        assert payloads(await other.take(1)) == [b"1"], "others' records need no checkpoint"
        await until(lambda: not lane_of(one).is_ahead)
        await one.restart(crash=True)
        back = await member(one, "kept")
        assert payloads(await back.messages(3)) == numbered(3, start=1)
        await back.silent()


async def test_a_snapshot_of_which_a_piece_is_refused_goes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end alone would be kept, and would not count."""
    monkeypatch.setattr(snapshot_pieces, "PIECE_BYTES_MAX", 10)
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        gone = await only_member(one)
        await publish(one, numbered(4))
        had = await gone.messages(4)
        first, second = await one.client("first", kept=True), await one.client("2", kept=True)
        await first.subscribe(("first", 1))
        await second.subscribe(("second", 1))
        publisher = await one.client("q")
        with full_disk(one):
            await gone.acknowledge(had[0])
            await gone.silent()
            await until(lambda: lane_of(one).is_ahead)
        with no_room_for(one, b"snapshot-piece") as refused:
            await publisher.publish("first", [b"1"])
            await until(lambda: bool(refused))
        await publisher.publish("second", [b"2"])
        assert payloads(await second.take(1)) == [b"2"]
        await until(lambda: not lane_of(one).is_ahead)
        await one.restart(crash=True)
        back = await member(one, "kept")
        assert payloads(await back.messages(3)) == numbered(3, start=1)
        await back.silent()
        again = await one.client("first", kept=True)
        assert payloads(await again.take(1)) == [b"1"], "what left with it was refused too"


async def test_a_group_that_becomes_kept_has_what_its_members_hold_written_down(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        gone = await member(one, "gone", kept=False)
        await publish(one, numbered(2))
        await gone.messages(2)
        assert lane_of(one).is_ahead
        kept = await member(one, "kept")
        await kept.drop()
        await one.gone("kept")
        await one.restart(crash=True)
        back = await member(one, "kept")
        assert payloads(await back.messages(2)) == numbered(2)


async def test_the_lanes_of_a_group_that_is_over_do_not_come_back(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        first = await member(one, "a")
        await publish(one, numbered(2))
        await first.messages(2)
        await first.unsubscribe(SHARED[0])
        await first.subscribe(SHARED)
        await one.restart(crash=True)
        assert all(not lane.lane.open_count for lane in group_of(one).lanes.values())
        back = await member(one, "a")
        assert payloads(await back.take(2)) == numbered(2), "what had left still comes"
        await publish(one, [b"new"])
        assert payloads(await back.take(1)) == [b"new"]


async def test_lanes_of_topics_that_are_gone_are_dropped(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        gone = await only_member(one)
        await publish(one, numbered(2))
        await gone.messages(2)
        topics, old = one.kernel.topics, one.partition().topic
        await topics.delete(old.name)
        await until(lambda: topics.find(old.name) not in {None, old})
        await gone.leave()
        await one.gone("gone")
        back = await member(one, "kept")
        await until(lambda: not group_of(one).returning)
        await publish(one, [b"new"])
        assert payloads(await back.take(1)) == [b"new"]
        await back.leave()
        await one.restart()
        assert len(group_of(one).lanes) == 1


async def test_what_was_completed_is_done_though_its_session_asks_again(
    tmp_path: Path,
) -> None:
    """PUBCOMP is written down by the lane at once, by the session with its next checkpoint."""
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        first = await member(one, "a")
        await publish(one, numbered(3), qos=2)
        await first.take(3)
        await first.silent()
        await one.restart(crash=True)
        assert not lane_of(one).lane.open_count
        back = await member(one, "a")
        for _ in range(3):
            found = await back.receive(Kind.PUBREL)
            back.send(wire.ack(Kind.PUBCOMP, found.packet_id))
        await back.silent()
        session = one.session("a")
        assert session is not None
        assert not session.outbox.count


async def test_what_the_log_has_lost_is_not_taken_for_dealt(tmp_path: Path) -> None:
    """Without a flush, a power failure may take more of the log than of the journal."""
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        first = await member(one, "a")
        await publish(one, numbered(3))
        await first.messages(3)
        session = one.session("a")
        assert session is not None
        assert lane_of(one).take_new(50, 5, session.holder), "messages that were lost"
        one.adapter.node.context.write_journals()
        await one.restart(crash=True)
        assert lane_of(one).lane.next_offset == 0
        back = await member(one, "a")
        assert payloads(await back.take(3)) == numbered(3)
        await publish(one, numbered(60, start=3))
        assert payloads(await back.take(60)) == numbered(60, start=3)
        await back.silent()


async def test_a_lane_that_waits_for_a_full_member_does_not_hold_up_others(
    tmp_path: Path,
) -> None:
    routes = [{"filter": "x/#", "topic": "xs"}]
    mqtt = {"shared_strategy": "hash_topic", "routes": routes}
    async with restartable_node(tmp_path, mqtt=mqtt) as one:
        gone = await one.client("gone")
        await gone.subscribe(("$share/g/#", 1))
        publisher = await one.client("p")
        topics = [f"{start}{at}" for start in ("t/", "x/") for at in range(8)]
        for topic in topics:
            await publisher.publish(topic, [topic.encode()])
        await gone.messages(16)
        members = [
            await one.client(name, found=((Prop.RECEIVE_MAXIMUM, window),))
            for name, window in (("a", 1), ("b", 100))
        ]
        for client in members:
            await client.subscribe(("$share/g/#", 1))
        await gone.leave()
        slow, fast = members
        mine = [topic for topic in topics if crc32(topic.encode()) % 2]
        assert {topic[0] for topic in mine} == {"t", "x"}
        came = await fast.take(len(mine))
        assert sorted(payloads(came)) == [topic.encode() for topic in mine]
        came = await slow.take(16 - len(mine))
        assert not {found.payload.decode() for found in came} & set(mine)
        await until(lambda: not group_of(one).returning)
