"""Plain requests: what is read without the parser is what the parser reads."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.plain_requests import parse_plain
from adapters.sqs.session import HttpSession
from adapters.sqs.wire import Request

HEADER_BYTES_MAX = 2_000
SDK = (
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1:9324\r\nAccept-Encoding: identity\r\n"
    b"X-Amz-Target: AmazonSQS.ReceiveMessage\r\nContent-Type: application/x-amz-json-1.0\r\n"
    b"User-Agent: Boto3/1.0 md/Botocore#1.0 ua/2.1\r\nX-Amz-Date: 20261120T120000Z\r\n"
    b"Authorization: AWS4-HMAC-SHA256 Credential=a/b/c/sqs/aws4_request, SignedHeaders=host, "
    b"Signature=00\r\nx-odd_name.1: v\r\nContent-Length: 4\r\n\r\n{..}"
)
LINES = st.sampled_from(
    [
        *(b"Host: h", b"host: h", b"Host:h", b"Host:  h", b"Host: h ", b"Host: ", b"Host:"),
        *(b"Connection: close", b"connection: keep-alive", b"Connection: Upgrade"),
        *(b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Upgrade: h2c", b"TE: x"),
        *(
            b"Content-Length: 4",
            b"Content-Length: 3",
            b"content-length: 4",
            b"Content-Length: +4",
        ),
        *(b"Content-Length: 4, 4", b"Content-Length: 04", b"X y: z", b" folded", b"", b"none"),
        *(b"X: a\tb", b"X: \xc3\xa9", b"X: a\x00b", b"X: a: b", b"X: a\rb", b"X: a\nb", b": v"),
    ]
)
FIRST_LINES = st.sampled_from(
    [b"POST / HTTP/1.1", b"POST / HTTP/1.1", b"POST /a HTTP/1.1", b"GET / HTTP/1.1"]
)
BODIES = st.sampled_from([b"", b"abcd", b"abcd", b"abc", b"abcdPOST / HTTP/1.1\r\n"])


def parts(request: Request) -> tuple[object, ...]:
    names = ("method", "path", "query", "headers", "body", "is_last")
    return tuple(getattr(request, name) for name in names)


def parsed(octets: bytes) -> list[Request]:
    """Return what the parser reads."""
    reader = HttpSession(header_bytes_max=HEADER_BYTES_MAX, request_bytes_max=1_000)
    requests = reader.receive_data(octets[:1])  # one that has begun is never plain
    requests += reader.receive_data(octets[1:])
    return requests if reader.error is None else []


def check(octets: bytes) -> bool:
    """Compare both; say whether the request is plain."""
    plain = parse_plain(octets, header_bytes_max=HEADER_BYTES_MAX)
    if plain is None:
        return False
    assert [parts(request) for request in parsed(octets)] == [parts(plain)]
    return True


def test_what_sdks_send_is_plain() -> None:
    assert check(SDK)
    for line in (b"Connection: Keep-Alive", b"connection: keep-alive"):
        assert check(SDK.replace(b"x-odd_name.1: v", line))


@given(
    first=FIRST_LINES,
    lines=st.lists(LINES, max_size=5),
    has_length=st.booleans(),
    body=BODIES,
)
def test_what_is_plain_is_what_the_parser_reads(
    *, first: bytes, lines: list[bytes], has_length: bool, body: bytes
) -> None:
    length = [b"Content-Length: %d" % len(body)] if has_length else []
    check(b"\r\n".join([first, *lines, *length, b"", body]))


@given(
    st.integers(0, len(SDK)),
    st.sampled_from([b"", b" ", b"\r", b"\n", b"\r\n", b":", b"\x00", b"\x80", b"a", b"9"]),
    st.integers(0, 2),
)
def test_whatever_is_changed_both_read_the_same(at: int, octets: bytes, skipped: int) -> None:
    check(SDK[:at] + octets + SDK[at + skipped :])


def test_what_changes_how_a_request_is_read_is_not_plain() -> None:
    for line in (b"Connection: close", b"Expect: 100-continue", b"Transfer-Encoding: chunked"):
        assert not check(SDK.replace(b"x-odd_name.1: v", line))
    assert not check(SDK + b"x"), "the next one has begun"
    assert not check(SDK[:-1]), "the rest is yet to come"
    assert not check(SDK.replace(b"x-odd_name.1", b"Host"))
    assert not check(SDK.replace(b": v", b": " + b"v" * HEADER_BYTES_MAX))


def test_a_plain_request_may_follow_any_other() -> None:
    reader = HttpSession(header_bytes_max=HEADER_BYTES_MAX, request_bytes_max=1_000)
    found: list[Request] = []
    for octets in (SDK, SDK[:50], SDK[50:], SDK, SDK + SDK, SDK, SDK + SDK[:7], SDK[7:], SDK):
        found += reader.receive_data(octets)
    assert [parts(request) for request in found] == [parts(found[0])] * 9
    assert reader.error is None
    assert not reader.is_midway
