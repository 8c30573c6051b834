"""``$delayed/<seconds>/<topic>``: kept when acknowledged, published when its time has come."""

import asyncio
from pathlib import Path

import pytest

from tests.adapters.mqtt.disk_faults import full_disk
from tests.adapters.mqtt.restartable_node import (
    RestartableNode,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop
from tests.support.waiting import until


async def due(one: RestartableNode, after_ms: int) -> None:
    """Let time pass, and see that what is due then is in the log."""
    one.clock.advance(after_ms)
    delays = one.kernel.delays
    delays.run()
    await until(lambda: not delays.is_busy)


@pytest.mark.parametrize("version", [V3_1_1, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_comes_when_it_is_due_and_not_before(
    tmp_path: Path, qos: int, version: int
) -> None:
    async with restartable_node(tmp_path) as one:
        reader = await one.client("reader", version=version)
        await reader.subscribe(("a/#", 2))
        writer = await one.client("writer", version=version)

        await writer.publish("$delayed/5/a/b", [b"1", b"2"], qos=qos)
        await writer.silent()
        await until(lambda: one.kernel.delays.total == 2)
        await due(one, 4_999)
        await reader.silent()
        await due(one, 1)

        found = await reader.take(2)
        assert payloads(found) == [b"1", b"2"]
        assert {(message.topic, message.qos) for message in found} == {("a/b", qos)}
        assert one.kernel.delays.total == 0


async def test_what_was_said_twice_comes_once(tmp_path: Path) -> None:
    """MQTT-4.3.3: QoS 2 holds for what waits as for all else."""
    async with restartable_node(tmp_path) as one:
        reader = await one.client("reader")
        await reader.subscribe(("a", 2))
        writer = await one.client("writer", kept=True)
        packet = wire.publish("$delayed/5/a", b"x", qos=2, packet_id=7)
        writer.send(packet)
        await writer.receive(Kind.PUBREC)
        await writer.drop()
        await one.gone("writer")
        await one.restart(crash=True)
        reader = await one.client("reader")
        await reader.subscribe(("a", 2))
        writer = await one.client("writer", kept=True)

        writer.send(wire.publish("$delayed/5/a", b"x", qos=2, packet_id=7, dup=True))
        await writer.receive(Kind.PUBREC)
        await due(one, 5_000)

        assert payloads(await reader.take(1)) == [b"x"]
        await reader.silent()


async def test_a_retained_message_is_retained_when_it_is_due(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        writer = await one.client("writer")
        await writer.publish("$delayed/5/a", [b"x"], qos=1, retain=True)
        early = await one.client("early")
        await early.subscribe(("a", 1))
        await early.silent()

        await due(one, 5_000)
        [live] = await early.take(1)
        late = await one.client("late")
        await late.subscribe(("a", 1))

        [found] = await late.take(1)
        assert (live.retain, found.retain, found.payload) == (False, True, b"x")


@pytest.mark.parametrize("qos", [0, 1])
async def test_it_comes_and_is_retained_also_when_its_feed_has_to_read_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    """A delayed message is not delivered before the log has it, unlike QoS 0 without a delay."""
    async with restartable_node(tmp_path) as one:
        reader = await one.client("reader")
        await reader.subscribe(("a", 1))
        writer = await one.client("writer")
        await writer.publish("$delayed/5/a", [b"x"], qos=qos, retain=True)
        await until(lambda: one.kernel.delays.total == 1)
        monkeypatch.setattr("gateway.tail.TAIL_LIVE_BYTES_MAX", 1)  # a tail that is behind

        await due(one, 5_000)
        found = await reader.take(1)
        late = await one.client("late")
        await late.subscribe(("a", 1))
        retained = await late.take(1)

        assert payloads(found) == payloads(retained) == [b"x"]


async def test_its_expiry_interval_begins_when_it_is_due(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        reader = await one.client("reader", kept=True)
        await reader.subscribe(("a", 1))
        writer = await one.client("writer")
        expiry = [(Prop.MESSAGE_EXPIRY, 3)]
        await writer.publish("$delayed/5/a", [b"x"], qos=1, found=expiry)
        await writer.publish("$delayed/6/a", [b"y"], qos=1, found=expiry)

        await due(one, 5_000)
        assert payloads(await reader.take(1)) == [b"x"]
        await reader.drop()
        await one.gone("reader")
        await due(one, 1_000)
        await one.delivered()
        one.clock.advance(3_000)
        reader = await one.client("reader", kept=True)
        await reader.silent()


async def test_a_full_disk_acknowledges_nothing(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        writer = await one.client("writer")
        with full_disk(one):
            writer.send(wire.publish("$delayed/5/a", b"x", qos=1, packet_id=1))
            code = (await writer.receive(Kind.PUBACK)).code

        assert code == 0x97
        assert one.kernel.delays.total == 0


async def test_more_than_its_bound_is_refused(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        writer = await one.client("writer")
        writer.send(wire.publish("$delayed/9999999999/a", b"x", qos=1, packet_id=1))

        assert (await writer.receive(Kind.PUBACK)).code == 0x97
        assert one.kernel.delays.total == 0


async def test_a_will_may_wait_too(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        reader = await one.client("reader")
        await reader.subscribe(("a", 1))
        dying = await one.client("dying", will=wire.WillMessage("$delayed/5/a", b"gone", qos=1))
        await dying.drop()
        await until(lambda: one.kernel.delays.total == 1)

        await due(one, 5_000)

        assert payloads(await reader.take(1)) == [b"gone"]


async def test_it_waits_for_what_is_durable(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        writer = await one.client("writer")
        one.live.storage.held = True
        writer.send(wire.publish("$delayed/0/a", b"x", qos=1, packet_id=1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await writer.receive(Kind.PUBACK)

        one.live.storage.release()

        await writer.receive(Kind.PUBACK)
