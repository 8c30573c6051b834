"""Shared subscriptions over the log: dealing, members that go, a node that ends."""

from pathlib import Path

import pytest

from tests.adapters.mqtt.restartable_node import (
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop, Received
from tests.support.waiting import turns

SMALL = ((Prop.RECEIVE_MAXIMUM, 7),)
SHARED = ("$share/g/t", 1)


def sorted_payloads(*found: list[Received]) -> list[bytes]:
    return sorted((x.payload for some in found for x in some), key=int)


async def test_each_message_goes_to_one_member(tmp_path: Path) -> None:  # MQTT-4.8.2-4
    async with restartable_node(tmp_path) as one:
        first, second = await one.client("a"), await one.client("b")
        await first.subscribe(SHARED)
        await second.subscribe(SHARED)
        publisher = await one.client("p")
        await publisher.publish("t", numbered(20))
        shares = await first.take(10), await second.take(10)
        assert sorted_payloads(*shares) == numbered(20)
        await first.silent()
        await second.silent()


async def test_who_has_room_gets_more(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        slow, fast = await one.client("a", found=SMALL), await one.client("b")
        await slow.subscribe(SHARED)
        await fast.subscribe(SHARED)
        publisher = await one.client("p")
        await publisher.publish("t", numbered(40))
        shares = await slow.messages(7), await fast.take(33)
        assert sorted_payloads(*shares) == numbered(40)


async def test_small_windows_get_all_once(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        members = [await one.client(name, found=SMALL) for name in "ab"]
        for member in members:
            await member.subscribe(SHARED)
        publisher = await one.client("p")
        await publisher.publish("t", numbered(100))
        found = []
        for _ in range(50):
            for member in members:
                found += await member.take(1)
            if len(found) == 100:
                break
        assert sorted_payloads(found) == numbered(100)


async def test_what_a_member_did_not_acknowledge_goes_to_others(
    tmp_path: Path,
) -> None:  # MQTT 5.0 section 4.8.2
    async with restartable_node(tmp_path) as one:
        first, second = await one.client("a"), await one.client("b")
        await first.subscribe(SHARED)
        await second.subscribe(SHARED)
        publisher = await one.client("p")
        await publisher.publish("t", numbered(20))
        mine = await first.messages(10)
        await first.acknowledge(mine[0])
        await first.silent()
        others = await second.take(10)
        await first.leave()
        again = await second.take(9)
        assert sorted_payloads(mine[:1], others, again) == numbered(20)
        await second.silent()


async def test_what_is_returned_waits_for_room(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        first = await one.client("a")
        await first.subscribe(SHARED)
        publisher = await one.client("p")
        await publisher.publish("t", numbered(20))
        await first.messages(20)
        second = await one.client("b", found=SMALL)
        await second.subscribe(SHARED)
        await first.leave()
        assert sorted_payloads(await second.take(20)) == numbered(20)
        await second.silent()


async def test_qos_2_goes_to_nobody_else(tmp_path: Path) -> None:  # MQTT-4.8.2-5
    async with restartable_node(tmp_path) as one:
        first, second = await one.client("a"), await one.client("b")
        await first.subscribe(("$share/g/t", 2))
        await second.subscribe(("$share/g/t", 2))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(2), qos=2)
        await first.messages(1)
        await second.take(1)
        await first.leave()
        await second.silent()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
async def test_without_members_the_group_waits(
    tmp_path: Path, *, restarts: bool, crash: bool
) -> None:
    async with restartable_node(tmp_path) as one:
        member = await one.client("a", kept=True)
        await member.subscribe(SHARED)
        publisher = await one.client("p")
        await publisher.publish("t", numbered(3))
        await member.take(3)
        await member.leave()
        await one.gone("a")
        await publisher.publish("t", numbered(5, start=3))
        if restarts:
            await one.restart(crash=crash)
        back = await one.client("a", kept=True)
        assert payloads(await back.take(5)) == numbered(5, start=3)
        await back.silent()


async def test_suback_promises_what_comes_after_it(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        member = await one.client("a", kept=True, found=SMALL)
        await member.subscribe(SHARED)
        one.adapter.node.context.dirty_groups.clear()
        publisher = await one.client("p")
        await publisher.publish("t", numbered(20))
        first = await member.messages(7)
        await one.restart(crash=True)
        back = await one.client("a", kept=True)
        again = await back.take(20)
        assert payloads(again) == numbered(20)
        assert [x.packet_id for x in again[:7]] == [x.packet_id for x in first]
        await back.silent()


async def test_a_group_that_is_over_does_not_come_back(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        member = await one.client("a", kept=True)
        await member.subscribe(SHARED)
        await member.unsubscribe(SHARED[0])
        publisher = await one.client("p")
        await publisher.publish("t", numbered(3))
        await one.restart()
        assert not one.adapter.node.context.groups
        back = await one.client("a", kept=True)
        await back.subscribe(SHARED)
        await back.silent()


async def test_groups_of_one_name_and_two_filters_are_two(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        first, second = await one.client("a"), await one.client("b")
        await first.subscribe(("$share/g/t", 1), ("$share/g/u", 1))
        publisher = await one.client("p")
        await publisher.publish("u", [b"1"])
        await publisher.publish("t", [b"2"])
        await first.messages(2)
        await second.subscribe(("$share/g/u", 1))
        await first.leave()
        assert payloads(await second.take(1)) == [b"1"]
        await second.silent()


async def test_hash_topic_keeps_a_topic_in_order(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt={"shared_strategy": "hash_topic"}) as one:
        members = {name: await one.client(name, found=SMALL) for name in "ab"}
        for member in members.values():
            await member.subscribe(("$share/g/#", 1))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(20))
        await turns(20)
        held = {
            name: one.session(name).outbox.count  # type: ignore[union-attr]
            for name in members
        }
        assert sorted(held.values()) == [0, 7]
        [owner] = [members[name] for name, count in held.items() if count]
        assert payloads(await owner.take(20)) == numbered(20)


async def test_a_member_with_qos_0_gets_its_share(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        first, second = await one.client("a"), await one.client("b")
        await first.subscribe(("$share/g/t", 0))
        await second.subscribe(("$share/g/t", 1))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(10))
        await publisher.publish("t", numbered(10, start=10), qos=0)
        shares = await first.take(10), await second.take(10)
        assert sorted_payloads(*shares) == numbered(20)


async def test_expired_messages_are_dealt_to_nobody(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        member = await one.client("a", kept=True)
        await member.subscribe(SHARED)
        await member.leave()
        await one.gone("a")
        publisher = await one.client("p")
        await publisher.publish("t", [b"1"], found=[(Prop.MESSAGE_EXPIRY, 1)])
        await publisher.publish("t", [b"2"])
        one.clock.advance(2_000)
        back = await one.client("a", kept=True)
        assert payloads(await back.take(1)) == [b"2"]
        back.send(wire.PINGREQ)
        await back.receive(Kind.PINGRESP)
