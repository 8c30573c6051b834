"""Random and mutated packets at a live MQTT endpoint: it answers or closes; nobody else notices.

Beside them: half packets, silence, a first packet that is no CONNECT.
"""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import silence
from tests.crash.silence import check_log, check_silence
from tests.support import mqtt_wire as wire
from tests.support.mqtt_gateway import MqttGateway
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import V3_1, V3_1_1, V5, Kind, Prop, Properties, WillMessage
from tests.support.proc import resident_bytes

pytestmark = pytest.mark.crash

PACKETS = 6_000
PACKETS_SOAK = 1_000_000
PACKETS_PER_CONNECTION = 20
ANSWER_S_MAX = 0.3
GROWTH_BYTES_MAX = 256 << 20
HANDSHAKE_S_MAX = 1
FRAME_S_MAX = 2
CLIENTS = 8
VERSIONS = (V3_1, V3_1_1, V5)


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


def valid_packets(version: int, chooser: random.Random) -> list[bytes]:
    """Return one of each packet that a client sends, with most of their fields."""
    is_5 = version == V5
    found: Properties = [
        (Prop.CONTENT_TYPE, "text/plain"),
        (Prop.RESPONSE_TOPIC, "answers"),
        (Prop.CORRELATION_DATA, b"\x00\xff"),
        (Prop.USER, ("name", "value")),
        (Prop.MESSAGE_EXPIRY, 60),
        (Prop.TOPIC_ALIAS, 3),
    ]
    will = WillMessage("fuzz/will", b"w", 1, properties=[(Prop.WILL_DELAY, 1)] if is_5 else ())
    topic = f"fuzz/{chooser.randrange(4)}"
    properties = found if is_5 else ()
    return [
        wire.connect("fuzz-again", version=version, will=will, username="u", password=b"p"),
        wire.publish(topic, b"zero", version=version, found=properties),
        wire.publish(topic, b"one", qos=1, packet_id=1, version=version, retain=True),
        wire.publish(topic, b"two", qos=2, packet_id=2, version=version, found=properties),
        wire.publish(topic, b"", qos=1, packet_id=3, version=version, retain=True),
        *(wire.ack(kind, 1) for kind in (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP)),
        wire.ack(Kind.PUBREL, 2, 0x92 if is_5 else None),
        wire.subscribe(4, [("fuzz/#", 2), ("+/+", 1)], version=version),
        wire.subscribe(5, [("$share/g/fuzz/+", 1), ("$SYS/#", 0)], version=version),
        wire.unsubscribe(6, ["fuzz/#", "none"], version=version),
        wire.PINGREQ,
        wire.disconnect(4 if is_5 else 0, version=version),
        wire.auth(0x19, [(Prop.AUTH_METHOD, "SCRAM-SHA-256"), (Prop.AUTH_DATA, b"n,,")]),
    ]


def mutated(packet: bytes, chooser: random.Random) -> bytes:
    """Return the packet with a few faults; its length mostly says the truth."""
    first = packet[0]
    at = next(index for index in range(1, 5) if packet[index] < 0x80) + 1
    body = bytearray(packet[at:])
    for _ in range(chooser.randrange(1, 4)):
        at = chooser.randrange(len(body)) if body else 0
        kind = chooser.randrange(6)
        if kind == 0 and body:
            body[at] ^= 1 << chooser.randrange(8)
        elif kind == 1:
            del body[at:]
        elif kind == 2:
            body[at:at] = chooser.randbytes(chooser.randrange(1, 16))
        elif kind == 3:
            edge = chooser.choice([b"\x00\x00", b"\xff\xff", b"\xed\xa0", b"\x80\x80\x80\x80"])
            body[at : at + len(edge)] = edge
        elif kind == 4:
            first ^= 1 << chooser.randrange(4)  # its flags
        else:
            first = chooser.randrange(256)  # another packet
    if chooser.randrange(20) == 0:
        body = bytearray(chooser.randbytes(chooser.randrange(200)))
    if chooser.randrange(10):
        return bytes([first]) + wire.varint(len(body)) + body
    length = chooser.choice([0, 1, 127, 128, 16_384, 268_435_455, 2 * len(body)])
    return bytes([first]) + wire.varint(length) + body


def thrown_at_once(chooser: random.Random) -> list[bytes]:
    """Return what one faulty client says: CONNECT, which mostly is in order, and more."""
    version = chooser.choice(VERSIONS)
    packets = valid_packets(version, chooser)
    connect = wire.connect(
        f"fuzz-{chooser.randrange(CLIENTS)}", version=version, clean=chooser.randrange(2) == 0
    )
    said = [connect if chooser.randrange(10) else mutated(connect, chooser)]
    for _ in range(PACKETS_PER_CONNECTION - 1):
        packet = chooser.choice(packets)
        said.append(packet if chooser.randrange(6) else mutated(packet, chooser))
    return said


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
        "one octet": connect[:1],
        "PUBLISH": wire.publish("t", b"x"),
        "PINGREQ": wire.PINGREQ,
        "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "TLS": bytes.fromhex("16030100c8010000c40303"),
    }
    clients = {name: gateway.client() for name in first_words}
    for name, octets in first_words.items():
        clients[name].send(octets)
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
        "adapters.mqtt.handshake_s_max": silence.HANDSHAKE_S_MAX,
        "log.level": "warning",
    }
    with MqttGateway(tmp_path / "data", settings) as gateway:
        healthy = Healthy(gateway)
        with healthy.client:
            check_silence(gateway, gateway.mqtt_port, healthy.check)
