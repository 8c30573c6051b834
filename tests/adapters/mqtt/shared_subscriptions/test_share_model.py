"""Any order of what members of a shared subscription, their sessions and the node may do.

QoS 1 comes to a member at least once, and to nobody else once it is acknowledged; QoS 2 comes
once, to one member, and is lost only with that member's session.
"""

import asyncio
import tempfile
from functools import partial
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.examples import examples
from tests.support.mqtt_wire import Kind, Prop, Received
from tests.support.waiting import until

SHARED = "$share/g/t/+"
KEPT = ("a", "b")
MEMBERS = (*KEPT, "c")  # c's session ends with its connection
STRATEGIES = ("round_robin", "sticky", "hash_topic")

MEMBER = st.sampled_from(range(len(MEMBERS)))
STEPS = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from([1, 2]), st.integers(1, 9)),
    st.tuples(st.just("read"), MEMBER, st.sampled_from(["all", "some", "received", "none"])),
    st.tuples(st.just("connect"), MEMBER, st.integers(1, 12)),
    st.tuples(st.just("drop"), MEMBER),
    st.tuples(st.just("end"), MEMBER),
    st.tuples(st.just("restart"), st.booleans()),
    st.tuples(st.just("checkpoint")),
)


class World:
    """A publisher, three members, and what they have said."""

    def __init__(self, one: RestartableNode) -> None:
        self.one = one
        self.publisher: Client | None = None
        self.clients: dict[str, Client] = {}
        self.count = 0
        self.published: dict[int, set[bytes]] = {1: set(), 2: set()}
        self.holders: dict[bytes, str] = {}  # who has it, or has acknowledged it
        self.acknowledged: set[bytes] = set()
        self.lost: set[bytes] = set()  # QoS 2, with their member's session
        self.got: set[bytes] = set()
        self.stored: dict[str, dict[int, bytes]] = {name: {} for name in MEMBERS}

    async def publish(self, qos: int, count: int) -> None:
        if self.publisher is None:
            self.publisher = await self.one.client("p")
        start, self.count = self.count, self.count + count
        payloads = [b"%d" % at for at in range(start, self.count)]
        self.published[qos].update(payloads)
        await self.publisher.publish(f"t/{self.count % 3}", payloads, qos=qos)

    async def connect(self, member: int, window: int) -> None:
        await self.drop(member)
        name = MEMBERS[member]
        options = [(Prop.RECEIVE_MAXIMUM, window)]
        client = await self.one.client(name, kept=name in KEPT, found=options)
        if not client.session_present:
            client.send(wire.subscribe(1, [(SHARED, 2)]))
            while (found := await client.next()) is not None and found.kind is not Kind.SUBACK:
                self.take(client, name, found, "none")  # what is shared may come before it
        self.clients[name] = client

    async def drop(self, member: int) -> None:
        name = MEMBERS[member]
        client = self.clients.pop(name, None)
        if client is None:
            return
        await client.drop()
        await self.one.gone(name)
        if name not in KEPT:
            self.forget(name)

    async def end(self, member: int) -> None:
        """A session ends; the group does not: ``a`` stays a member."""
        name = MEMBERS[member]
        if member == 0:
            return
        await self.drop(member)
        client = await self.one.client(name)  # clean start
        self.forget(name)
        await client.leave()
        await self.one.gone(name)

    def forget(self, name: str) -> None:
        """A session is over: others may have what it had, but of QoS 2."""
        self.stored[name].clear()
        for payload, holder in self.holders.items():
            if holder != name or payload in self.acknowledged:
                continue
            if payload in self.published[2]:
                self.lost.add(payload)
            else:
                self.holders[payload] = ""

    async def restart(self, crash: bool) -> None:  # noqa: FBT001 - hypothesis draws it
        self.clients.clear()
        self.publisher = None
        await self.one.restart(crash=crash)
        self.forget("c")

    async def checkpoint(self) -> None:
        self.one.adapter.node.sessions.checkpoint()

    async def read(self, member: int, how: str) -> int:
        """Take what has come; acknowledge all, every other one, or nothing of it."""
        name = MEMBERS[member]
        client = self.clients.get(name)
        count = 0
        if client is None:
            return count
        came = 1
        while came:  # until what was answered has come, and nothing else does
            came = 0
            await until(partial(self.has_left, name))
            client.send(wire.PINGREQ)
            while (
                found := await client.next()
            ) is not None and found.kind is not Kind.PINGRESP:
                came += 1
                self.take(client, name, found, how)
            count += came
        return count

    def has_left(self, name: str) -> bool:
        """Whether a member's QoS 2 has left: it waits until it is written down."""
        session = self.one.session(name)
        return session is None or not session.journal.is_held_up

    async def see_all(self, how: str) -> None:
        """Members know what has left for them: what is lost with a session is known then."""
        for member in range(len(MEMBERS)):
            await self.read(member, how)

    def take(self, client: Client, name: str, found: Received, how: str) -> None:
        stored = self.stored[name]
        if found.kind is Kind.PUBREL:
            if how in {"all", "some"}:
                payload = stored.pop(found.packet_id, None)
                if payload is not None:
                    self.acknowledged.add(payload)
                client.send(wire.ack(Kind.PUBCOMP, found.packet_id))
            return
        assert found.kind is Kind.PUBLISH, found
        payload = found.payload
        holder = self.holders.get(payload)
        assert holder in {None, "", name}, f"{payload!r} of {holder} comes to {name}"
        self.holders[payload] = name
        answers = how != "none" and (how != "some" or found.packet_id % 2 == 0)
        if found.qos == 1:
            self.got.add(payload)
            if answers:
                self.acknowledged.add(payload)
                client.send(wire.ack(Kind.PUBACK, found.packet_id))
            return
        if stored.get(found.packet_id) != payload:
            assert payload not in self.got, "QoS 2 comes once"
            stored[found.packet_id] = payload
            self.got.add(payload)
        if answers:
            client.send(wire.ack(Kind.PUBREC, found.packet_id))

    async def finish(self) -> None:
        """Read until nothing is left, then compare."""
        for member in range(len(MEMBERS)):
            await self.see_all("all")
            await self.connect(member, 100)
        await self.one.delivered()
        async with asyncio.timeout(60):
            while sum([await self.read(at, "all") for at in range(3)]) or self.is_busy():
                pass
        assert self.acknowledged >= self.published[1]
        assert self.acknowledged >= self.published[2] - self.lost

    def is_busy(self) -> bool:
        context = self.one.adapter.node.context
        [group] = context.groups.values()
        return bool(
            group.behind
            or group.returning
            or context.member_redelivery.dealing
            or any(session.outbox.count for session in self.one.adapter.node.sessions)
        )


async def run(strategy: str, steps: list[tuple[object, ...]], folder: Path) -> None:
    async with restartable_node(folder, mqtt={"shared_strategy": strategy}) as one:
        world = World(one)
        for member in range(len(MEMBERS)):
            await world.connect(member, 5)
        for name, *args in steps:
            if name != "publish":
                await world.see_all("none")
            await getattr(world, str(name))(*args)
        await world.finish()


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
@example("round_robin", [("publish", 2, 9), ("restart", True)])
@example("round_robin", [("publish", 1, 9), ("restart", True), ("connect", 1, 5)])
@given(st.sampled_from(STRATEGIES), st.lists(STEPS, max_size=25))
def test_each_message_goes_to_one_member(
    strategy: str, steps: list[tuple[object, ...]]
) -> None:  # MQTT 5.0 section 4.8.2
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(strategy, steps, Path(folder)))
