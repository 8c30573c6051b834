"""Receivers that are too slow for QoS 0: what is odd about sizes, aliases and time."""

import asyncio
import itertools
from pathlib import Path
from typing import cast

import pytest

from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.reading.slow_receiver import SlowReceiver
from adapters.mqtt.reading.slow_receivers import SlowReceivers
from adapters.mqtt.wire import PublishRun
from tests.adapters.mqtt.reading.test_slow_receivers import FILLER, LIMITS, publish, stop
from tests.adapters.mqtt.restartable_node import (
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Prop
from tests.support.waiting import turns, until


async def test_what_is_too_large_for_a_client_keeps_nothing_back(tmp_path: Path) -> None:
    """Nothing leaves for it then, and so nothing would say that there is room."""
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
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
        assert session.slow_receivers
        connection.resume_writing()
        found = await client.messages(1_003)
        assert payloads(found[1_000:]) == bodies[1:]
        await until(lambda: not session.slow_receivers)


async def test_who_falls_behind_has_the_whole_time(tmp_path: Path) -> None:
    """Another one who has been behind for long takes nothing of it."""
    limits = {**LIMITS, "qos0_lag_ms_max": 10_000}
    async with restartable_node(tmp_path, mqtt=limits) as one:
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
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
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


async def test_those_who_catch_up_together_do_not_stop_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is given what is on its way into the log: for a thousand that is long work."""
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        publisher = await one.client("p")
        clients, connections = [], []
        for name in "abcde":
            client = await one.client(name)
            await client.subscribe(("t", 0))
            session = one.session(name)
            assert session is not None
            clients.append(client)
            connections.append(stop(session))
        one.live.storage.held = True
        await publish(publisher, "t", numbered(3))
        for connection in connections:
            connection.resume_writing()
        for client in clients:
            await client.messages(1)
        turn, joined, join = itertools.count(), list[int](), SlowReceivers.join
        loop = asyncio.get_running_loop()

        def note_turn() -> None:
            if next(turn) < 10_000 and len(joined) < len(clients):
                loop.call_soon(note_turn)

        def noting(self: SlowReceivers, slow_receiver: SlowReceiver) -> None:
            joined.append(next(turn))
            join(self, slow_receiver)

        monkeypatch.setattr(SlowReceivers, "join", noting)
        monkeypatch.setattr(one.adapter.node.feeds._pace, "_slice_s", 0.0)
        note_turn()
        one.live.storage.release()
        for client in clients:
            assert payloads(await client.messages(3)) == numbered(3)
        await until(lambda: len(joined) == len(clients))
        assert all(after - before > 1 for before, after in itertools.pairwise(joined))
        await publish(publisher, "t", [b"new"])
        for client in clients:
            assert payloads(await client.messages(1)) == [b"new"]


async def test_what_the_log_shows_in_parts_comes_whole(tmp_path: Path) -> None:
    """A feed that reads the log may see a part of what somebody fell behind at."""
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client, publisher = await one.client("s"), await one.client("p")
        await client.subscribe(("t", 0))
        session = one.session("s")
        assert session is not None
        connection = stop(session)
        one.live.storage.held = True
        await publish(publisher, "t", numbered(9))
        [slow_receiver] = session.slow_receivers.values()
        assert isinstance(slow_receiver, SlowReceiver)
        connection.resume_writing()
        assert payloads(await client.messages(1)) == [FILLER]
        slow_receivers, offset = slow_receiver.slow_receivers, slow_receiver.start
        assert isinstance(slow_receivers, SlowReceivers)
        part = PublishRun(b"t", numbered(4), client_id="p")
        part.base_offset = offset
        slow_receivers.see(part)
        slow_receivers._seen_all(offset + 4)
        slow_receivers.join(slow_receiver)  # those four have come from the log
        assert payloads(await client.messages(5)) == numbered(5, start=4)
        one.live.storage.release()
        await one.delivered()
        await client.silent()


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("alternates", [False, True])
async def test_a_subscription_may_be_replaced_by_one_of_another_qos_while_behind(
    tmp_path: Path, before: int, *, alternates: bool
) -> None:
    """MQTT-3.8.4-4: nothing is lost by it."""
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client, publisher = await one.client("s"), await one.client("p")
        await client.subscribe(("t/#", before), found=[(Prop.SUBSCRIPTION_ID, 5)])
        session = one.session("s")
        assert session is not None
        connection = stop(session)
        topics = ["t/0", "t/1" if alternates else "t/0"] * 5
        bodies = numbered(20)
        old, new = (list(zip(topics, some, strict=True)) for some in (bodies[:10], bodies[10:]))
        publisher.send(*[wire.publish(topic, body) for topic, body in old])
        await publisher.silent()
        await one.delivered()
        client.send(wire.subscribe(9, [("t/#", 1 - before)], found=[(Prop.SUBSCRIPTION_ID, 6)]))
        await until(lambda: session.subscriptions["t/#"].identifier == 6)
        publisher.send(*[wire.publish(topic, body) for topic, body in new])
        await publisher.silent()
        connection.resume_writing()
        assert payloads(await client.messages(1)) == [FILLER]
        await client.receive(wire.Kind.SUBACK)
        found = await client.messages(20)
        assert payloads(found) == bodies
        assert [came.value(Prop.SUBSCRIPTION_ID) for came in found] == [5] * 10 + [6] * 10
        await until(lambda: not session.slow_receivers)
        assert one.adapter.node.counters.dropped == 0
        await client.silent()
