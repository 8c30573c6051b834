"""Mutated requests at a live SQS endpoint: it answers or closes; nobody else notices.

Beside them: silence, half requests, heads and bodies that never end, many silent connections.
"""

import random
import re
import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from tests.crash import silent_connections
from tests.crash.silent_connections import check_log, check_silence
from tests.support.hostile.sqs import QUEUES, thrown_at_once
from tests.support.process_usage import resident_bytes
from tests.support.sqs_gateway import SqsGateway
from tests.support.sqs_raw import Gone, JsonClient, Refused, exchange

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("sqs-fuzz")]

REQUESTS = 6_000
REQUESTS_SOAK = 1_000_000
REQUESTS_PER_CONNECTION = 8  # most faults end the connection
CONNECTIONS_PER_CHECK = 20
ANSWER_S_MAX = 0.5
GROWTH_BYTES_MAX = 256 << 20
HANDSHAKE_S_MAX = 1
FRAME_S_MAX = 2
POURED_S_MAX = FRAME_S_MAX + 30
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsGateway]:
    folder = tmp_path_factory.mktemp("sqs-fuzz")
    settings = {
        "adapters.sqs.handshake_s_max": HANDSHAKE_S_MAX,
        "adapters.sqs.frame_s_max": FRAME_S_MAX,
        "adapters.sqs.deleted_name_s": 0,  # what a faulty client deletes is made again
        "adapters.sqs.purge_s": 0,
        # Above what one request may have as it travels: that is what ends it here.
        "listeners.unauthenticated_bytes_per_ip_budget": 32 << 20,
        "log.level": "warning",
    }
    with SqsGateway(folder / "data", settings) as running:
        yield running


class Healthy:
    """A connection that sends and gets back, whatever happens around it."""

    def __init__(self, gateway: SqsGateway) -> None:
        self.client = JsonClient(gateway.sqs_port)
        self.url = self.client.made("healthy")
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.client.close()

    def check(self) -> None:
        """Send a message, receive and delete it."""
        self.count += 1
        body = f"{self.count}"
        self.client.call("SendMessage", QueueUrl=self.url, MessageBody=body)
        found = self.client.call("ReceiveMessage", QueueUrl=self.url, WaitTimeSeconds=5)
        [message] = found["Messages"]
        assert message["Body"] == body
        handle = message["ReceiptHandle"]
        self.client.call("DeleteMessage", QueueUrl=self.url, ReceiptHandle=handle)

    def make_queues(self) -> None:
        """Make what the faulty requests are about, where it is gone."""
        for name in QUEUES:
            kind = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
            with suppress(Refused):  # it is there, with other attributes
                self.client.made(name, **kind)


def throw_many(gateway: SqsGateway, *, count: int) -> None:
    pid = gateway.pid
    before_bytes = resident_bytes(pid)
    seed = random.SystemRandom().randrange(1 << 32)
    chooser = random.Random(seed)
    with Healthy(gateway) as healthy:
        statuses: set[int] = set()
        for connection in range(count // REQUESTS_PER_CONNECTION):
            said = thrown_at_once(chooser, REQUESTS_PER_CONNECTION)
            try:
                if connection % CONNECTIONS_PER_CHECK == 0:
                    healthy.make_queues()
                    healthy.check()
                came = exchange(gateway.sqs_port, said, answer_s_max=ANSWER_S_MAX)
            except (AssertionError, Gone, Refused, OSError) as error:
                pytest.fail(f"seed {seed}, connection {connection}: {error!r}")
            found = {int(status) for status in STATUS.findall(came)}
            shown = f"seed {seed}: {said!r} was answered by {came!r}"
            assert max(found, default=0) < 500, shown
            assert b"Traceback" not in came, shown
            statuses |= found
        healthy.check()
    assert {200, 400, 404} <= statuses, f"seed {seed}: {statuses}"
    assert gateway.pid == pid
    growth_bytes = resident_bytes(pid) - before_bytes
    assert growth_bytes < GROWTH_BYTES_MAX, f"seed {seed}: grew by {growth_bytes} bytes"
    check_log(gateway, f"seed {seed}")


def test_faulty_requests_harm_nobody_else(gateway: SqsGateway) -> None:
    throw_many(gateway, count=REQUESTS)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_a_million_faulty_requests_harm_nobody_else(gateway: SqsGateway) -> None:
    throw_many(gateway, count=REQUESTS_SOAK)


def closed_within(connection: socket.socket, within_s: float) -> bytes:
    """Return what comes until the peer closes. Errors: ``TimeoutError``."""
    connection.settimeout(within_s)
    came = bytearray()
    with suppress(ConnectionResetError):
        while data := connection.recv(1 << 16):
            came += data
    return bytes(came)


def test_who_says_nothing_or_half_is_closed(gateway: SqsGateway) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n"
    first_words = {
        "silence": b"",
        "one byte": b"P",
        "half a head": head,
        "half a body": head + b"Content-Length: 100\r\n\r\n{",
        "half a chunk": head + b"Transfer-Encoding: chunked\r\n\r\n64\r\n{",
    }
    with Healthy(gateway) as healthy:
        for name, data in first_words.items():
            with socket.create_connection(("127.0.0.1", gateway.sqs_port)) as connection:
                connection.sendall(data)
                came = closed_within(connection, HANDSHAKE_S_MAX + FRAME_S_MAX + 30)
            assert b" 200 " not in came, name
            assert b" 500 " not in came, name
            healthy.check()
    check_log(gateway, "half requests")


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\n", b"X-More: " + b"x" * 1_000 + b"\r\n"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nX-Long: ", b"x" * 1_000),
        (b"POST /", b"x" * 1_000),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"3e8\r\n" + b"x" * 1_000 + b"\r\n",
        ),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;", b"x" * 1_000),
        (b"POST / HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n", b"x" * 1_000),
    ],
    ids=["headers", "header", "target", "chunks", "chunk extension", "length"],
)
def test_what_never_ends_is_ended(gateway: SqsGateway, start: bytes, piece: bytes) -> None:
    """The node refuses and closes an endless request; its memory stays constant."""
    before_bytes = resident_bytes(gateway.pid)
    with Healthy(gateway) as healthy:
        answer = _pour(gateway.sqs_port, start, piece)
        healthy.check()
    assert re.match(rb"HTTP/1\.1 4(00|13|14|31) ", answer), answer
    assert resident_bytes(gateway.pid) - before_bytes < 32 << 20
    check_log(gateway, "no end")


def _pour(port: int, start: bytes, piece: bytes) -> bytes:
    """Send pieces until the peer has closed; return what it said before."""
    deadline = time.monotonic() + POURED_S_MAX
    answer = b""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(start)
        connection.setblocking(False)  # noqa: FBT003 - positional only
        with suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() < deadline:
                readable, writable, _ = select.select([connection], [connection], [], 0.1)
                if readable:
                    came = connection.recv(1 << 16)
                    if not came:
                        return answer
                    answer += came
                if writable:
                    connection.send(piece * 16)
            pytest.fail(f"it takes without end; it has said {answer!r}")
    return answer


@pytest.mark.soak
def test_ten_thousand_silent_connections_harm_nobody(tmp_path: Path) -> None:
    settings = {
        "adapters.sqs.handshake_s_max": silent_connections.HANDSHAKE_S_MAX,
        "log.level": "warning",
    }
    with SqsGateway(tmp_path / "data", settings) as gateway, Healthy(gateway) as healthy:
        check_silence(gateway, gateway.sqs_port, healthy.check)
