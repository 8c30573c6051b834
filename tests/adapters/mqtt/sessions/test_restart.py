"""A node that stopped, or died, goes on where its sessions were."""

from pathlib import Path

import pytest

from gateway.slots import partition_for_key
from tests.adapters.mqtt.restartable_node import numbered, payloads, restartable_node
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop

SMALL = ((Prop.RECEIVE_MAXIMUM, 7),)
ENDS = pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])


@ENDS
async def test_positions_are_kept(tmp_path: Path, *, crash: bool) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(5))
        assert payloads(await subscriber.take(5)) == numbered(5)
        await subscriber.leave()
        await one.gone("s")
        await publisher.publish("t", numbered(5, start=5))
        await one.restart(crash=crash)
        publisher = await one.client("p")
        await publisher.publish("t", numbered(5, start=10))
        back = await one.client("s", kept=True)
        assert back.session_present
        assert payloads(await back.take(10)) == numbered(10, start=5)
        await back.silent()


@ENDS
@pytest.mark.parametrize("qos", [1, 2])
async def test_what_was_on_its_way_has_its_identifier_and_dup(
    tmp_path: Path, qos: int, *, crash: bool
) -> None:  # MQTT-4.4.0-1, MQTT-3.3.1-1
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 2))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(6), qos=qos)
        before = await subscriber.messages(6)
        if qos == 1:
            subscriber.send(wire.ack(Kind.PUBACK, before[2].packet_id))
            await subscriber.silent()
        one.adapter.node.sessions.checkpoint()
        await one.restart(crash=crash)
        back = await one.client("s", kept=True)
        wanted = [x for x in before if qos == 2 or x is not before[2]]
        found = await back.messages(len(wanted))
        assert all(x.dup for x in found)
        assert [(x.packet_id, x.payload) for x in found] == [
            (x.packet_id, x.payload) for x in wanted
        ]
        await back.silent()
        publisher = await one.client("p")
        await publisher.publish("t", [b"new"], qos=qos)
        new = await back.message()
        assert not new.dup
        assert new.packet_id not in {x.packet_id for x in found}


@ENDS
async def test_outbound_qos_2_goes_on_with_pubrel(tmp_path: Path, *, crash: bool) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 2))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(3), qos=2)
        found = await subscriber.messages(3)
        subscriber.send(wire.ack(Kind.PUBREC, found[0].packet_id))
        assert (await subscriber.receive(Kind.PUBREL)).packet_id == found[0].packet_id
        await one.restart(crash=crash)
        back = await one.client("s", kept=True)
        assert (await back.receive(Kind.PUBREL)).packet_id == found[0].packet_id
        back.send(wire.ack(Kind.PUBCOMP, found[0].packet_id))
        again = await back.take(2)
        assert payloads(again) == numbered(2, start=1)
        await back.silent()


@ENDS
async def test_inbound_qos_2_is_known_after_the_end(tmp_path: Path, *, crash: bool) -> None:
    async with restartable_node(tmp_path) as one:  # MQTT-4.3.3-10
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 2))
        publisher = await one.client("p", kept=True)
        publisher.send(wire.publish("t", b"once", qos=2, packet_id=9))
        await publisher.receive(Kind.PUBREC)
        await one.restart(crash=crash)
        back = await one.client("p", kept=True)
        back.send(wire.publish("t", b"once", qos=2, packet_id=9, dup=True))
        await back.receive(Kind.PUBREC)
        back.send(wire.ack(Kind.PUBREL, 9))
        await back.receive(Kind.PUBCOMP)
        back.send(wire.publish("t", b"another", qos=2, packet_id=9))
        await back.receive(Kind.PUBREC)
        subscriber = await one.client("s", kept=True)
        assert payloads(await subscriber.take(2)) == [b"once", b"another"]
        await subscriber.silent()


async def test_an_identifier_that_was_released_is_free_after_a_crash(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p", kept=True)
        await publisher.publish("t", [b"1"], qos=2)
        await one.restart(crash=True)
        back = await one.client("p", kept=True)
        assert one.session("p").inbound.shards == {}  # type: ignore[union-attr]
        await back.publish("t", [b"2"], qos=2)
        assert one.partition().log_end_offset == 2


@pytest.mark.parametrize("how", ["clean", "expiry 0", "not kept"])
async def test_a_session_that_ended_leaves_no_identifiers_to_the_next(
    tmp_path: Path, how: str
) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p", kept=True)
        publisher.send(wire.publish("t", b"1", qos=2, packet_id=9))
        await publisher.receive(Kind.PUBREC)
        if how == "clean":
            await publisher.leave()
            publisher = await one.client("p", found=[(Prop.SESSION_EXPIRY, 60)])
            await publisher.leave()
        elif how == "expiry 0":
            await publisher.leave(found=[(Prop.SESSION_EXPIRY, 0)])
        else:
            await publisher.leave()
            await one.gone("p")
            publisher = await one.client("p", clean=False)
            publisher.send(wire.ack(Kind.PUBREL, 9))
            await publisher.receive(Kind.PUBCOMP)
            await publisher.leave()
        await one.gone("p")
        publisher = await one.client("p", kept=True)
        await one.restart(crash=True)
        publisher = await one.client("p", kept=True)
        await publisher.publish("t", [b"filler"], qos=1)
        publisher.send(wire.publish("t", b"2", qos=2, packet_id=9))
        await publisher.receive(Kind.PUBREC)
        assert one.partition().log_end_offset == 3


@ENDS
async def test_behind_with_a_small_window(tmp_path: Path, *, crash: bool) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True, found=SMALL)
        await subscriber.subscribe(("t", 2))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(30), qos=2)
        first = await subscriber.messages(7)
        await one.restart(crash=crash)
        back = await one.client("s", kept=True, found=SMALL)
        again = await back.take(30)
        assert payloads(again) == numbered(30)
        assert [x.dup for x in again] == [True] * 7 + [False] * 23
        assert [x.packet_id for x in again[:7]] == [x.packet_id for x in first]
        await back.silent()


async def test_redelivery_keeps_to_the_new_receive_maximum(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:  # MQTT-3.3.4-9, MQTT 5.0 section 4.9
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(30))
        await subscriber.messages(30)
        await subscriber.drop()
        await one.gone("s")
        back = await one.client("s", kept=True, found=[(Prop.RECEIVE_MAXIMUM, 4)])
        first = await back.messages(4)
        await back.silent()
        back.send(wire.ack(Kind.PUBACK, first[1].packet_id))
        first += await back.messages(1)
        await back.silent()
        for at in (0, 2, 3, 4):
            await back.acknowledge(first[at])
        rest = await back.take(25)
        assert payloads(first + rest) == numbered(30)
        assert all(x.dup for x in rest)
        await back.silent()
        await publisher.publish("t", [b"new"])
        assert payloads(await back.take(1)) == [b"new"]


async def test_redelivery_sends_what_fits_of_a_run(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:  # MQTT-3.1.2-25
        size = [(Prop.MAXIMUM_PACKET_SIZE, 100)]
        subscriber = await one.client("s", kept=True, found=size)
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        await publisher.publish("t", [b"a", b"b" * 200, b"c"])
        assert payloads(await subscriber.messages(2)) == [b"a", b"c"]
        await subscriber.drop()
        await one.gone("s")
        back = await one.client("s", kept=True, found=size)
        assert payloads(await back.take(2)) == [b"a", b"c"]
        await back.silent()


async def test_a_crash_before_the_journal_loses_nothing(tmp_path: Path) -> None:
    """Runs that left for the client and were never written down are read again."""
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        one.adapter.node.context.store.journal = lambda *_: None  # type: ignore[method-assign]
        await publisher.publish("t", numbered(5))
        await subscriber.messages(5)
        one.adapter.node.context.dirty.clear()
        await one.restart(crash=True)
        back = await one.client("s", kept=True)
        assert payloads(await back.take(5)) == numbered(5)


async def test_journals_that_are_missing_do_not_close_the_window(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        store = one.adapter.node.context.store
        store.journal = lambda *_: None  # type: ignore[method-assign]
        await publisher.publish("t", numbered(5))
        await subscriber.messages(5)
        one.adapter.node.sessions.checkpoint()
        await subscriber.silent()
        await one.restart(crash=True)
        session = one.session("s")
        assert session is not None
        assert (session.outbox.count, session.outbox.base) == (0, 5)


async def test_a_partition_since_the_last_checkpoint_is_not_read_twice(tmp_path: Path) -> None:
    routes = [{"filter": "x/#", "topic": "xs"}]
    async with restartable_node(tmp_path, mqtt={"routes": routes}) as one:
        subscriber = await one.client("s", kept=True)
        topic = next(f"x/{at}" for at in range(99) if partition_for_key(b"x/%d" % at, 8))
        await subscriber.subscribe((topic, 2))
        session = one.session("s")
        assert session is not None
        one.adapter.node.context.dirty.clear()
        name = one.partition("xs").topic.name
        await one.kernel.topics.add_partitions(name, 8)
        publisher = await one.client("p")
        await publisher.publish(topic, numbered(3), qos=2)
        await subscriber.messages(3)
        assert not one.partition("xs").log_end_offset, "it must be in a new partition"
        await one.restart(crash=True)
        back = await one.client("s", kept=True)
        assert payloads(await back.take(3)) == numbered(3)
        await back.silent()
