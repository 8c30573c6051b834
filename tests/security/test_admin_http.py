"""Malformed HTTP at the admin endpoint is refused, and leaves no line in the log."""

import http.client
import socket
import struct
from pathlib import Path

import pytest

from tests.crash.silent_connections import check_log
from tests.support.gateway import Gateway

pytestmark = pytest.mark.crash

BAD_CHUNK = b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"
HALF_BODY = b"Content-Length: 100\r\n\r\n{"


def test_faulty_http_at_the_admin_endpoint_leaves_no_line(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data", {"log.level": "warning"}) as gateway:
        token = (gateway.data_dir / "admin.token").read_bytes().strip()
        stranger = b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\n"
        known = stranger + b"Authorization: Bearer " + token + b"\r\n"
        count = len(gateway.lines)
        for said in [b"\0", stranger + BAD_CHUNK, known + BAD_CHUNK, known + HALF_BODY] * 10:
            address = ("127.0.0.1", gateway.admin_port)
            with socket.create_connection(address, timeout=30) as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.sendall(said)
                if said.endswith(BAD_CHUNK):
                    assert peer.recv(1_024).startswith(b"HTTP/1.1 4")
        assert gateway.http("/healthz")[0] == http.client.OK
        lines = [line for line in gateway.lines[count:] if "uvicorn" in line]
        assert lines == []
        check_log(gateway, "faulty HTTP")
