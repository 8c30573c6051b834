"""Ends of connections: by either side, by silence, by a drain; and the reason each side gets."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adapters.mqtt.connection.keep_alive import silence_s_max
from gateway.listener import SWEEP_S
from tests.adapters.mqtt.live import Client, Live, running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop, WillMessage
from tests.support.waiting import until

WILL = WillMessage("will", b"gone")


async def watching(live: Live, **options: Any) -> tuple[Client, Client]:
    """Return a subscriber to the will, and the client that has it."""
    watcher = await live.connected("watcher")
    watcher.send(wire.subscribe(1, [("will", 0)]))
    await watcher.receive(Kind.SUBACK)
    return watcher, await live.connected("c", will=WILL, **options)


async def has_will_come(watcher: Client) -> bool:
    """Say what came before the answer to a ping."""
    watcher.send(wire.PINGREQ)
    found = await watcher.next()
    assert found is not None
    return found.kind is Kind.PUBLISH


@pytest.mark.parametrize(("code", "comes"), [(0x00, False), (0x04, True), (0x80, True)])
async def test_only_a_normal_disconnect_takes_the_will_along(
    tmp_path: Path, code: int, *, comes: bool
) -> None:
    """MQTT-3.14.4-3, MQTT-3.1.2-10."""
    async with running(tmp_path) as live:
        watcher, client = await watching(live)
        client.send(wire.disconnect(code))
        assert await client.ended_with() == []
        assert await has_will_come(watcher) is comes


async def test_a_session_that_ends_with_its_connection_cannot_be_kept_later(
    tmp_path: Path,
) -> None:
    """Section 3.14.2.2.2."""
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.disconnect(0, found=[(Prop.SESSION_EXPIRY, 5)]))
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x82)]


@pytest.mark.parametrize(("expiry_s", "is_present"), [(0, False), (30, True)])
async def test_disconnect_may_change_how_long_a_session_is_kept(
    tmp_path: Path, expiry_s: int, *, is_present: bool
) -> None:
    async with running(tmp_path) as live:
        first = await live.connected(clean=False, found=[(Prop.SESSION_EXPIRY, 60)])
        first.send(wire.disconnect(0, found=[(Prop.SESSION_EXPIRY, expiry_s)]))
        assert await first.ended_with() == []
        again = await (await live.client()).connect(clean=False)
        assert again.session_present is is_present


@pytest.mark.parametrize(("version", "said"), [(V5, [(Kind.DISCONNECT, 0x8E)]), (V3_1_1, [])])
async def test_a_connection_that_is_taken_over_is_told_so(
    tmp_path: Path, version: int, said: list[tuple[Kind, int]]
) -> None:
    """MQTT-3.1.4-3."""
    async with running(tmp_path) as live:
        old = await live.connected("same", version=version)
        await live.connected("same", version=version)
        assert await old.ended_with() == said


@pytest.mark.parametrize("version", [V3_1_1, V5])
async def test_a_second_connect_is_a_protocol_error(tmp_path: Path, version: int) -> None:
    """MQTT-3.1.0-2."""
    async with running(tmp_path) as live:
        client = await live.connected(version=version)
        client.send(wire.connect("c", version=version))
        came = await client.ended_with()
        assert came == ([(Kind.DISCONNECT, 0x82)] if version == V5 else [])


async def test_what_came_before_an_error_is_served(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.PINGREQ, b"\xf7\x00")
        assert [kind for kind, _ in await client.ended_with()] == [
            Kind.PINGRESP, Kind.DISCONNECT,
        ]  # fmt: skip


async def test_one_clients_fault_is_no_others(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        good, bad = await live.connected("good"), await live.connected("bad")
        bad.send(b"\x00\x00")
        await bad.ended_with()
        good.send(wire.PINGREQ)
        await good.receive(Kind.PINGRESP)


async def test_silence_of_one_and_a_half_keep_alives_is_the_end(tmp_path: Path) -> None:
    """MQTT-3.1.2-22, on both sides of the edge; the listener's clock is moved by hand."""
    async with running(tmp_path) as live:
        watcher, client = await watching(live, keep_alive_s=10)
        [gone] = [
            one
            for one in live.adapter.listener.connections
            if one.describe()["client_id"] == "c"
        ]
        heard_s = gone.last_received_s
        gone.check_deadlines(heard_s + 15)
        assert not gone.is_closing
        gone.check_deadlines(heard_s + 15 + SWEEP_S + 0.1)
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x8D)]
        assert await has_will_come(watcher)


async def test_without_a_keep_alive_silence_is_allowed(tmp_path: Path) -> None:
    """Section 3.1.2.10: idle_s_max is not for MQTT."""
    assert silence_s_max(0) is None
    async with running(tmp_path, mqtt={"idle_s_max": 1}) as live:
        await live.connected(keep_alive_s=0)
        connection = live.connection()
        connection.check_deadlines(connection.last_received_s + 100_000)
        assert not connection.is_closing


async def test_a_half_packet_meets_its_deadline(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"frame_s_max": 1}) as live:
        client = await live.connected()
        client.send(wire.publish("a", bytes(100))[:50])
        assert [kind for kind, _ in await client.ended_with()] == []
        assert live.adapter.listener.faults["frame_s_max"] == 1


@pytest.mark.parametrize(
    ("reference", "version", "code"),
    [("", V5, 0x8B), ("other:1883", V5, 0x9C), ("other:1883", V3_1_1, None)],
)
async def test_a_drain_acknowledges_and_sends_away(
    tmp_path: Path, reference: str, version: int, code: int | None
) -> None:
    async with running(tmp_path, mqtt={"server_reference": reference}) as live:
        client = await live.connected(version=version)
        live.storage.held = True
        client.send(wire.publish("a", b"x", qos=1, version=version), wire.PINGREQ)
        await client.receive(Kind.PINGRESP)
        drained = asyncio.ensure_future(live.adapter.drain(5))
        await asyncio.get_running_loop().run_in_executor(None, int)
        live.storage.release()
        await client.receive(Kind.PUBACK)
        last = await client.next()
        if code is None:
            assert last is None
        else:
            assert last is not None
            assert (last.kind, last.code) == (Kind.DISCONNECT, code)
            assert last.value(Prop.SERVER_REFERENCE) == (reference or None)
        await drained


async def test_a_receiver_that_is_cut_off_is_told_why(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.connected()
        live.connection().quota_exceeded()
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x97)]


@pytest.mark.parametrize(("bytes_max", "is_read"), [(64 << 20, True), (65_536, False)])
async def test_a_slow_receiver_is_read_from_until_too_much_waits_for_it(
    tmp_path: Path, bytes_max: int, *, is_read: bool
) -> None:
    """Its acknowledgements are what makes room; its own requests must not pile up answers."""
    size_bytes = 32 << 20
    limits = {"receiver_bytes_max": bytes_max, "receiver_bytes_hard_max": 128 << 20}
    async with running(tmp_path, mqtt=limits) as live:
        client = await live.connected()
        connection, counters = live.connection(), live.adapter.node.counters
        connection.send(bytes(size_bytes))
        await until(lambda: not connection.is_writable)
        before = counters.messages_received
        client.send(wire.PINGREQ)
        await until(lambda: counters.messages_received > before)
        client.send(wire.PINGREQ)
        if is_read:
            await until(lambda: counters.messages_received > before + 1)
        assert connection.is_held_but_for() is not is_read
        await client.reader.readexactly(size_bytes)
        for _ in range(2):
            await client.receive(Kind.PINGRESP)
