"""Retained messages that wait for room: whose they are, and when they are not sent any more."""

from pathlib import Path

from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop, Received

ONE = ((Prop.RECEIVE_MAXIMUM, 1),)


async def retained(one: RestartableNode, count: int) -> None:
    publisher = await one.client("p")
    for number in range(count):
        await publisher.publish(f"a/{number}", [b"%d" % number], retain=True)


async def answers(client: Client, *kinds: Kind) -> list[Received]:
    """Return the messages that come before, and between, some answers in that order."""
    came, wanted = [], list(kinds)
    while wanted:
        found = await client.next()
        assert found is not None
        if found.kind is Kind.PUBLISH:
            came.append(found)
        else:
            assert found.kind is wanted.pop(0)
    return came


async def ends(client: Client, came: list[Received]) -> None:
    """Check that nothing more is sent when all that was sent is acknowledged."""
    for found in came:
        await client.acknowledge(found)
    await client.silent()
    await client.silent()  # what is journaled leaves behind the answer of the same turn


async def test_unsubscribe_right_behind_subscribe_ends_them(tmp_path: Path) -> None:
    """MQTT-3.10.4-2: SUBACK waits for the disk, UNSUBSCRIBE is served before it goes."""
    async with restartable_node(tmp_path) as one:
        await retained(one, 3)
        client = await one.client("s", kept=True, found=ONE)
        client.send(wire.subscribe(1, [("a/#", 1)]), wire.unsubscribe(2, ["a/#"]))
        came = await answers(client, Kind.SUBACK, Kind.UNSUBACK)
        assert len(came) <= 1
        await ends(client, came)


async def test_unsubscribe_ends_those_of_each_subscribe_before(tmp_path: Path) -> None:
    """MQTT-3.10.4-2, and their number does not grow with SUBSCRIBEs of one filter."""
    async with restartable_node(tmp_path) as one:
        await retained(one, 3)
        client = await one.client("s", found=ONE)
        for _ in range(5):
            client.send(wire.subscribe(client.next_id(), [("a/#", 1)]))
        came = await answers(client, *[Kind.SUBACK] * 5)
        session = one.session("s")
        assert session is not None
        assert list(session.retained_scans) == ["a/#"]
        await client.unsubscribe("a/#")
        await ends(client, came)


async def test_subscribing_again_begins_again(tmp_path: Path) -> None:
    """MQTT-3.8.4-4."""
    async with restartable_node(tmp_path) as one:
        await retained(one, 3)
        client = await one.client("s", found=ONE)
        await client.subscribe(("a/#", 1), ("a/2", 1))
        first = await client.message()
        await client.subscribe(("a/#", 1))
        await client.acknowledge(first)
        found = payloads(await client.take(4))
        assert sorted(found) == [b"0", b"1", b"2", b"2"]
        await client.silent()


async def test_a_filter_twice_in_one_subscribe_has_them(tmp_path: Path) -> None:
    """MQTT-3.3.1-10: the second does not make the first an old one."""
    async with restartable_node(tmp_path) as one:
        await retained(one, 2)
        client = await one.client("s")
        only_if_new = 1 << 4
        await client.subscribe(("a/#", 1 | only_if_new), ("a/#", 1 | only_if_new))
        assert payloads(await client.take(2)) == [b"0", b"1"]
        await client.silent()
