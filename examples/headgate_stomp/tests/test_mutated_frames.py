"""Broken frames end their own connection, and nothing else."""

import random
from contextlib import suppress

from headgate_stomp.frames import FrameReader, Version, encode_frame
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import PeerError
from gateway.testing.adapter_client import Hangup
from gateway.testing.gateway_process import GatewayProcess
from tests.conftest import Connect
from tests.stomp_client import StompClient, frame

_STREAMS = 150
_FRAMES = (
    frame("CONNECT", accept_version="1.0,1.1,1.2", heart_beat="0,0", host="x"),
    frame("SUBSCRIBE", id=1, destination="/queue/jobs", ack="client", prefetch_count=3),
    frame("SUBSCRIBE", id=2, destination="/topic/news", durable="true"),
    frame("SEND", b"hello", destination="/queue/jobs", content_length=5, receipt=1),
    frame("SEND", b"hello", destination="/exchange/prices/tea", expiration=100),
    frame("BEGIN", transaction="t"),
    frame("SEND", b"hello", destination="/topic/news", transaction="t"),
    frame("ACK", id="1-1", transaction="t"),
    frame("COMMIT", transaction="t", receipt=2),
    frame("NACK", id="1-2", requeue="false"),
    frame("UNSUBSCRIBE", id=2, durable="true"),
    frame("DISCONNECT", receipt=3),
)


def mutated(chance: random.Random) -> bytes:
    """Return a stream of frames, of which some are left out, doubled, cut or changed."""
    frames = [_FRAMES[0], *chance.choices(_FRAMES, k=chance.randrange(1, 12))]
    stream = bytearray(b"".join(frames))
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(stream))
        match chance.randrange(4):
            case 0:
                stream[at] = chance.randrange(256)
            case 1:
                del stream[at : at + chance.randrange(1, 20)]
            case 2:
                stream[at:at] = chance.randbytes(chance.randrange(1, 20))
            case _:
                stream[at:at] = chance.choice(
                    (b"\0", b"\n\n", b":", b"\\", b"content-length:9\n")
                )
        if not stream:
            break
    return bytes(stream)


def test_mutated_frames_end_their_connection_and_no_other(
    shared_gateway: GatewayProcess, connect: Connect
) -> None:
    good = connect()
    for seed in range(_STREAMS):
        with StompClient(shared_gateway.ports["stomp"]) as client, suppress(Hangup):
            client.send_bytes(mutated(random.Random(seed)))
            good.ask("SEND", b"x", destination="/queue/good")
    good.ask("SUBSCRIBE", id=1, destination="/queue/good")
    assert len(good.bodies(_STREAMS)) == _STREAMS
    # The end of the gateway fails for a connection that was closed by a bug.


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_HEADERS = st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=8)


@given(headers=_HEADERS, body=st.binary(max_size=50))
def test_any_headers_and_body_come_back(headers: dict[str, str], body: bytes) -> None:
    headers.pop("content-length", None)
    reader = FrameReader(header_bytes_max=10_000, headers_max=20, body_bytes_max=100)
    reader.version = Version.V12
    reader.feed(encode_frame("SEND", headers.items(), Version.V12, body))
    found = reader.take()
    assert found is not None
    found.headers.pop("content-length", None)
    assert (found.headers, found.body) == (headers, body)


@given(data=st.binary(max_size=400))
def test_any_bytes_are_frames_or_a_fault(data: bytes) -> None:
    reader = FrameReader(header_bytes_max=100, headers_max=5, body_bytes_max=100)
    reader.feed(b"SEND\n" + data)
    with suppress(PeerError):
        while reader.take() is not None:
            pass
    assert reader.kept_bytes <= len(data) + 5
