"""No Local of one subscription says nothing of what another one matches (MQTT 5.0 3.8.3.1)."""

from pathlib import Path

import pytest

from tests.adapters.mqtt.reading.test_slow_receivers import LIMITS, stop
from tests.adapters.mqtt.restartable_node import (
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Prop
from tests.support.waiting import until

NO_LOCAL = 0x04


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("kept", [False, True])
async def test_a_clients_own_message_comes_by_the_subscription_that_has_no_such_option(
    tmp_path: Path, qos: int, *, kept: bool
) -> None:
    async with restartable_node(tmp_path) as one:
        client, other = await one.client("c", kept=kept), await one.client("p")
        await client.subscribe(("t", 1 | NO_LOCAL), found=[(Prop.SUBSCRIPTION_ID, 1)])
        await client.subscribe(("+", 0), found=[(Prop.SUBSCRIPTION_ID, 2)])
        client.send(wire.publish("t", b"own", qos=qos, packet_id=9))
        own = await client.next()
        while own is not None and own.kind is not wire.Kind.PUBLISH:
            own = await client.next()  # how it is acknowledged
        assert own is not None
        assert (own.payload, own.qos, own.value(Prop.SUBSCRIPTION_ID)) == (b"own", 0, 2)
        await client.drop()
        await one.gone("c")
        client = await one.client("c", kept=kept)
        if not kept:
            await client.subscribe(("t", 1 | NO_LOCAL), ("+", 0))
        await other.publish("t", [b"another's"])
        found = await client.message()
        assert (found.payload, found.qos) == (b"another's", 1)
        await client.silent()


@pytest.mark.parametrize("alternates", [False, True])
async def test_it_comes_later_to_who_is_slow(tmp_path: Path, *, alternates: bool) -> None:
    """The message is of QoS 0 for this receiver, and waits for it in the log."""
    topics = ["t/0", "t/1" if alternates else "t/0"] * 10
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client = await one.client("s")
        await client.subscribe(("t/#", 1 | NO_LOCAL), ("t/+", 0))
        session = one.session("s")
        assert session is not None
        connection = stop(session)
        bodies = numbered(20)
        client.send(
            *[
                wire.publish(topic, body, qos=1, packet_id=at)
                for at, (topic, body) in enumerate(zip(topics, bodies, strict=True), 1)
            ]
        )
        await until(lambda: bool(session.slow_receivers))
        await one.delivered()
        connection.resume_writing()
        found: list[wire.Received] = []
        while len(found) < 21:
            came = await client.next()
            assert came is not None
            if came.kind is wire.Kind.PUBLISH:
                found.append(came)
        assert payloads(found[1:]) == bodies
        assert {came.qos for came in found[1:]} == {0}
        await until(lambda: not session.slow_receivers)
        assert one.adapter.node.counters.dropped == 0
        await client.silent()
