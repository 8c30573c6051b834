"""Limits of MQTT before CONNACK: sizes, properties, and the bytes that are kept."""

from pathlib import Path

import pytest

from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.packets.framing import ConnectMax, PacketReader
from adapters.mqtt.wire import Auth, Connect, Subscribe
from gateway.config.admission import ListenersConfig
from tests.adapters.mqtt.live import DEADLINE_S, Client, Live, running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_gateway import MqttGateway
from tests.support.mqtt_wire import Kind, Prop, WillMessage
from tests.support.process_usage import resident_bytes
from tests.support.waiting import until, wait_until

MIB = 1024 * 1024
CONNECT_BYTES_MAX = 100_000
UNFINISHED = wire.connect("c", found=[(Prop.AUTH_DATA, bytes(60_000))])[:60_000]
"""A CONNECT that is not complete."""


def pairs(count: int) -> list[tuple[Prop, tuple[str, str]]]:
    return [(Prop.USER, ("", ""))] * count


async def test_a_large_connect_is_refused_before_it_has_come(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        whole = wire.connect("c", found=[*pairs(200_000)])
        client.send(whole[:100])
        assert await client.ended_with() == [(Kind.CONNACK, ReasonCode.PACKET_TOO_LARGE)]
        assert live.adapter.listener.faults["MqttError"] == 1


async def test_a_large_connect_of_3_1_1_is_closed_before_it_has_come(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client(version=4)
        client.send(wire.packet(Kind.CONNECT, bytes(CONNECT_BYTES_MAX))[:100])
        assert await client.ended_with() == []


@pytest.mark.parametrize("where", ["connect", "will"])
async def test_user_properties_before_a_login_are_bounded(tmp_path: Path, where: str) -> None:
    def connect(count: int) -> bytes:
        if where == "connect":
            return wire.connect("c", found=pairs(count))
        return wire.connect("c", will=WillMessage("w", b"", properties=pairs(count)))

    async with running(tmp_path, mqtt={"connect_properties_max": 5}) as live:
        refused = await live.client()
        refused.send(connect(6))
        assert await refused.ended_with() == [(Kind.CONNACK, ReasonCode.QUOTA_EXCEEDED)]
        welcome = await live.client()
        welcome.send(connect(5))
        assert (await welcome.receive(Kind.CONNACK)).code == 0


def new_reader() -> PacketReader:
    return PacketReader(MIB, connect_max=ConnectMax(CONNECT_BYTES_MAX, 5))


def test_nothing_behind_connect_is_decoded_before_the_login() -> None:
    reader = new_reader()
    behind = wire.subscribe(1, [("a", 0)])
    assert [type(one) for one in reader.receive(wire.connect("c") + behind)] == [Connect]
    assert reader.is_cut
    assert reader.receive(b"") == []
    reader.admit()
    assert [type(one) for one in reader.receive(b"")] == [Subscribe]
    assert not reader.is_cut


def test_one_auth_is_decoded_for_each_that_was_asked_for() -> None:
    reader = new_reader()
    auth = wire.auth(0x18, [(Prop.AUTH_METHOD, "SCRAM-SHA-256")])
    reader.receive(wire.connect("c", found=[(Prop.AUTH_METHOD, "SCRAM-SHA-256")]))
    assert reader.receive(auth + auth) == []
    reader.expect_auth()
    assert [type(one) for one in reader.receive(b"")] == [Auth]
    assert reader.receive(b"") == []


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        (wire.auth(0x18, [(Prop.AUTH_METHOD, "m"), *pairs(6)]), ReasonCode.QUOTA_EXCEEDED),
        (wire.disconnect(0, found=pairs(6)), ReasonCode.QUOTA_EXCEEDED),
        (wire.auth(0x18, pairs(50_000))[:50], ReasonCode.PACKET_TOO_LARGE),
        (wire.publish("a", b"x"), ReasonCode.PROTOCOL_ERROR),
    ],
)
def test_what_comes_instead_of_auth_is_bounded_too(packet: bytes, code: ReasonCode) -> None:
    reader = new_reader()
    reader.receive(wire.connect("c", found=[(Prop.AUTH_METHOD, "m")]))
    reader.expect_auth()
    assert reader.receive(packet) == []
    assert isinstance(reader.error, MqttError)
    assert reader.error.reason_code == code


async def test_what_was_sent_behind_connect_is_served_after_the_login(tmp_path: Path) -> None:
    async with running(tmp_path, users=("anna",)) as live:
        client = await live.client()
        client.send(
            wire.connect("c", username="anna", password=b"password"),
            wire.subscribe(1, [("a", 0)]),
            wire.publish("a", b"x"),
        )
        assert (await client.receive(Kind.CONNACK)).code == 0
        assert (await client.receive(Kind.SUBACK)).codes == [0]
        assert (await client.receive(Kind.PUBLISH)).payload == b"x"


# --- what is kept of strangers


async def stranger(live: Live) -> Client:
    """Return a client of whose CONNECT so much is kept as is there, if it is not closed."""
    client = await live.client()
    client.send(UNFINISHED)
    return client


def kept_bytes(live: Live) -> int:
    return live.kernel.admission.unauthenticated_bytes


@pytest.mark.parametrize(
    "key", ["unauthenticated_bytes_per_ip_budget", "unauthenticated_bytes_budget"]
)
async def test_what_is_kept_of_strangers_is_bounded(tmp_path: Path, key: str) -> None:
    config = ListenersConfig.model_validate({key: MIB})
    async with running(tmp_path) as live:
        live.kernel.admission.config = config
        held = [await stranger(live) for _ in range(MIB // len(UNFINISHED))]
        await until(lambda: kept_bytes(live) == len(held) * len(UNFINISHED))
        one_more = await stranger(live)
        assert await one_more.ended_with() == []
        assert live.adapter.listener.faults["TooMuchBeforeLogin"] == 1
        await until(lambda: kept_bytes(live) == len(held) * len(UNFINISHED))
        assert await live.connected("small ones get in")
        held.pop().writer.close()
        await until(lambda: kept_bytes(live) == len(held) * len(UNFINISHED))
        await stranger(live)
        await until(lambda: kept_bytes(live) == (len(held) + 1) * len(UNFINISHED))


async def test_bytes_count_as_they_come_not_as_they_are_announced(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(UNFINISHED[:1_000])
        await until(lambda: kept_bytes(live) == 1_000)
        client.send(UNFINISHED[1_000:1_500])
        await until(lambda: kept_bytes(live) == 1_500)


async def test_nothing_is_counted_of_who_has_logged_in(tmp_path: Path) -> None:
    large = wire.publish("a", bytes(500_000))
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(wire.connect("c")[:8])
        await until(lambda: kept_bytes(live) == 8)
        client.send(wire.connect("c")[8:], large[:400_000])
        await client.receive(Kind.CONNACK)
        connection: MqttConnection = live.connection()
        await until(lambda: connection.bytes_received > 400_000)
        assert kept_bytes(live) == 0


@pytest.mark.crash
def test_five_hundred_unfinished_connects_take_little_memory(tmp_path: Path) -> None:
    whole = wire.connect("c", found=pairs(200_000))
    with MqttGateway(tmp_path / "data") as gateway:
        with gateway.client() as client:
            client.connect("first")
        idle_bytes = resident_bytes(gateway.pid)
        clients = [gateway.client() for _ in range(500)]
        for client in clients:
            client.send(whole[:90_000])
        wait_until(
            lambda: gateway.metric("headgate_peer_faults_total") >= 500,
            within_s=DEADLINE_S,
            what="all are refused",
        )
        assert resident_bytes(gateway.pid) - idle_bytes < 32 * MIB
        for client in clients:
            client.drop()
