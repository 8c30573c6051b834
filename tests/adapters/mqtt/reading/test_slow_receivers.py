"""Receivers that are too slow for QoS 0, case by case.

``test_slow_receivers_model`` has any order of them.
"""

from pathlib import Path
from typing import Any, cast

import pytest

from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.reading.slow_receiver import SlowReceiver
from adapters.mqtt.sessions.client_session import ClientSession
from adapters.mqtt.wire import PublishRun
from tests.adapters.mqtt.disk_faults import full_disk
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

FILLER = bytes(200_000)
LIMITS: dict[str, Any] = {
    "receiver_bytes_max": 64 * 1024,
    "receiver_bytes_hard_max": 64 << 20,
}


async def slow(one: RestartableNode, **options: Any) -> tuple[Client, ClientSession]:
    """Return a client for which nothing leaves any more, and its session."""
    client = await one.client("s", **options)
    await client.subscribe(("t", 0), ("u", 1))
    session = one.session("s")
    assert session is not None
    return client, session


def stop(session: ClientSession) -> MqttConnection:
    """Let nothing leave, and more wait than may."""
    connection = cast("MqttConnection", session.connection)
    connection.pause_writing()
    connection.send(wire.publish("filler", FILLER))
    return connection


async def publish(publisher: Client, topic: str, bodies: list[bytes], **options: Any) -> None:
    await publisher.publish(topic, bodies, qos=0, **options)
    await publisher.silent()


async def test_a_client_that_goes_while_it_is_behind_loses_only_qos_0(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client, session = await slow(one, kept=True)
        publisher = await one.client("p")
        stop(session)
        await publish(publisher, "t", numbered(5))
        await publisher.publish("u", numbered(5))
        assert session.slow_receivers
        assert session.behind
        await client.drop()
        await one.gone("s")
        assert not session.slow_receivers
        assert not one.adapter.node.feeds.slow_receiver_count
        back = await one.client("s", kept=True)
        assert payloads(await back.take(5)) == numbered(5)
        await publish(publisher, "t", [b"new"])
        assert payloads(await back.messages(1)) == [b"new"]
        assert one.adapter.node.counters.dropped == 0


async def test_both_ways_of_being_behind_go_on_by_themselves(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client, session = await slow(one)
        publisher = await one.client("p")
        connection = stop(session)
        for at in range(20):
            await publish(publisher, "t", numbered(3, start=3 * at, size=5_000))
            await publisher.publish("u", numbered(2, start=2 * at, size=5_000))
        connection.resume_writing()
        found = (await client.take(101))[1:]
        by_topic: dict[str, list[int]] = {"t": [], "u": []}
        for message in found:
            by_topic[message.topic].append(int(message.payload.rstrip(b".")))
        assert by_topic == {"t": list(range(60)), "u": list(range(40))}
        await until(lambda: not (session.slow_receivers or session.behind))


async def test_what_the_log_does_not_have_is_dropped_at_once(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client = await one.client("s")
        await client.subscribe(("$SYS/#", 0))
        session = one.session("s")
        assert session is not None
        connection = stop(session)
        one.adapter.node.distributor.deliver(PublishRun(b"$SYS/x", [b"1", b"2"]))
        assert one.adapter.node.counters.dropped == 2
        assert not session.slow_receivers
        connection.resume_writing()
        assert payloads(await client.messages(1)) == [FILLER]
        await client.silent()


async def test_what_expires_meanwhile_does_not_come(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client, session = await slow(one)
        publisher = await one.client("p")
        connection = stop(session)
        await publish(publisher, "t", [b"short"], found=[(Prop.MESSAGE_EXPIRY, 1)])
        await publish(publisher, "t", [b"long"], found=[(Prop.MESSAGE_EXPIRY, 100)])
        one.clock.advance(10_000)
        connection.resume_writing()
        found = await client.messages(2)
        assert found[1].payload == b"long"
        assert found[1].value(Prop.MESSAGE_EXPIRY) == 90
        await client.silent()
        assert one.adapter.node.counters.expired == 1


async def test_no_local_and_sizes_hold_in_the_log_too(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client = await one.client("s", found=[(Prop.MAXIMUM_PACKET_SIZE, 100)])
        await client.subscribe(("t", 0 | 4), found=[(Prop.SUBSCRIPTION_ID, 7)])
        session = one.session("s")
        assert session is not None
        publisher = await one.client("p")
        connection = cast("MqttConnection", session.connection)
        connection.pause_writing()
        for _ in range(1_000):  # within its Maximum Packet Size
            connection.send(wire.publish("filler", bytes(80)))
        await publish(publisher, "t", [b"1", bytes(200), b"2"])
        client.send(wire.publish("t", b"own"))
        await publish(publisher, "t", [b"3"])
        assert session.slow_receivers
        connection.resume_writing()
        found = await client.messages(1_003)
        assert payloads(found[1_000:]) == [b"1", b"2", b"3"]
        assert [one.value(Prop.SUBSCRIPTION_ID) for one in found[1_000:]] == [7, 7, 7]
        await client.silent()
        assert one.adapter.node.counters.too_large == 1


async def test_a_full_disk_keeps_nobody_behind(tmp_path: Path) -> None:
    """A message that the log refuses was sent to others already: receivers do not wait for it."""
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client, session = await slow(one)
        publisher = await one.client("p")
        connection = stop(session)
        with full_disk(one):
            await publish(publisher, "t", [b"refused"])
        assert session.slow_receivers
        feeds = list(one.adapter.node.feeds)
        await until(lambda: not any(feed.slow_receivers._waiting for feed in feeds))
        connection.resume_writing()
        await publish(publisher, "t", [b"kept"])
        found = await client.messages(2)
        assert found[1].payload == b"kept"
        await until(lambda: not session.slow_receivers)
        await client.silent()


async def test_a_topic_that_is_deleted_has_nobody_behind(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client, session = await slow(one)
        publisher = await one.client("p")
        connection = stop(session)
        await publish(publisher, "t", numbered(3))
        assert session.slow_receivers
        await one.kernel.topics.delete(one.partition().topic.name)
        assert not session.slow_receivers
        connection.resume_writing()
        assert payloads(await client.messages(1)) == [FILLER]
        await until(lambda: len(list(one.adapter.node.feeds)) == 1)
        await publish(publisher, "t", [b"new"])
        assert payloads(await client.messages(1)) == [b"new"]


async def test_a_subscription_of_qos_0_may_be_replaced_while_behind(tmp_path: Path) -> None:
    """MQTT-3.8.4-4: nothing is lost by it, and what waits comes as is asked for now."""
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client, session = await slow(one)
        publisher = await one.client("p")
        connection = stop(session)
        await publish(publisher, "t", numbered(3))
        client.send(wire.subscribe(9, [("t", 0)], found=[(Prop.SUBSCRIPTION_ID, 5)]))
        await until(lambda: session.subscriptions["t"].identifier == 5)
        connection.resume_writing()
        assert (await client.message()).payload == FILLER
        await client.receive(Kind.SUBACK)
        found = await client.messages(3)
        assert payloads(found) == numbered(3)
        assert [one.value(Prop.SUBSCRIPTION_ID) for one in found] == [5, 5, 5]


async def test_topics_that_take_turns_leave_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of mixed topics are sent together, not each by itself."""
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client, session = await slow(one)
        await client.subscribe(("a/+", 0), found=[(Prop.SUBSCRIPTION_ID, 5)])
        publisher = await one.client("p")
        connection = stop(session)
        topics = [f"a/{at % 7}" for at in range(100)]
        bodies = numbered(100)
        publisher.send(
            *[wire.publish(topic, body) for topic, body in zip(topics, bodies, strict=True)]
        )
        await publisher.silent()
        assert session.slow_receivers
        take, alone = SlowReceiver.take, list[bytes]()

        def noting(self: SlowReceiver, run: PublishRun, *args: Any) -> int:
            alone.append(run.topic)
            return take(self, run, *args)

        monkeypatch.setattr(SlowReceiver, "take", noting)
        connection.resume_writing()
        found = (await client.messages(101))[1:]
        assert [one.topic for one in found] == topics
        assert payloads(found) == bodies
        assert all(one.properties == [(Prop.SUBSCRIPTION_ID, 5)] for one in found)
        await until(lambda: not session.slow_receivers)
        assert alone == [b"a/0"]  # a batch begins with a run


async def test_a_subscription_that_comes_while_behind_begins_there(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=LIMITS) as one:
        client, session = await slow(one)
        publisher = await one.client("p")
        connection = stop(session)
        await publish(publisher, "t", [b"1"])
        await publish(publisher, "other", [b"before"])
        await one.delivered()
        client.send(wire.subscribe(9, [("other", 0), ("t", 0)]))
        await until(lambda: "other" in session.subscriptions)
        await publish(publisher, "other", [b"after"])
        await publish(publisher, "t", [b"2"])
        connection.resume_writing()
        found: list[wire.Received] = []
        while len(found) < 4:
            came = await client.next()
            assert came is not None
            if came.kind is Kind.PUBLISH:
                found.append(came)
        assert payloads(found[1:]) == [b"1", b"after", b"2"]
        await client.silent()
