"""Subscriptions that could not be recorded, on a full disk."""

from pathlib import Path

import pytest

from tests.adapters.mqtt.disk_faults import RARELY, full_disk
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop

WILL = wire.WillMessage("will", b"gone", qos=1)


async def refused(one: RestartableNode, client: Client, *filters: tuple[str, int]) -> None:
    """Subscribe while nothing can be written down."""
    with full_disk(one):
        client.send(wire.subscribe(client.next_id(), filters))
        codes = (await client.receive(Kind.SUBACK)).codes
    assert [code >= 0x80 for code in codes] == [True] * len(filters)


async def test_a_subscription_that_is_not_kept_is_none(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber = await one.client("s", kept=True)
        publisher = await one.client("p")
        await publisher.publish("t", [b"retained"], retain=True)
        await refused(one, subscriber, ("t", 1), ("u/+", 2), ("$share/g/t", 1))
        context, session = one.adapter.node.context, one.session("s")
        assert session is not None
        assert (session.subscriptions, session.groups) == ({}, {})
        assert (context.groups, context.subscription_count) == ({}, 0)
        assert len(context.distributor.trie) == 0
        await publisher.publish("t", [b"1"])
        await publisher.publish("u/1", [b"2"])
        await subscriber.silent()
        await subscriber.subscribe(("t", 1))
        assert payloads(await subscriber.take(1)) == [b"retained"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_subscription_that_is_not_kept_leaves_the_one_it_replaced(
    tmp_path: Path, *, restarts: bool
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber = await one.client("s", kept=True)
        number = [(Prop.SUBSCRIPTION_ID, 7)]
        await subscriber.subscribe(("t", 2), found=number)
        await subscriber.subscribe(("$share/g/u", 2), found=number)
        context, session = one.adapter.node.context, one.session("s")
        assert session is not None
        before = dict(session.subscriptions)
        await refused(one, subscriber, ("t", 0), ("$share/g/u", 0))
        assert session.subscriptions == before
        assert context.subscription_count == 2
        if restarts:
            await one.restart(crash=True)
            subscriber = await one.client("s", kept=True)
        publisher = await one.client("p")
        await publisher.publish("t", numbered(2), qos=2)
        await publisher.publish("u", numbered(2, start=2), qos=2)
        found = await subscriber.take(4)
        assert payloads(found) == numbered(4)
        assert {(x.qos, x.value(Prop.SUBSCRIPTION_ID)) for x in found} == {(2, 7)}
        await subscriber.silent()


async def test_the_same_filter_twice_in_a_refused_subscribe_leaves_the_first_state(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        await refused(one, subscriber, ("t", 2), ("t", 0))
        session = one.session("s")
        assert session is not None
        assert {name: found.qos for name, found in session.subscriptions.items()} == {"t": 1}


async def test_a_refused_subscribe_does_not_move_the_group_on(tmp_path: Path) -> None:
    """A group that is behind stays where it is: it was promised what comes next."""
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        small = [(Prop.RECEIVE_MAXIMUM, 2)]
        subscriber = await one.client("s", kept=True, found=small)
        await subscriber.subscribe(("$share/g/t", 1))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(10))
        await one.delivered()
        first = await subscriber.messages(2)
        await refused(one, subscriber, ("$share/g/t", 2))
        for found in first:
            await subscriber.acknowledge(found)
        assert payloads(await subscriber.take(8)) == numbered(8, start=2)
        await subscriber.silent()
