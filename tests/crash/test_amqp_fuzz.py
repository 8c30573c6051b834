"""Random and mutated frames at a live AMQP endpoint, and clients that take more than they should.

It answers or closes, its memory stays bounded, and a client beside them goes on.
"""

import random
import socket
from collections.abc import Iterator

import pytest

from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.framing import encode_frame, encode_method_frame
from adapters.amqp.v091.methods.basic import (
    BasicAck,
    BasicConsumeOk,
    BasicPublish,
    BasicQos,
    BasicQosOk,
)
from adapters.amqp.v091.methods.confirm import ConfirmSelect, ConfirmSelectOk
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from adapters.amqp.v091.properties import Properties, encode_properties
from gateway.testing.ports import free_port
from tests.adapters.amqp.conformance.methods import consume, declare
from tests.crash.silent_connections import check_log
from tests.support.amqp_raw import Closed, RawAmqp
from tests.support.gateway import Gateway
from tests.support.hostile.amqp import FRAMES_PER_CONNECTION, LAST, is_answered, thrown_at_once
from tests.support.process_usage import resident_bytes

pytestmark = pytest.mark.crash

FRAMES = 3_000
FRAMES_SOAK = 1_000_000
ANSWER_S_MAX = 0.3
GROWTH_BYTES_MAX = 256 << 20
CHURN = 1_000
DEEP = 1_000


class Node:
    """A gateway with AMQP, and a client whose messages come back whatever happens around it."""

    def __init__(self, gateway: Gateway, port: int) -> None:
        self.gateway = gateway
        self.port = port
        self._clients: list[RawAmqp] = []
        self.healthy = self.client()
        self.healthy.ask(1, declare("healthy"), QueueDeclareOk)
        self.healthy.ask(1, ConfirmSelect(nowait=False), ConfirmSelectOk)
        self.healthy.channel(2)
        self.healthy.ask(2, consume("healthy", no_ack=True), BasicConsumeOk)
        self._count = 0

    def client(self) -> RawAmqp:
        client = RawAmqp(self.port).open()
        self._clients.append(client)
        client.channel(1)
        return client

    def close(self) -> None:
        """End all connections."""
        for client in self._clients:
            client.close()

    def check(self) -> None:
        """Publish a message, and take its confirm and the message."""
        body = b"%d" % self._count
        self._count += 1
        self.healthy.publish(1, "healthy", body)
        came: list[bytes] = []
        for _ in range(4):  # the confirm, and three frames of a delivery
            frame = self.healthy.read_frame()
            came += [frame.payload] if frame.kind == 3 else []
        assert came == [body]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, int]]:
    """A gateway, and the port of AMQP."""
    port = free_port()
    settings = {"adapters.amqp.bind": f"127.0.0.1:{port}", "log.level": "warning"}
    with Gateway(tmp_path_factory.mktemp("amqp-fuzz") / "data", settings) as gateway:
        yield gateway, port


@pytest.fixture
def node(running: tuple[Gateway, int]) -> Iterator[Node]:
    node = Node(*running)
    yield node
    node.check()
    node.close()
    check_log(node.gateway, "a client at fault")


def throw(port: int, frames: list[bytes]) -> None:
    """Send frames and a close; read until that is answered, or the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX) as connection:
        try:
            connection.sendall(b"".join(frames) + LAST)
            tail = b""
            while data := connection.recv(1 << 16):
                tail = (tail + data)[-64:]
                if is_answered(tail):
                    return
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            return  # it waits for the rest of a frame, or has closed; both are answers


def throw_many(node: Node, *, count: int) -> None:
    pid = node.gateway.pid
    before_bytes = resident_bytes(pid)
    seed = random.SystemRandom().randrange(1 << 32)
    chooser = random.Random(seed)
    for thrown in range(0, count, FRAMES_PER_CONNECTION):
        try:
            throw(node.port, thrown_at_once(chooser))
            if thrown % (10 * FRAMES_PER_CONNECTION) == 0:
                node.check()
        except (AssertionError, OSError, Closed) as error:
            pytest.fail(f"seed {seed}, {thrown} frames: {error!r}")
    assert node.gateway.pid == pid
    growth_bytes = resident_bytes(pid) - before_bytes
    assert growth_bytes < GROWTH_BYTES_MAX, f"seed {seed}: grew by {growth_bytes} bytes"
    check_log(node.gateway, f"seed {seed}")


def test_faulty_frames_harm_nobody_else(node: Node) -> None:
    throw_many(node, count=FRAMES)


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_a_million_faulty_frames_harm_nobody_else(node: Node) -> None:
    throw_many(node, count=FRAMES_SOAK)


# --- more than anybody needs


def nested(depth: int) -> bytes:
    """Return the bytes of a table in a table in a table."""
    data = (0).to_bytes(4, "big")
    for _ in range(depth):
        body = b"\x01kF" + data
        data = len(body).to_bytes(4, "big") + body
    return data


def test_tables_within_each_other(node: Node) -> None:
    client = node.client()
    publish = BasicPublish(0, "", "healthy", mandatory=False, immediate=False)
    header = (60).to_bytes(2, "big") + bytes(2) + bytes(8) + b"\x20\x00" + nested(DEEP)
    client.send_bytes(encode_method_frame(1, publish) + encode_frame(2, 1, header))
    assert client.closed().startswith("connection 50")
    node.check()


def test_header_of_ten_megabytes(node: Node) -> None:
    before_bytes = resident_bytes(node.gateway.pid)
    client = node.client()
    headers = Table([("big", Field("x", bytes(10 << 20)))])
    properties = encode_properties(Properties(headers=headers))
    client.publish(1, "healthy", b"x", properties=properties)
    assert client.closed().startswith("connection 501 FRAME_ERROR")
    node.check()
    assert resident_bytes(node.gateway.pid) - before_bytes < 64 << 20


def filled(node: Node, queue: str, count: int, body: bytes) -> None:
    """Fill a queue, and wait for the confirms."""
    publisher = node.client()
    publisher.ask(1, declare(queue), QueueDeclareOk)
    publisher.ask(1, ConfirmSelect(nowait=False), ConfirmSelectOk)
    for _ in range(count):
        publisher.publish(1, queue, body)
    acked = 0
    while acked < count:
        answer = publisher.read()
        assert isinstance(answer, BasicAck)
        acked = max(acked, answer.delivery_tag)
    publisher.close()


def test_consumer_that_never_acknowledges(node: Node) -> None:
    filled(node, "kept", 20_000, b"x" * 100)
    before_bytes = resident_bytes(node.gateway.pid)
    hoarder = node.client()
    hoarder.ask(1, BasicQos(0, 0, global_=False), BasicQosOk)
    hoarder.ask(1, consume("kept"), BasicConsumeOk)
    for _ in range(20_000):
        hoarder.read_message()
    assert resident_bytes(node.gateway.pid) - before_bytes < 64 << 20
    node.check()
    hoarder.close()
    other = node.client()
    other.ask(1, consume("kept", no_ack=True), BasicConsumeOk)
    assert {other.read_message().body for _ in range(100)} == {b"x" * 100}
    other.close()


def test_client_that_stops_reading(node: Node) -> None:
    filled(node, "large", 400, bytes(200_000))
    before_bytes = resident_bytes(node.gateway.pid)
    silent = [node.client() for _ in range(4)]
    for client in silent:
        client.send(1, consume("large"))
    for _ in range(20):
        node.check()
    assert resident_bytes(node.gateway.pid) - before_bytes < 64 << 20
    for client in silent:
        client.close()


def test_many_connections_with_exclusive_queues(node: Node) -> None:
    node.check()
    before_bytes = resident_bytes(node.gateway.pid)
    for number in range(CHURN):
        client = node.client()
        client.ask(1, declare("", exclusive=True, durable=False), QueueDeclareOk)
        client.close()
        if number % 50 == 0:
            node.check()
    assert resident_bytes(node.gateway.pid) - before_bytes < 128 << 20
