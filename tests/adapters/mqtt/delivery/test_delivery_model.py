"""Any order of publishing, acknowledging, leaving, dying and subscribing anew.

QoS 1 comes at least once, QoS 2 exactly once.
"""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.adapters.mqtt.few_packet_ids import few_identifiers
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.examples import examples
from tests.support.mqtt_wire import Kind, Prop, Received
from tests.support.waiting import until

TOPICS = ("t/0", "t/1")

STEPS = st.one_of(
    st.tuples(
        st.just("publish"), st.sampled_from([0, 1]), st.sampled_from([1, 2]), st.integers(1, 9)
    ),
    st.tuples(st.just("publish_again"), st.sampled_from([0, 1])),
    st.tuples(st.just("produce"), st.sampled_from([0, 1]), st.integers(1, 9)),
    st.tuples(st.just("read"), st.sampled_from(["all", "some", "received", "none"])),
    st.tuples(st.just("acknowledge")),
    st.tuples(st.just("resubscribe"), st.sampled_from(["anew", "other", "lower"])),
    st.tuples(st.just("drop")),
    st.tuples(st.just("connect"), st.integers(1, 12)),
    st.tuples(st.just("restart"), st.booleans()),
    st.tuples(st.just("checkpoint")),
)

USED_AGAIN: list[tuple[object, ...]] = [
    ("publish", 0, 1, 5),
    ("read", "all"),
    ("publish", 0, 1, 5),
    ("read", "none"),
    ("restart", True),
    ("connect", 12),
    ("read", "none"),
]


class World:
    """One publisher, one subscriber with a session, and what both have said."""

    def __init__(self, one: RestartableNode) -> None:
        self.one = one
        self.publisher: Client | None = None
        self.subscriber: Client | None = None
        self.published: dict[tuple[str, int], list[bytes]] = {}
        self.got: dict[tuple[str, int], list[bytes]] = {}
        self.stored_ids: set[int] = set()  # QoS 2: received, not released
        self.open_ids: set[int] = set()  # QoS 1: received, not acknowledged
        self.count = 0
        self.window = 0

    def next(self, topic: str, qos: int) -> bytes:
        self.count += 1
        payload = b"%d" % self.count
        self.published.setdefault((topic, qos), []).append(payload)
        return payload

    async def a_publisher(self) -> Client:
        if self.publisher is None:
            self.publisher = await self.one.client("p", kept=True)
        return self.publisher

    async def publish(self, topic: int, qos: int, count: int) -> None:
        name = TOPICS[topic]
        publisher = await self.a_publisher()
        await publisher.publish(name, [self.next(name, qos) for _ in range(count)], qos=qos)

    async def publish_again(self, topic: int) -> None:
        """PUBREC is lost with the connection, or the node: PUBLISH comes once more."""
        publisher = await self.a_publisher()
        payload = self.next(TOPICS[topic], 2)
        packet = {"qos": 2, "packet_id": 60_000}
        publisher.send(wire.publish(TOPICS[topic], payload, **packet))  # type: ignore[arg-type]
        await publisher.receive(Kind.PUBREC)
        await publisher.drop()
        back = self.publisher = await self.one.client("p", kept=True)
        back.send(wire.publish(TOPICS[topic], payload, dup=True, **packet))  # type: ignore[arg-type]
        await back.receive(Kind.PUBREC)
        back.send(wire.ack(Kind.PUBREL, 60_000))
        await back.receive(Kind.PUBCOMP)

    async def produce(self, topic: int, count: int) -> None:
        name = TOPICS[topic]
        records = [(name.encode(), self.next(name, 1)) for _ in range(count)]
        self.one.produce(records, compressed=count % 2 == 0)

    async def connect(self, window: int) -> None:
        await self.drop()
        self.window = window
        found = [(Prop.RECEIVE_MAXIMUM, window)]
        self.subscriber = await self.one.client("s", kept=True, found=found)
        self.open_ids.clear()

    async def drop(self) -> None:
        if self.subscriber is not None:
            await self.subscriber.drop()
            self.subscriber = None

    async def restart(self, crash: bool) -> None:  # noqa: FBT001 - hypothesis draws it
        if not crash:
            await self.gone()
        await self.one.restart(crash=crash)
        await self.gone()

    async def gone(self) -> None:
        """Both have lost their connections."""
        await self.drop()
        if self.publisher is not None:
            await self.publisher.drop()
            self.publisher = None

    async def checkpoint(self) -> None:
        self.one.adapter.node.sessions.checkpoint()

    async def resubscribe(self, how: str) -> None:
        """End the subscription, and make it again at once: what came before is not lost."""
        if self.subscriber is None:
            return
        await self.one.delivered()
        self.count += 1
        found = [(Prop.SUBSCRIPTION_ID, self.count)]
        if how == "anew":
            self.subscriber.send(wire.unsubscribe(1, ["t/+"]))
        elif how == "lower":
            self.subscriber.send(wire.subscribe(1, [("t/+", 0)]))
        self.subscriber.send(wire.subscribe(2, [("t/+", 2)], found=found))
        await self.read("none")

    async def read(self, how: str) -> None:
        """Take what has come; acknowledge all, every other one, or nothing of it."""
        subscriber = self.subscriber
        if subscriber is None:
            return
        subscriber.send(wire.PINGREQ)
        while (found := await subscriber.next()) is not None:
            if found.kind is Kind.PINGRESP:
                return
            if found.kind in {Kind.SUBACK, Kind.UNSUBACK}:
                continue
            answers = how != "none" and (how != "some" or found.packet_id % 2 == 0)
            self.take(subscriber, found, answers=answers, completes=how != "received")

    async def acknowledge(self) -> None:
        """Acknowledge what was left open, the latest first."""
        if self.subscriber is not None:
            for packet_id in sorted(self.open_ids, reverse=True):
                self.subscriber.send(wire.ack(Kind.PUBACK, packet_id))
            self.open_ids.clear()

    def take(
        self, subscriber: Client, found: Received, *, answers: bool, completes: bool
    ) -> None:
        if found.kind is Kind.PUBREL:
            self.stored_ids.discard(found.packet_id)
            if completes:
                subscriber.send(wire.ack(Kind.PUBCOMP, found.packet_id))
            return
        assert found.kind is Kind.PUBLISH, found
        got = self.got.setdefault((found.topic, found.qos), [])
        if found.qos == 1:
            got.append(found.payload)
            assert found.packet_id not in self.open_ids, "MQTT-2.2.1-4"
            self.open_ids.add(found.packet_id)
            assert len(self.open_ids) <= self.window
            if answers:
                self.open_ids.discard(found.packet_id)
                subscriber.send(wire.ack(Kind.PUBACK, found.packet_id))
            return
        if found.packet_id not in self.stored_ids:
            self.stored_ids.add(found.packet_id)
            got.append(found.payload)
        if answers:
            subscriber.send(wire.ack(Kind.PUBREC, found.packet_id))

    async def finish(self) -> None:
        """Read until nothing is left, then compare."""
        await self.connect(10)
        await self.one.delivered()
        session = self.one.session("s")
        assert session is not None
        async with asyncio.timeout(60):
            while session.outbox.count or session.behind or session.is_redelivering:
                await self.read("all")
        for kind, payloads in self.published.items():
            got = self.got.get(kind, [])
            if kind[1] == 2:
                assert got == payloads, f"exactly once, in order: {kind}"
            else:
                assert list(dict.fromkeys(got)) == payloads, f"at least once, in order: {kind}"


async def run(steps: list[tuple[object, ...]], folder: Path) -> None:
    async with restartable_node(folder) as one:
        world = World(one)
        await world.connect(5)
        assert world.subscriber is not None
        await world.subscriber.subscribe(("t/+", 2))
        for name, *args in steps:
            await getattr(world, str(name))(*args)
        await world.finish()
        assert await all_are_settled(one)


async def all_are_settled(one: RestartableNode) -> bool:
    """The journal holds nothing of what is settled after a checkpoint."""
    node = one.adapter.node
    node.sessions.checkpoint()
    keys = node.context.store.stream.values
    await until(lambda: not [key for key in keys if key[:1] == b"\x03"])
    return True


SETTINGS = settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)


@SETTINGS
@given(st.lists(STEPS, max_size=25))
def test_qos_1_at_least_once_and_qos_2_exactly_once(
    steps: list[tuple[object, ...]],
) -> None:  # MQTT-4.3.2-4, MQTT-4.3.3-9
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(steps, Path(folder)))


@SETTINGS
@example(USED_AGAIN)
@given(st.lists(STEPS, max_size=25))
def test_qos_1_and_2_when_identifiers_are_used_again_and_again(
    steps: list[tuple[object, ...]],
) -> None:  # MQTT-2.2.1-4
    with few_identifiers(6), tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(steps, Path(folder)))
