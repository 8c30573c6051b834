"""Random and mutated packets at a live MQTT endpoint: it answers or closes; nobody else notices.

Beside them: half packets, silence, a first packet that is no CONNECT.
"""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import silent_connections
from tests.crash.silent_connections import check_log, check_silence
from tests.support import mqtt_wire as wire
from tests.support.hostile.mqtt import PACKETS_PER_CONNECTION, thrown_at_once
from tests.support.mqtt_gateway import MqttGateway
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import Kind
from tests.support.process_usage import resident_bytes

pytestmark = pytest.mark.crash

PACKETS = 6_000
PACKETS_SOAK = 1_000_000
ANSWER_S_MAX = 0.3
GROWTH_BYTES_MAX = 256 << 20
HANDSHAKE_S_MAX = 1
FRAME_S_MAX = 2


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[MqttGateway]:
    settings = {
        "adapters.mqtt.handshake_s_max": HANDSHAKE_S_MAX,
        "adapters.mqtt.frame_s_max": FRAME_S_MAX,
        "log.level": "warning",
    }
    with MqttGateway(tmp_path / "data", settings) as running:
        yield running


class Healthy:
    """A connection that publishes and gets back, whatever happens around it."""

    def __init__(self, gateway: MqttGateway) -> None:
        self.client: RawClient = gateway.client()
        self.client.connect("healthy", keep_alive_s=60)
        self.client.subscribe(("healthy/topic", 1))
        self.count = 0

    def check(self) -> None:
        """Publish a message and take it."""
        payload = b"%d" % self.count
        self.count += 1
        self.client.send(wire.publish("healthy/topic", payload, qos=1, packet_id=1))
        came = [self.client.receive(), self.client.receive()]
        assert {packet.kind for packet in came} == {Kind.PUBACK, Kind.PUBLISH}, came
        message = next(packet for packet in came if packet.kind is Kind.PUBLISH)
        assert (message.payload, message.dup) == (payload, False)
        self.client.send(wire.ack(Kind.PUBACK, message.packet_id))


def throw(port: int, packets: list[bytes]) -> None:
    """Send packets and PINGREQ; read until that is answered, or the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX) as connection:
        try:
            connection.sendall(b"".join(packets) + wire.PINGREQ)
            while data := connection.recv(1 << 16):
                if data.endswith(b"\xd0\x00"):
                    return
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            return  # it waits for the rest of a packet, or has closed; both are answers


def throw_many(gateway: MqttGateway, *, count: int) -> None:
    pid = gateway.pid
    before_bytes = resident_bytes(pid)
    seed = random.SystemRandom().randrange(1 << 32)
    chooser = random.Random(seed)
    healthy = Healthy(gateway)
    with healthy.client:
        for thrown in range(0, count, PACKETS_PER_CONNECTION):
            try:
                throw(gateway.mqtt_port, thrown_at_once(chooser))
                if thrown % (10 * PACKETS_PER_CONNECTION) == 0:
                    healthy.check()
            except (AssertionError, OSError) as error:
                pytest.fail(f"seed {seed}, {thrown} packets: {error!r}")
        healthy.check()
    assert gateway.pid == pid
    growth_bytes = resident_bytes(pid) - before_bytes
    assert growth_bytes < GROWTH_BYTES_MAX, f"seed {seed}: grew by {growth_bytes} bytes"
    check_log(gateway, f"seed {seed}")


def test_faulty_packets_harm_nobody_else(gateway: MqttGateway) -> None:
    throw_many(gateway, count=PACKETS)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_a_million_faulty_packets_harm_nobody_else(gateway: MqttGateway) -> None:
    throw_many(gateway, count=PACKETS_SOAK)


def test_who_says_nothing_half_or_wrong_at_first_is_closed(gateway: MqttGateway) -> None:
    # MQTT-3.1.0-1, section 3.1.4: no CONNECT within a reasonable time
    healthy = Healthy(gateway)
    connect = wire.connect("half")
    first_words = {
        "silence": b"",
        "half a CONNECT": connect[:-3],
        "one byte": connect[:1],
        "PUBLISH": wire.publish("t", b"x"),
        "PINGREQ": wire.PINGREQ,
        "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "TLS": bytes.fromhex("16030100c8010000c40303"),
    }
    clients = {name: gateway.client() for name in first_words}
    for name, data in first_words.items():
        clients[name].send(data)
    with healthy.client:
        healthy.check()
        for name, client in clients.items():
            with client:
                came = client.until_closed(within_s=HANDSHAKE_S_MAX + 30)
                assert all(packet.kind is Kind.CONNACK for packet in came), name
                assert all(packet.code for packet in came), name
            healthy.check()


def test_half_a_packet_of_a_connected_client_has_its_time(gateway: MqttGateway) -> None:
    healthy = Healthy(gateway)
    with healthy.client, gateway.client() as slow:
        slow.connect("slow")
        slow.send(wire.publish("t", b"x" * 100, qos=1)[:-50])
        came = slow.until_closed(within_s=FRAME_S_MAX + 30)
        assert [packet.kind for packet in came] in ([], [Kind.DISCONNECT])
        healthy.check()


@pytest.mark.soak
def test_ten_thousand_silent_connections_harm_nobody(tmp_path: Path) -> None:
    settings = {
        "adapters.mqtt.handshake_s_max": silent_connections.HANDSHAKE_S_MAX,
        "log.level": "warning",
    }
    with MqttGateway(tmp_path / "data", settings) as gateway:
        healthy = Healthy(gateway)
        with healthy.client:
            check_silence(gateway, gateway.mqtt_port, healthy.check)
