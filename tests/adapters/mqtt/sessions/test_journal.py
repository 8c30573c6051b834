"""Records of the journal: settled in part, refused by the disk, put off by many sessions."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.mqtt.sessions import registry as sessions_module
from adapters.mqtt.sessions.journal import decode_runs
from adapters.mqtt.sessions.state_records import decode_state
from adapters.mqtt.sessions.store import RUN_KEY, run_key, state_key
from gateway.slots import partition_for_key
from tests.adapters.mqtt.disk_faults import RARELY, full_disk
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop, Received
from tests.support.waiting import turns, until

ONE = ((Prop.RECEIVE_MAXIMUM, 1),)
PARTITIONS = 8


def topics_of_two_partitions() -> tuple[str, str]:
    first, second = "x/0", "x/1"
    while partition_for_key(second.encode(), PARTITIONS) == partition_for_key(
        first.encode(), PARTITIONS
    ):
        second = f"x/{int(second[2:]) + 1}"
    return first, second


async def test_a_group_does_not_deal_again_what_a_record_says_in_part(tmp_path: Path) -> None:
    """The record stays for its second run; its first is settled by the session's state."""
    routes = [{"filter": "x/#", "topic": "xs", "partitions": PARTITIONS}]
    async with restartable_node(tmp_path, mqtt={"routes": routes, **RARELY}) as one:
        member = await one.client("a", kept=True)
        await member.subscribe(("$share/g/x/+", 2))
        publisher = await one.client("p")
        first, second = topics_of_two_partitions()
        publisher.send(
            wire.publish(first, b"1", qos=2, packet_id=1),
            wire.publish(second, b"2", qos=1, packet_id=2),
        )
        found = await member.messages(2)
        assert [x.qos for x in found] == [2, 1]
        member.send(wire.ack(Kind.PUBREC, 1))
        await member.receive(Kind.PUBREL)
        member.send(wire.ack(Kind.PUBCOMP, 1))
        await member.subscribe(("another", 0))  # writes the state down, and no group
        values = one.adapter.node.context.store.stream.values
        [(key, value)] = [item for item in values.items() if item[0][:1] == RUN_KEY]
        assert len(decode_runs(0, value)) == 2, "one record"
        assert decode_state(values[state_key("a")]).base == 1
        assert key == run_key("a", 0)
        await one.restart(crash=True)
        back = await one.client("a", kept=True)
        again = await back.take(1)
        assert (again[0].packet_id, again[0].payload) == (2, b"2")
        [group] = one.adapter.node.context.groups.values()
        await until(lambda: bool(group.online) and not group.behind)
        session = one.session("a")
        assert session is not None
        assert session.outbox.next_seq == 2, "nothing new was dealt"
        await back.silent()


async def refused(one: RestartableNode, qos: int) -> tuple[Client, list[Received]]:
    """Refuse the record of a second message; return the closed client and what it was sent."""
    subscriber = await one.client("s", kept=True, found=ONE)
    await subscriber.subscribe(("t", 2))
    publisher = await one.client("p")
    await publisher.publish("t", numbered(2), qos=qos)
    first = await subscriber.message()
    if qos == 2:
        subscriber.send(wire.ack(Kind.PUBREC, first.packet_id))
        await subscriber.receive(Kind.PUBREL)
    await one.delivered()
    with full_disk(one):
        end = Kind.PUBACK if qos == 1 else Kind.PUBCOMP
        subscriber.send(wire.ack(end, first.packet_id))
        got = []
        while (found := await subscriber.next()) is not None:
            got.append(found)
        await one.gone("s")
        one.adapter.node.sessions.checkpoint()
        await turns(5)
    return subscriber, got


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("how", ["reconnect", "crash", "checkpoint, crash"])
async def test_a_message_whose_record_was_refused_comes_when_there_is_room(
    tmp_path: Path, qos: int, how: str
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        _, got = await refused(one, qos)
        assert got[-1].kind is Kind.DISCONNECT, "it is told to come back"
        assert len(got) == (2 if qos == 1 else 1), "at QoS 2 nothing leaves that is not kept"
        if "checkpoint" in how:
            one.adapter.node.sessions.checkpoint()
            await turns(5)
        if "crash" in how:
            await one.restart(crash=True)
        back = await one.client("s", kept=True, found=ONE)
        assert back.session_present
        found = await back.take(1)
        while how == "crash" and found[-1].payload == b"0":
            assert qos == 1, "settled, but that is not written down"
            found = await back.take(1)
        assert payloads(found) == [b"1"]
        if how != "crash":
            assert (found[0].packet_id, found[0].dup) == (2, True)
        await back.silent()


async def test_records_that_were_refused_go_with_the_next_checkpoint(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        await refused(one, 2)
        session = one.session("s")
        assert session is not None
        assert list(session.journal.unkept) == [1]
        one.adapter.node.sessions.checkpoint()
        await until(lambda: not session.journal.unkept)
        assert not one.adapter.node.context.dirty


async def away(one: RestartableNode, count: int) -> None:
    """Make sessions whose clients have gone."""
    for at in range(count):
        client = await one.client(f"s{at}", kept=True)
        await client.subscribe(("t", 1))
        await client.leave()
        await one.gone(f"s{at}")
    one.adapter.node.sessions.checkpoint()


async def test_many_sessions_end_over_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_module, "SWEPT_PER_TURN_MAX", 2)
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        await away(one, 5)
        sessions = one.adapter.node.sessions
        one.clock.advance(3_600_000)
        sessions.sweep(one.clock.monotonic_ms())
        assert sessions.count == 3
        await turns(5)  # not the seconds until the next sweep
        assert sessions.count == 0
        assert sessions.expired == 5
        await one.restart()
        assert one.adapter.node.sessions.count == 0


@contextlib.asynccontextmanager
async def five_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RestartableNode]:
    """Run a node with five sessions, all written, that checkpoints two in a turn."""
    monkeypatch.setattr(sessions_module, "CHECKPOINTS_PER_TURN_MAX", 2)
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        await away(one, 5)
        await until(lambda: not one.adapter.node.context.dirty)
        yield one


async def test_a_checkpoint_of_many_sessions_takes_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with five_away(tmp_path, monkeypatch) as one:
        context, sessions = one.adapter.node.context, one.adapter.node.sessions
        context.dirty.update(sessions)
        sessions.checkpoint()
        assert len(context.dirty) == 3
        await turns(5)
        assert not context.dirty


async def test_a_full_disk_does_not_keep_a_checkpoint_going(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that are refused wait for the next checkpoint: until then the disk may be full."""
    async with five_away(tmp_path, monkeypatch) as one:
        context, sessions = one.adapter.node.context, one.adapter.node.sessions
        with full_disk(one):
            context.dirty.update(sessions)
            sessions.checkpoint()
            await turns(20)
            before = one.live.storage.enqueued
            await turns(20)
            assert one.live.storage.enqueued == before
            assert len(context.dirty) == 5
        sessions.checkpoint()
        await until(lambda: not context.dirty)


async def test_a_node_that_stops_writes_all_sessions_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with five_away(tmp_path, monkeypatch) as one:
        context, sessions = one.adapter.node.context, one.adapter.node.sessions
        context.dirty.update(sessions)
        sessions.stop()
        assert not context.dirty
