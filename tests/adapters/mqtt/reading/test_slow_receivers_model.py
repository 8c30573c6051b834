"""QoS 0 to a receiver that is slow at random: once and in order, as long as it is within bounds.

Topics and what they were published by have an order each: QoS 0 overtakes QoS 1 (ADR 0007).
"""

import asyncio
import tempfile
from pathlib import Path
from typing import cast
from unittest.mock import patch

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from adapters.mqtt.connection.connection import MqttConnection
from gateway.records import decoding_cost
from gateway.slots import partition_for_key
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.examples import examples
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop
from tests.support.waiting import until

TOPICS = ("t/0", "t/1")
NO_LOCAL = 0x04
SIZE = 12_000  # six of them are more than may wait
LIMITS = {"receiver_bytes_max": 64 * 1024, "receiver_bytes_hard_max": 64 << 20}

Step = tuple[object, ...]
STEPS = st.one_of(
    st.tuples(
        st.just("publish"), st.sampled_from([0, 1]), st.sampled_from([0, 1]), st.integers(1, 9)
    ),
    st.tuples(st.just("alternate"), st.integers(2, 12)),
    st.tuples(st.just("produce"), st.sampled_from([0, 1]), st.integers(1, 9)),
    st.tuples(st.just("press"), st.booleans()),
    st.tuples(st.just("hold"), st.booleans()),
    st.tuples(st.just("turn"), st.integers(1, 30)),
    st.tuples(st.just("subscribe_too")),
    st.tuples(st.just("publish_own"), st.sampled_from([0, 1]), st.sampled_from([0, 1])),
)

PENDING: list[Step] = [
    ("hold", True),
    ("publish", 0, 0, 3),
    ("press", True),
    ("publish", 0, 0, 9),
    ("alternate", 12),
    ("publish", 0, 1, 2),
    ("press", False),
    ("publish", 0, 0, 2),
    ("hold", False),
    ("publish", 0, 0, 2),
]
"""The receiver falls behind while messages that it has had are still being written to the log."""

FOREIGN: list[Step] = [
    ("hold", True),
    ("publish", 0, 0, 2),
    ("produce", 0, 9),
    ("press", True),
    ("publish", 0, 0, 9),
    ("produce", 1, 8),
    ("alternate", 12),
    ("hold", False),
    ("turn", 30),
    ("publish", 0, 0, 9),
    ("press", False),
    ("publish", 0, 0, 9),
]
"""Large batches of another protocol come between."""

AGAIN: list[Step] = [
    ("press", True),
    ("publish", 0, 0, 9),
    ("alternate", 9),
    ("turn", 30),
    ("hold", True),
    ("publish", 0, 0, 9),
    ("press", False),
    ("turn", 30),
    ("press", True),
    ("publish", 0, 0, 9),
    ("press", False),
    ("publish", 1, 0, 9),
    ("hold", False),
]
"""The receiver has caught up with the log, and more is being written there than it takes."""


class World:
    partitions = 1

    def __init__(
        self, one: RestartableNode, subscriber: Client, publishers: dict[int, Client]
    ) -> None:
        self.one = one
        self.subscriber = subscriber
        self.publishers = publishers
        self.published: dict[tuple[str, str], list[int]] = {}
        self.count = 0
        self.ids = 0
        self.is_pressed = False

    def next(self, topic: str, way: str) -> bytes:
        self.count += 1
        self.published.setdefault((topic, way), []).append(self.count)
        return b"%s %d " % (way.encode(), self.count) + b"." * SIZE

    @property
    def connection(self) -> MqttConnection:
        session = self.one.session("s")
        assert session is not None
        return cast("MqttConnection", session.connection)

    async def publish(self, topic: int, qos: int, count: int) -> None:
        name, client = TOPICS[topic], self.publishers[qos]
        packets = []
        for _ in range(count):
            self.ids += 1
            payload = self.next(name, f"qos{qos}")
            packets.append(wire.publish(name, payload, qos=qos, packet_id=self.ids))
        client.send(*packets)
        await self.served(client)

    async def alternate(self, count: int) -> None:
        """Publish to one topic and the other in turn, in one write."""
        client = self.publishers[0]
        names = [TOPICS[at % 2] for at in range(count)]
        client.send(*[wire.publish(name, self.next(name, "qos0")) for name in names])
        await self.served(client)

    async def served(self, client: Client) -> None:
        client.send(wire.PINGREQ)
        while (found := await client.next()) is not None:
            if found.kind is Kind.PINGRESP:
                return

    async def publish_own(self, topic: int, qos: int) -> None:
        """Let the subscriber publish: it is read now, or once there is room for answers to it."""
        name, version = TOPICS[topic], self.subscriber.version
        self.ids += 1
        payload = self.next(name, f"own{qos}")
        packet = wire.publish(name, payload, qos=qos, packet_id=self.ids, version=version)
        self.subscriber.send(packet)
        await self.turn(5)

    async def produce(self, topic: int, count: int) -> None:
        name = TOPICS[topic]
        self.one.produce(
            [(name.encode(), self.next(name, "kafka")) for _ in range(count)],
            compressed=count % 2 == 0,
            number=partition_for_key(name.encode(), self.partitions),
        )

    async def press(self, is_on: bool) -> None:  # noqa: FBT001 - hypothesis draws it
        """Let nothing leave for the subscriber any more, or all that waits."""
        if is_on and not self.is_pressed:
            self.connection.pause_writing()
        elif self.is_pressed and not is_on:
            self.connection.resume_writing()
        self.is_pressed = is_on

    async def hold(self, is_on: bool) -> None:  # noqa: FBT001
        if is_on:
            self.one.live.storage.held = True
        else:
            self.one.live.storage.release()

    async def turn(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def subscribe_too(self) -> None:
        """Ask for the same again with the same options: nothing is lost by it."""
        self.subscriber.send(wire.subscribe(9, [("t/+", 0)], version=self.subscriber.version))

    async def finish(self) -> None:
        await self.hold(is_on=False)
        await self.press(is_on=False)
        await self.one.delivered()
        session, got = self.one.session("s"), dict[tuple[str, str], list[int]]()
        assert session is not None
        topics_of: dict[object, str] = {}
        for _ in range(self.count):
            found = await self.message()
            topic, alias = found.topic, found.value(Prop.TOPIC_ALIAS)
            if topic and alias:
                topics_of[alias] = topic
            way, number, _ = found.payload.split(b" ")
            place = topic or topics_of[alias], way.decode()
            got.setdefault(place, []).append(int(number))
        assert got == self.published
        await until(lambda: not session.slow_receivers)
        counters, published = self.one.adapter.node.counters, self.published
        assert counters.dropped == 0
        await self.publish(0, 0, 1)  # it is live again
        found = await self.message()
        assert found.payload.split(b" ")[1] == b"%d" % published[TOPICS[0], "qos0"][-1]
        for feed in self.one.adapter.node.feeds:
            slow_receivers = feed.slow_receivers
            kept = [
                *slow_receivers.members,
                *slow_receivers._pending,
                *slow_receivers._waiting,
                *slow_receivers._samples,
            ]
            assert kept == []

    async def message(self) -> wire.Received:
        while (found := await self.subscriber.next()) is not None:
            if found.kind is Kind.PUBLISH:
                return found
        raise AssertionError("closed")


async def run(
    steps: list[Step],
    folder: Path,
    *,
    version: int,
    overlaps: bool,
    partitions: int,
    found: wire.Properties = (),
) -> None:
    """``overlaps``: one of the topics has a subscription of QoS 1 too, with No Local in 5.0."""
    routes = [{"filter": "#", "topic": "mqtt", "partitions": partitions}]
    async with restartable_node(folder, mqtt={**LIMITS, "routes": routes}) as one:
        subscriber = await one.client("s", version=version, found=found)
        too = ("t/0", 1 | NO_LOCAL if version == V5 else 1)
        await subscriber.subscribe(("t/+", 0), *((too,) if overlaps else ()))
        publishers = {qos: await one.client(f"p{qos}") for qos in (0, 1)}
        world = World(one, subscriber, publishers)
        world.partitions = partitions
        for name, *args in steps:
            await getattr(world, str(name))(*args)
        async with asyncio.timeout(120):
            await world.finish()


SETTINGS = settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)


@SETTINGS
@example(steps=PENDING, version=V5, aliases=0, is_beside=False, overlaps=False, partitions=1)
@example(steps=AGAIN, version=V5, aliases=0, is_beside=False, overlaps=False, partitions=1)
@example(steps=AGAIN, version=V5, aliases=5, is_beside=False, overlaps=False, partitions=1)
@example(steps=FOREIGN, version=V5, aliases=0, is_beside=True, overlaps=True, partitions=3)
@example(steps=PENDING, version=V5, aliases=0, is_beside=True, overlaps=True, partitions=3)
@example(
    steps=PENDING, version=V3_1_1, aliases=0, is_beside=False, overlaps=False, partitions=1
)
@given(
    steps=st.lists(STEPS, max_size=30),
    version=st.sampled_from([V3_1_1, V5]),
    aliases=st.sampled_from([0, 1, 5]),
    is_beside=st.booleans(),
    overlaps=st.booleans(),
    partitions=st.sampled_from([1, 3]),
)
def test_a_slow_receiver_gets_each_message_once_and_in_order(
    steps: list[Step],
    version: int,
    aliases: int,
    partitions: int,
    *,
    is_beside: bool,
    overlaps: bool,
) -> None:
    """Behind a batch that is decoded beside the loop a feed reads the log, all it has."""
    found = [(Prop.TOPIC_ALIAS_MAXIMUM, aliases)] if version == V5 and aliases else []
    work_max = 4 if is_beside else decoding_cost.LOOP_WORK_MAX
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(decoding_cost, "LOOP_WORK_MAX", work_max),
    ):
        asyncio.run(
            run(
                steps,
                Path(folder),
                version=version,
                found=found,
                overlaps=overlaps,
                partitions=partitions,
            )
        )
