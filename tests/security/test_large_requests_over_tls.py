"""Large requests come whole through the loop and the TLS that a node really has."""

import socket
import ssl
from pathlib import Path

import pytest

from tests.support.certificates import make_certificate
from tests.support.gateway import Gateway
from tests.support.kafka_wire import PRODUCE, Connection, batch, produce_body, produce_errors

SIZES_BYTES = [100_000, 8 << 20, 300_000, 3 << 20]
REFUSALS = {3, 10}  # no such topic, or too large for one: the request was read to its end


@pytest.mark.parametrize("has_tls", [False, True])
def test_large_requests_are_read_whole(
    tmp_path: Path,
    has_tls: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    cert, key = make_certificate(tmp_path)
    settings = {"adapters.kafka.tls_cert": cert, "adapters.kafka.tls_key": key}
    with (
        Gateway(tmp_path / "data", settings if has_tls else None) as gateway,
        Connection(gateway.kafka_port) as connection,
    ):
        if has_tls:
            connection.socket = wrap(connection.socket, cert)
        for size_bytes in SIZES_BYTES:
            body = produce_body([("none", 0, batch([bytes(size_bytes)]))])
            [(code, _)] = produce_errors(connection.call(PRODUCE, 3, body))
            assert code in REFUSALS
        assert gateway.metric("headgate_peer_faults_total") == 0


def wrap(plain: socket.socket, cert: Path) -> ssl.SSLSocket:
    trust = ssl.create_default_context(cafile=cert)
    return trust.wrap_socket(plain, server_hostname="localhost")
