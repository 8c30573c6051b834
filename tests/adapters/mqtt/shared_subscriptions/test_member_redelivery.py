"""Messages that a member returned wait for a member that may have them, at no cost."""

from pathlib import Path
from zlib import crc32

import pytest

from tests.adapters.mqtt.disk_faults import SlowReads
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    numbered,
    payloads,
    restartable_node,
)
from tests.support.mqtt_wire import Prop
from tests.support.waiting import turns, until

TWO = ((Prop.RECEIVE_MAXIMUM, 2),)


async def holder(one: RestartableNode, topic: str) -> Client:
    """Return a member that holds three messages, which are the others' when it goes."""
    client = await one.client("x")
    await client.subscribe(("$share/g/t/+", 1))
    publisher = await one.client("p")
    await publisher.publish(topic, numbered(3))
    await client.messages(3)
    return client


async def test_what_is_a_full_members_waits_until_it_has_room(tmp_path: Path) -> None:
    topic = next(f"t/{at}" for at in range(99) if crc32(b"t/%d" % at) % 2 == 0)
    async with restartable_node(tmp_path, mqtt={"shared_strategy": "hash_topic"}) as one:
        first = await holder(one, topic)
        owner = await one.client("a", found=TWO)
        await owner.subscribe(("own", 1), ("$share/g/t/+", 1))
        publisher = await one.client("q")
        other = await one.client("b")
        await other.subscribe(("$share/g/t/+", 1))
        await publisher.publish("own", numbered(2))
        context = one.adapter.node.context
        [group] = context.groups.values()
        session = one.session("a")
        assert session is not None
        await until(lambda: session.outbox.room == 0)
        await first.leave()
        await until(lambda: bool(group.returning))
        assert group.is_ready, "the other has room"
        await until(lambda: not context.member_redelivery.dealing)
        await turns(5)
        assert not context.member_redelivery.dealing
        assert sum(one.lane.returned_count for one in group.returning) == 3
        assert payloads(await owner.take(5))[2:] == numbered(3)
        assert not group.returning


async def test_what_was_returned_stays_when_the_last_member_goes_during_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with restartable_node(tmp_path) as one:
        first = await holder(one, "t/0")
        member = await one.client("a", kept=True)
        await member.subscribe(("$share/g/t/+", 1))
        context = one.adapter.node.context
        [group] = context.groups.values()
        with monkeypatch.context() as patch:
            reads = SlowReads(one, patch)
            await first.leave()
            await reads.started.wait()
            await member.drop()
            await one.gone("a")
            assert not group.online
            reads.go.set()
            await until(lambda: not context.member_redelivery.dealing)
        assert sum(one.lane.returned_count for one in group.returning) == 3
        back = await one.client("a", kept=True)
        assert payloads(await back.take(3)) == numbered(3)
        await back.silent()


async def test_what_is_new_waits_for_what_was_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with restartable_node(tmp_path) as one:
        first = await holder(one, "t/0")
        member = await one.client("a")
        await member.subscribe(("$share/g/t/+", 1))
        with monkeypatch.context() as patch:
            reads = SlowReads(one, patch)
            await first.leave()
            await reads.started.wait()
            publisher = await one.client("q")
            await publisher.publish("t/0", [b"new"])
            await member.silent()
            reads.go.set()
            assert payloads(await member.take(4)) == [*numbered(3), b"new"]
        [group] = one.adapter.node.context.groups.values()
        [lane] = group.lanes.values()
        await until(lambda: not lane.lane.open_count)
