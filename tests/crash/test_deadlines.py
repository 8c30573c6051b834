"""Clients that are silent, or stop in the middle of a frame, meet a deadline; others do not."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gateway import Gateway
from tests.support.kafka_wire import API_VERSIONS, METADATA, Connection, request

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("deadlines")]

CLOSED_S_MAX = 30


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {"adapters.kafka.idle_s_max": 2, "adapters.kafka.frame_s_max": 1}
    with Gateway(tmp_path_factory.mktemp("deadlines") / "data", settings) as running:
        yield running


def test_a_silent_connection_is_closed(gateway: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.kafka_port), CLOSED_S_MAX) as silent:
        assert silent.recv(1) == b""


def test_half_a_frame_is_closed_while_others_are_served(gateway: Gateway) -> None:
    frame = request(METADATA, 1, 1, b"\xff\xff\xff\xff")
    with (
        socket.create_connection(("127.0.0.1", gateway.kafka_port), CLOSED_S_MAX) as half,
        Connection(gateway.kafka_port) as other,
    ):
        half.sendall(frame[:-1])
        half.settimeout(0.1)
        for _ in range(CLOSED_S_MAX * 10):
            assert other.call(API_VERSIONS, 0, b"")[:2] == b"\0\0"
            try:
                assert half.recv(1) == b""
                break
            except TimeoutError:
                continue
        else:
            pytest.fail("half a frame was waited for without end")


def test_a_frame_that_drips_is_closed(gateway: Gateway) -> None:
    frame = request(METADATA, 1, 1, bytes(1_000))[: 4 * CLOSED_S_MAX]
    with socket.create_connection(("127.0.0.1", gateway.kafka_port)) as drip:
        drip.settimeout(0.25)  # a byte every quarter of a second
        for byte in frame:
            try:
                drip.sendall(bytes([byte]))
                closed = drip.recv(1) == b""
            except TimeoutError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                closed = True
            assert closed, "half a frame was answered"
            return
        pytest.fail("a dripping frame outlived its deadline")


def test_a_thousand_silent_connections_leave_the_others_alone(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data") as gateway:
        address = ("127.0.0.1", gateway.kafka_port)
        silent = [socket.create_connection(address) for _ in range(1_000)]
        try:
            with Connection(gateway.kafka_port) as other:
                assert other.call(API_VERSIONS, 0, b"")[:2] == b"\0\0"
        finally:
            for connection in silent:
                connection.close()
