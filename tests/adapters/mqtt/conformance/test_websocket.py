"""Chapter 6: MQTT over WebSocket."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.adapters.mqtt.conformance.conftest import Rig
from tests.support import mqtt_wire as wire
from tests.support.mqtt_target import OWN, STRICT
from tests.support.mqtt_wire import Kind

ANSWER_S_MAX = 30.0
Opener = Callable[..., Connection]


@pytest.fixture
def opened(rig: Rig) -> Iterator[Opener]:
    """Open connections, ended after the test."""
    target = rig.target
    with ExitStack() as stack:

        def open_one(*names: str, path: str = target.websocket_path) -> Connection:
            uri = f"ws://127.0.0.1:{target.websocket_port}{path}"
            names = names or ("mqtt",)
            return stack.enter_context(
                connect(uri, subprotocols=list(names), open_timeout=ANSWER_S_MAX)  # type: ignore[arg-type]  # plain names
            )

        yield open_one


def receive_exactly(socket: Connection, count: int) -> bytes:
    """Return the next bytes, of however many frames; each must be binary."""
    data = b""
    while len(data) < count:
        frame = socket.recv(timeout=ANSWER_S_MAX)
        assert isinstance(frame, bytes)
        data += frame
    return data


def is_closed(socket: Connection) -> bool:
    try:
        while True:
            socket.recv(timeout=ANSWER_S_MAX)
    except ConnectionClosed:
        return True
    except TimeoutError:
        return False


def test_the_server_selects_mqtt(opened: Opener) -> None:
    """5.0: 6.0.0-4. 3.1.1: 6.0.0-4."""
    assert opened("other", "mqtt").subprotocol == "mqtt"


def test_packets_come_in_binary_frames(rig: Rig, opened: Opener) -> None:
    """5.0: 6.0.0-1. 3.1.1: 6.0.0-1."""
    socket = opened()
    socket.send(wire.connect(rig.name(), version=4))
    assert receive_exactly(socket, 4) == b"\x20\x02\x00\x00"


@STRICT
def test_a_text_frame_closes(rig: Rig, opened: Opener) -> None:
    """5.0: 6.0.0-1. 3.1.1: 6.0.0-1."""
    socket = opened()
    socket.send(wire.connect(rig.name(), version=4))
    receive_exactly(socket, 4)
    socket.send("text")
    assert is_closed(socket)


def test_packets_need_not_end_where_frames_do(rig: Rig, opened: Opener) -> None:
    """5.0: 6.0.0-2. 3.1.1: 6.0.0-2."""
    socket = opened()
    data = wire.connect(rig.name(), version=4) + wire.PINGREQ + wire.PINGREQ
    for at in range(0, len(data), 5):
        socket.send(data[at : at + 5])
    assert receive_exactly(socket, 8) == b"\x20\x02\x00\x00\xd0\x00\xd0\x00"

    subscribed = wire.subscribe(1, [(rig.topic(), 0)], version=4)
    published = wire.publish(rig.topic(), b"x", version=4)
    socket.send(subscribed + published + wire.PINGREQ)
    suback = wire.packet(Kind.SUBACK, b"\0\1\0")
    assert receive_exactly(socket, len(suback) + len(published) + 2).startswith(suback)


def test_a_protocol_error_closes(rig: Rig, opened: Opener) -> None:
    """5.0: 4.13.1-1. 3.1.1: 4.8.0-1."""
    socket = opened()
    socket.send(wire.connect(rig.name(), version=4) * 2)
    receive_exactly(socket, 4)
    assert is_closed(socket)


@OWN
def test_a_client_that_does_not_offer_mqtt_is_refused(opened: Opener) -> None:
    """5.0: 6.0.0-3, 6.0.0-4. 3.1.1: 6.0.0-3, 6.0.0-4."""
    with pytest.raises(InvalidStatus):
        opened("other")


@OWN
def test_another_path_is_refused(opened: Opener) -> None:
    """The listener serves one path."""
    with pytest.raises(InvalidStatus):
        opened(path="/other")


def test_a_client_that_waits_for_each_acknowledgement_gets_it(rig: Rig, opened: Opener) -> None:
    """5.0: 6.0.0-1, 4.3.2-4. Cut anywhere, and with others in between."""
    socket = opened()
    socket.send(wire.connect(rig.name(), version=4))
    receive_exactly(socket, 4)
    topic = rig.topic()
    for packet_id in range(1, 12):
        packet = wire.publish(topic, b"x", qos=1, packet_id=packet_id, version=4)
        pieces = [packet[:9], packet[9:]] if packet_id % 4 == 0 else [packet]
        for piece in pieces:
            socket.send(piece)
        assert receive_exactly(socket, 4) == wire.ack(Kind.PUBACK, packet_id)
        if packet_id % 5 == 0:
            socket.send(wire.PINGREQ)
            assert receive_exactly(socket, 2) == b"\xd0\x00"
