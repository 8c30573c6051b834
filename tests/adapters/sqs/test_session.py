"""HTTP/1.1: a stream gives the same requests in any pieces; limits are enforced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.session import HEADERS_MAX, READ_BYTES, HttpSession
from adapters.sqs.wire import Request

HEADER_BYTES_MAX = 4_096
REQUEST_BYTES_MAX = 100_000

PLAIN = (
    b"POST /a/b?c=d HTTP/1.1\r\nHost: h:1\r\nX-Amz-Target:  T \r\nContent-Length: 3\r\n\r\nabc"
)
CHUNKED = (
    b"POST / HTTP/1.1\r\nhost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\nTrailer: t\r\n\r\n"
)
GET = b"GET /?x HTTP/1.1\r\nHost: h\r\n\r\n"


def session() -> HttpSession:
    return HttpSession(header_bytes_max=HEADER_BYTES_MAX, request_bytes_max=REQUEST_BYTES_MAX)


def parts(request: Request) -> tuple[object, ...]:
    names = ("method", "path", "query", "headers", "body", "is_last")
    return tuple(getattr(request, name) for name in names)


def receive(data: bytes, read_bytes: int = READ_BYTES) -> tuple[list[Request], HttpSession]:
    reader = session()
    requests = []
    for start in range(0, len(data), read_bytes):
        requests += reader.receive_data(data[start : start + read_bytes])
    return requests, reader


def status(data: bytes, read_bytes: int = READ_BYTES) -> int:
    reader = receive(data, read_bytes)[1]
    assert reader.error is not None
    return reader.error.status


def test_a_request_has_its_parts() -> None:
    (request,), reader = receive(PLAIN)
    assert parts(request) == (
        b"POST",
        b"/a/b",
        b"c=d",
        {b"host": b"h:1", b"x-amz-target": b"T ", b"content-length": b"3"},
        b"abc",
        False,
    )
    assert reader.error is None
    assert not reader.is_midway


def test_chunks_are_one_body_and_trailers_are_no_headers() -> None:
    (request,), reader = receive(CHUNKED)
    assert request.body == b"abc"
    assert b"trailer" not in request.headers
    assert reader.error is None


@given(
    stream=st.lists(st.sampled_from([PLAIN, CHUNKED, GET]), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 600), max_size=20),
)
def test_any_cut_of_the_stream_is_the_same_requests(
    stream: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(stream)
    whole = [parts(request) for request in receive(data)[0]]
    reader, cut_up, last = session(), [], 0

    for cut in [*sorted(cuts), len(data)]:
        cut_up += reader.receive_data(data[last : max(cut, last)])
        last = max(cut, last)

    assert [parts(request) for request in cut_up] == whole
    assert len(whole) == len(stream)
    assert reader.error is None


@given(
    data=st.binary() | st.lists(st.sampled_from([PLAIN, b"\r\n", b"\x00", b" "])).map(b"".join)
)
def test_any_bytes_are_requests_or_refused(data: bytes) -> None:
    reader = receive(data)[1]
    assert reader.error is None or reader.error.status in {400, 413, 431}


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS to a plain port
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nContent-Length: -3\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost : h\r\n\r\n",
        b"POST / HTTP/1.1\r\n folded: h\r\n\r\n",
        b"POST / HTTP/1.1\nHost: h\n\n",
        b"POST / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ],
)
def test_what_is_not_http_is_refused(data: bytes) -> None:
    assert status(data) == 400


def test_what_came_before_it_is_served() -> None:
    requests, reader = receive(PLAIN + b"\x00\x01")
    assert len(requests) == 1
    assert reader.error is not None
    assert reader.receive_data(PLAIN) == []


def padded(head_bytes: int) -> bytes:
    """Return a request whose target, names and values have so many bytes."""
    return b"GET /" + b"a" * (head_bytes - 3) + b" HTTP/1.1\r\nH: h\r\n\r\n"


def test_a_head_at_the_bound_is_taken_and_one_byte_more_is_not() -> None:
    assert receive(padded(HEADER_BYTES_MAX))[1].error is None
    assert status(padded(HEADER_BYTES_MAX + 1)) == 431


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nX: " + b"a" * (READ_BYTES + 2 * HEADER_BYTES_MAX),
        b"GET / HTTP/1.1\r\n" + b"X" * (READ_BYTES + 2 * HEADER_BYTES_MAX),
        b"GET /" + b"a" * (READ_BYTES + 2 * HEADER_BYTES_MAX),
        b"GET / HTTP/1.1\r\n" + b"".join(b"X: %d\r\n" % n for n in range(100_000)),
        b"GET / HTTP/1.1\r\n"
        + b"".join(b"X%d:\r\n" % n for n in range(HEADERS_MAX + 1))
        + b"\r\n",
    ],
)
def test_headers_that_never_end_are_refused(data: bytes) -> None:
    assert status(data, read_bytes=2_048) == 431


def test_a_body_at_the_bound_is_taken_and_one_byte_more_is_not() -> None:
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
    (request,), _ = receive(head % REQUEST_BYTES_MAX + b"a" * REQUEST_BYTES_MAX)
    assert len(request.body) == REQUEST_BYTES_MAX
    assert status(head % (REQUEST_BYTES_MAX + 1)) == 413


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_large_body_may_come_in_many_reads(*, is_chunked: bool) -> None:
    body = b"a" * 1_000_000
    if is_chunked:
        chunks = [b"3e8\r\n%b\r\n" % body[:1_000]] * 1_000
        data = b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks) + b"0\r\n\r\n"
    else:
        data = b"Content-Length: 1000000\r\n\r\n" + body
    reader = HttpSession(header_bytes_max=HEADER_BYTES_MAX, request_bytes_max=len(body))
    requests = []
    for start in range(0, len(data), 10_000):
        head = b"" if start else b"POST / HTTP/1.1\r\n"
        requests += reader.receive_data(head + data[start : start + 10_000])

    assert reader.error is None
    assert [request.body for request in requests] == [body]


def test_a_body_that_never_ends_is_refused() -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"400\r\n" + b"a" * 1_024 + b"\r\n"
    assert status(head + chunk * 200) == 413
    assert status(head + b"1\r\na\r\n0\r\n" + b"T: " + b"a" * 2_000_000, 65_536) == 431


def test_an_incomplete_request_counts_the_bytes_that_have_come() -> None:
    reader = session()
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % REQUEST_BYTES_MAX
    reader.receive_data(head)
    assert reader.kept_bytes == len(head)
    reader.receive_data(b"a" * REQUEST_BYTES_MAX)
    assert reader.kept_bytes == 0

    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n11170\r\n"
    chunked = session()
    chunked.receive_data(head)
    assert chunked.kept_bytes == len(head)
    chunked.receive_data(b"a" * 0x11170)
    assert chunked.kept_bytes == len(head) + 0x11170


def test_who_waits_for_continue_is_noticed() -> None:
    reader = session()
    reader.receive_data(b"POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n")
    assert reader.wants_continue
    assert len(reader.receive_data(b"abc")) == 1
    assert not reader.wants_continue


@pytest.mark.parametrize(
    ("version", "connection", "is_last"),
    [
        (b"1.1", b"keep-alive", False),
        (b"1.1", b"close", True),
        (b"1.0", b"close", True),
        (b"1.0", b"", True),
    ],
)
def test_the_last_request_of_a_connection_is_known(
    version: bytes, connection: bytes, *, is_last: bool
) -> None:
    (request,), _ = receive(b"GET / HTTP/%b\r\nConnection: %b\r\n\r\n" % (version, connection))
    assert request.is_last is is_last


def test_what_follows_the_last_request_is_not_for_us() -> None:
    requests, reader = receive(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n" + PLAIN)
    assert len(requests) == 1
    assert reader.error is None


def test_an_offer_of_another_protocol_is_ignored() -> None:
    """java.net.http.HttpClient offers h2c with every first request."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEA\r\n"
    post = b"POST / HTTP/1.1\r\n" + upgrade + b"Content-Length: 3\r\n\r\nabc"
    for first in (post, b"GET / HTTP/1.1\r\n" + upgrade + b"\r\n"):
        requests, reader = receive(first + PLAIN)
        assert reader.error is None
        assert [request.body for request in requests] == [
            b"abc" if first is post else b"",
            b"abc",
        ]
