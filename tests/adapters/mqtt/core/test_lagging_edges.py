"""Receivers that are too slow for QoS 0: what is odd about sizes, aliases and time."""

from pathlib import Path
from typing import cast

from adapters.mqtt.connection import MqttConnection
from adapters.mqtt.wire import PublishRun
from tests.adapters.mqtt.core.rig import numbered, payloads, rig, turns, until
from tests.adapters.mqtt.core.test_lagging import FILLER, LIMITS, publish, stop
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Prop


async def test_what_is_too_large_for_a_client_keeps_nothing_back(tmp_path: Path) -> None:
    """Nothing leaves for it then, and so nothing would say that there is room."""
    async with rig(tmp_path, mqtt=LIMITS) as one:
        client = await one.client("s", found=[(Prop.MAXIMUM_PACKET_SIZE, 100)])
        await client.subscribe(("t", 0))
        session = one.session("s")
        assert session is not None
        publisher = await one.client("p")
        connection = cast("MqttConnection", session.connection)
        connection.pause_writing()
        connection.send(*[wire.publish("filler", bytes(80))] * 1_000)
        bodies = [bytes(100_000), *numbered(3)]
        await publish(publisher, "t", bodies)
        await one.delivered()
        assert session.laggards
        connection.resume_writing()
        found = await client.messages(1_003)
        assert payloads(found[1_000:]) == bodies[1:]
        await until(lambda: not session.laggards)


async def test_who_falls_behind_has_the_whole_time(tmp_path: Path) -> None:
    """Another one who has been behind for long takes nothing of it."""
    limits = {**LIMITS, "qos0_lag_ms_max": 10_000}
    async with rig(tmp_path, mqtt=limits) as one:
        publisher = await one.client("p")
        clients, connections = [], []
        for name in ("first", "second"):
            client = await one.client(name)
            await client.subscribe((name, 0))
            session = one.session(name)
            assert session is not None
            clients.append(client)
            connections.append(stop(session))
        await publish(publisher, "first", [b"1"])
        await one.delivered()
        one.clock.advance(9_999)
        await publish(publisher, "second", [b"2"])
        await one.delivered()
        one.clock.advance(5_000)
        for connection in connections:
            connection.resume_writing()
        assert payloads(await clients[0].messages(1)) == [FILLER]
        assert payloads(await clients[1].messages(2)) == [FILLER, b"2"]
        await clients[0].silent()
        assert one.adapter.node.counters.dropped == 1


async def test_what_is_written_down_first_makes_nothing_be_dropped(tmp_path: Path) -> None:
    """Messages of QoS 1 of this turn leave before one of QoS 0 that may use their aliases."""
    async with rig(tmp_path, mqtt=LIMITS) as one:
        client = await one.client("s", kept=True, found=[(Prop.TOPIC_ALIAS_MAXIMUM, 5)])
        await client.subscribe(("t", 0), ("u", 1))
        session = one.session("s")
        assert session is not None
        publisher = await one.client("p")
        connection = cast("MqttConnection", session.connection)
        connection.pause_writing()
        one.produce([(b"u", bytes(100_000))], headers=[("mqtt.qos", b"1")])
        await until(lambda: session.outbox.count == 1)
        one.adapter.node.publishing.publish(
            PublishRun(b"t", [b"after"], client_id="x"), session, lambda _error: None
        )
        await turns(3)
        connection.resume_writing()
        found = await client.messages(2)
        assert payloads(found) == [bytes(100_000), b"after"]
        assert one.adapter.node.counters.dropped == 0
        await publisher.silent()
