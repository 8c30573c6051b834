"""Behind a load balancer: the PROXY header before stock clients' bytes, and before TLS."""

import contextlib
import ssl
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from tests.interop.mqtt.programs.secure_paho import SecurePaho
from tests.interop.mqtt.secured import Secured, running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_target import OWN
from tests.support.waiting import wait_until

pytestmark = [
    OWN,
    pytest.mark.interop,
    pytest.mark.xdist_group("mqtt-security"),
    # Sockets that paho leaves to the garbage collector are its own affair.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEEN_S_MAX = 90


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Without users; a PROXY header on the plain listener and before TLS on the second."""
    settings: dict[str, object] = {
        "adapters.mqtt.proxy_protocol": "true",
        "adapters.mqtt.tls.proxy_protocol": "true",
    }
    yield from running(tmp_path_factory.mktemp("proxied"), settings)


def proxy_header(host: str) -> bytes:
    """Return a header of version 2 (haproxy's proxy-protocol.txt 2.2), PROXY over TCP4."""
    addresses = IPv4Address(host).packed + IPv4Address("192.0.2.1").packed
    ports = (40_000).to_bytes(2, "big") + (1883).to_bytes(2, "big")
    block = addresses + ports
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + len(block).to_bytes(2, "big") + block


@pytest.mark.parametrize(
    "header",
    [b"PROXY TCP4 203.0.113.7 192.0.2.1 40000 1883\r\n", proxy_header("203.0.113.7")],
    ids=["1", "2"],
)
def test_the_header_before_pahos_bytes_says_who_it_is(
    proxied: Secured, stem: str, header: bytes
) -> None:
    client = SecurePaho(proxied.target.port, stem, first=header)
    with client:
        assert client.open() == "Success"
        assert client.subscribe(stem) == "Granted QoS 1"
        assert client.publish(stem, b"x") == "Success"
        assert client.message() == (stem, b"x")
        assert proxied.clients()[stem]["peer"] == "203.0.113.7"


@pytest.mark.parametrize("cut", [1, 12, 27, 28, 30])
def test_header_and_connect_may_come_in_any_cut(proxied: Secured, stem: str, cut: int) -> None:
    data = proxy_header("203.0.113.8") + wire.connect(stem)
    with RawClient(proxied.target.port) as raw:
        raw.send(data[:cut])
        raw.send(data[cut:])
        assert raw.receive(wire.Kind.CONNACK).code == 0
        if cut == 28:
            assert proxied.clients()[stem]["peer"] == "203.0.113.8"


def test_the_header_comes_before_tls(proxied: Secured, stem: str) -> None:
    """Header and hello come in one piece: TLS must get what the header has left."""
    context = ssl.create_default_context(cafile=str(proxied.ca))
    received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = context.wrap_bio(received, to_send, server_hostname="localhost")
    with RawClient(proxied.tls_port) as raw:
        waiting = proxy_header("203.0.113.9")
        while True:
            try:
                peer.do_handshake()
                break
            except ssl.SSLWantReadError:
                raw.send(waiting, to_send.read())
                waiting = b""
                received.write(raw.socket.recv(65_536))
        peer.write(wire.connect(stem))
        raw.send(to_send.read())  # with the client's last word of the handshake
        wait_until(lambda: stem in proxied.clients(), within_s=SEEN_S_MAX, what="its coming")
        assert proxied.clients()[stem]["peer"] == "203.0.113.9"


def test_without_a_header_nobody_is_let_in(proxied: Secured, stem: str) -> None:
    with RawClient(proxied.target.port) as raw:
        raw.send(wire.connect(stem))
        with contextlib.suppress(ConnectionResetError):
            assert raw.socket.recv(1) == b""
        assert stem not in proxied.clients()
