"""PROXY protocol v1 and v2, a byte too many never read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import PeerError
from gateway.proxy_protocol import ProxyHeader

V2 = b"\r\n\r\n\x00\r\nQUIT\n"
V2_IPV4 = V2 + b"\x21\x11\x00\x0c" + bytes([10, 1, 2, 3, 10, 9, 9, 9]) + b"\x04\xd2\x23\x84"
V2_IPV6 = V2 + b"\x21\x21\x00\x24" + bytes(15) + b"\x01" + bytes(16) + b"\x04\xd2\x23\x84"
V2_LOCAL = V2 + b"\x20\x00\x00\x00"
MAPPED = bytes(10) + b"\xff\xff\n\x01\x02\x03"  # ::ffff:10.1.2.3
V1 = b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n"


def parse(data: bytes) -> tuple[str | None, bytes]:
    """Return the host and what was left unread."""
    header = ProxyHeader()
    while header.wants:
        part, data = data[: header.wants], data[header.wants :]
        assert part, "wants more than the header has"
        header.receive(part)
    return header.host, data


@pytest.mark.parametrize(
    ("data", "host"),
    [
        (V1, "203.0.113.7"),
        (b"PROXY UNKNOWN\r\n", None),
        (V2_IPV4, "10.1.2.3"),
        (V2_IPV6, "::1"),
        (V2_IPV6.replace(bytes(15) + b"\x01", MAPPED, 1), "10.1.2.3"),
        (V1.replace(b"TCP4 203.0.113.7", b"TCP6 ::ffff:203.0.113.7"), "203.0.113.7"),
        (V1.replace(b"TCP4 203.0.113.7", b"TCP6 0:0:0::1"), "::1"),
        (V2_LOCAL, None),
        (V2 + b"\x21\x00\x00\x00", None),  # AF_UNSPEC
        (
            V2 + b"\x21\x11\x10\x00" + V2_IPV4[16:] + bytes(4_084),
            "10.1.2.3",
        ),  # with a certificate
    ],
)
def test_headers_are_read_to_their_end_and_no_further(data: bytes, host: str | None) -> None:
    assert parse(data + b"next") == (host, b"next")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PROXY TCP4 1.2.3.4\r\n",
        b"PROXY " + b"x" * 200,
        V2 + b"\x31\x11\x00\x0c" + bytes(12),
        V2 + b"\x21\x11\xff\xff" + bytes(12),
        V2 + b"\x22\x11\x00\x0c" + bytes(12),  # neither LOCAL nor PROXY
        V2 + b"\x21\x11\x00\x04" + bytes(4),  # addresses that are not all there
        V2 + b"\x21\x21\x00\x0c" + bytes(12),
    ],
)
def test_anything_else_is_the_peers_fault(data: bytes) -> None:
    with pytest.raises(PeerError):
        parse(data)


@given(st.binary(min_size=200, max_size=300))
def test_any_bytes_are_a_header_or_a_peer_error(data: bytes) -> None:
    header = ProxyHeader()
    try:
        while header.wants:
            part, data = data[: header.wants], data[header.wants :]
            header.receive(part)
    except PeerError:
        return
