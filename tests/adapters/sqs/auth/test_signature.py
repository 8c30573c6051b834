"""SigV4: signatures of botocore are accepted, and any changed byte is refused."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.auth import signature
from adapters.sqs.auth.signature import (
    EXPIRES_S_MAX,
    Claim,
    check_signature,
    check_time,
    find_claim,
)
from adapters.sqs.errors import (
    INCOMPLETE_SIGNATURE,
    REQUEST_EXPIRED,
    SIGNATURE_DOES_NOT_MATCH,
    ErrorCode,
    SqsError,
)
from adapters.sqs.wire import Request

KEY_ID = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SKEW_S = 900


def signed(
    method: str = "POST",
    url: str = "http://127.0.0.1:9324/",
    body: bytes = b"{}",
    headers: dict[str, str] | None = None,
    auth: Any = None,
) -> Request:
    """Sign as botocore does; return the request."""
    made = AWSRequest(method, url, headers=dict(headers or {}), data=body)
    credentials = Credentials(KEY_ID, SECRET)
    auth = auth or botocore.auth.SigV4Auth(credentials, "sqs", "us-east-1")
    auth.add_auth(made)
    _, _, rest = made.url.partition("://")
    host, _, target = rest.partition("/")
    path, _, query = f"/{target}".encode().partition(b"?")
    sent = {name.lower().encode(): to_bytes(value) for name, value in made.headers.items()}
    return Request(
        method.encode(), path, query, {b"host": host.encode()} | sent, body, is_last=False
    )


def to_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def presigned(expires_s: int = 60, **request: Any) -> Request:
    auth = botocore.auth.SigV4QueryAuth(
        Credentials(KEY_ID, SECRET), "sqs", "us-east-1", expires=expires_s
    )
    return signed(**{"method": "GET", "body": b"", **request, "auth": auth})


def claim_of(request: Request) -> Claim:
    claim = find_claim(request)
    assert claim is not None
    return claim


def check(request: Request, *, later_s: int = 0) -> None:
    claim = claim_of(request)
    check_time(claim, (claim.signed_unix_s + later_s) * 1_000, skew_s_max=SKEW_S)
    check_signature(request, claim, SECRET)


def refusal(request: Request, *, later_s: int = 0) -> SqsError:
    with pytest.raises(SqsError) as caught:
        check(request, later_s=later_s)
    return caught.value


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9324/",
        "http://127.0.0.1:9324/000000000000/jobs",
        "http://127.0.0.1:9324/000000000000/a%20b/",
        "http://127.0.0.1:9324/a/./b/../c//d",
        "https://sqs.us-east-1.amazonaws.com/?b=2&a=1&a=0&c",
        "http://h/?Action=SendMessage&MessageBody=a%20b%2B%C3%A9%2F~",
    ],
)
def test_what_botocore_signs_is_right(url: str) -> None:
    check(signed(url=url))
    check(presigned(url=url))


def test_headers_of_any_shape_are_signed() -> None:
    request = signed(headers={"X-Amz-Target": "AmazonSQS.ListQueues", "X-Spaces": "  a   b  "})
    check(request)
    request.headers[b"x-amz-target"] += b"x"
    assert refusal(request).code is SIGNATURE_DOES_NOT_MATCH


@pytest.mark.parametrize("make", [signed, presigned])
def test_what_a_request_asks_for_must_be_signed(make: Callable[..., Request]) -> None:
    request = make(method="POST", url="http://h/000000000000/jobs?Action=GetQueueAttributes")
    check(request)
    request.headers[b"x-amz-target"] = b"AmazonSQS.DeleteQueue"  # by who was given the URL
    error = refusal(request)
    assert error.code is SIGNATURE_DOES_NOT_MATCH
    assert error.message.startswith("'X-Amz-Target' must be a 'SignedHeader'")


@given(
    body=st.binary(max_size=50),
    query=st.lists(st.tuples(st.text(min_size=1), st.text()), max_size=4),
    path=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
def test_any_request_that_botocore_signs_is_right(
    body: bytes, query: list[tuple[str, str]], path: str
) -> None:
    pairs = "&".join(f"{encoded(name)}={encoded(value)}" for name, value in query)
    check(signed(url=f"http://h/{encoded(path)}" + (f"?{pairs}" if pairs else ""), body=body))


def encoded(text: str) -> str:
    return quote(text.encode("utf-8", "replace"), safe="-_.~")


def changed_body(request: Request) -> None:
    request.body += b" "


def changed_path(request: Request) -> None:
    request.path += b"x"


def changed_query(request: Request) -> None:
    request.query += b"&a=1"


def changed_method(request: Request) -> None:
    request.method = b"PUT"


def changed_host(request: Request) -> None:
    request.headers[b"host"] = b"elsewhere"


CHANGES = [changed_body, changed_path, changed_query, changed_method, changed_host]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("make", [signed, presigned])
def test_whatever_is_changed_the_signature_no_longer_fits(
    make: Callable[[], Request], change: Callable[[Request], None]
) -> None:
    request = make()
    change(request)
    error = refusal(request)
    assert error.code is SIGNATURE_DOES_NOT_MATCH
    assert error.message.startswith("The request signature we calculated does not match")


def test_another_secret_does_not_fit() -> None:
    request = signed()
    with pytest.raises(SqsError):
        check_signature(request, claim_of(request), SECRET + "x")


def test_a_request_without_a_signature_claims_nothing() -> None:
    assert (
        find_claim(Request(b"GET", b"/", b"Action=ListQueues", {}, b"", is_last=False)) is None
    )


def test_the_signature_may_stand_first() -> None:
    request = signed()
    head, _, made = request.headers[b"authorization"].rpartition(b"Signature=")
    algorithm, _, rest = head.partition(b" ")
    request.headers[b"authorization"] = b"%b Signature=%b,%b" % (
        algorithm,
        made,
        rest.rstrip(b", "),
    )
    check(request)


def test_a_date_header_will_do() -> None:
    request = signed()
    claim = claim_of(request)
    moment = datetime.fromtimestamp(claim.signed_unix_s, UTC)
    request.headers[b"date"] = moment.strftime("%a, %d %b %Y %H:%M:%S GMT").encode()
    del request.headers[b"x-amz-date"]
    assert claim_of(request).timestamp == claim.timestamp


# --- time


@pytest.mark.parametrize("later_s", [-SKEW_S, 0, SKEW_S])
def test_a_signature_holds_for_a_quarter_of_an_hour(later_s: int) -> None:
    check(signed(), later_s=later_s)


def test_an_old_signature_has_expired() -> None:
    error = refusal(signed(), later_s=SKEW_S + 1)
    assert error.code is SIGNATURE_DOES_NOT_MATCH
    assert error.message.startswith("Signature expired: ")
    assert error.message.endswith("- 15 min.)")


@pytest.mark.parametrize("make", [signed, presigned])
def test_a_signature_of_the_future_does_not_hold_yet(make: Callable[[], Request]) -> None:
    error = refusal(make(), later_s=-SKEW_S - 1)
    assert error.code is SIGNATURE_DOES_NOT_MATCH
    assert error.message.startswith("Signature not yet current: ")


def test_a_presigned_url_holds_as_long_as_it_says() -> None:
    check(presigned(expires_s=3_600), later_s=3_600)
    assert refusal(presigned(expires_s=3_600), later_s=3_601).code is REQUEST_EXPIRED


# --- what cannot be checked


def with_authorization(text: str) -> Request:
    request = signed()
    request.headers[b"authorization"] = text.encode()
    return request


def with_scope(old: str, new: str) -> Request:
    request = signed()
    text = request.headers[b"authorization"].decode()
    assert old in text
    return with_authorization(text.replace(old, new))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "requires 'Signature'"),
        ("Basic dXNlcjpwYXNz", "requires 'Signature'"),
        ("AWS4-HMAC-SHA256", "requires 'Signature'"),
        ("AWS4-HMAC-SHA256 Signature=" + "0" * 64, "requires 'Credential'"),
        ("AWS4-HMAC-SHA256 Credential=a/b/c/d/e, Signature=" + "0" * 64, "'SignedHeaders'"),
        ("AWS4-X SignedHeaders=host, Credential=a, Signature=" + "0" * 64, "Unsupported AWS"),
        (
            "AWS4-HMAC-SHA256 Credential=a/b/c/d, SignedHeaders=host, Signature=" + "0" * 64,
            "exactly 5 slash-delimited",
        ),
        (
            "AWS4-HMAC-SHA256 Credential="
            + "a" * 600
            + "/b/c/d/e, SignedHeaders=host, Signature="
            + "0" * 64,
            "exactly 5 slash-delimited",
        ),
        (
            "AWS4-HMAC-SHA256 Credential=é/b/c/d/e, SignedHeaders=host, Signature=" + "0" * 64,
            "exactly 5 slash-delimited",
        ),
        (
            "AWS4-HMAC-SHA256 Credential=a/20261120/us-east-1/sqs/aws4_request, SignedHeaders="
            + "host;" * 200
            + ", Signature="
            + "0" * 64,
            "more than 100 signed headers",
        ),
    ],
)
def test_an_incomplete_header_says_what_is_missing(text: str, message: str) -> None:
    error = refusal(with_authorization(text))
    assert error.code is INCOMPLETE_SIGNATURE
    assert message in error.message


def test_a_signature_without_a_time_is_incomplete() -> None:
    request = signed()
    del request.headers[b"x-amz-date"]
    assert refusal(request).code is INCOMPLETE_SIGNATURE


@pytest.mark.parametrize(
    "text",
    [
        b"today", b"20261120", b"20261320T000000Z", b"\xff", b"",
        b"Fri, 31 Dec 9999 23:59:59 -2359", b"Fri, 20 Nov 99999999999 12:00:00 GMT",
        b"Fri, 20 Nov 2026 12:00:00 GMT" + b" " * 100,
    ],
)  # fmt: skip
def test_a_time_that_is_none_is_incomplete(text: bytes) -> None:
    request = signed()
    request.headers[b"x-amz-date"] = text
    assert refusal(request).code is INCOMPLETE_SIGNATURE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("/sqs/", "/sns/", "correct service: 'sqs'"),
        ("aws4_request", "aws5_request", "valid terminator"),
        ("SignedHeaders=host;", "SignedHeaders=", "'Host' must be a 'SignedHeader'"),
        (f"{KEY_ID}/", f"{KEY_ID}/1", "Date in Credential scope does not match"),
        ("us-east-1", "us-east-2", "The request signature we calculated"),
        ("SignedHeaders=host;", "SignedHeaders=host;x-more;", "The request signature"),
    ],
)
def test_another_scope_does_not_match(old: str, new: str, message: str) -> None:
    error = refusal(with_scope(old, new))
    assert error.code is SIGNATURE_DOES_NOT_MATCH
    assert message in error.message


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Algorithm=AWS5", INCOMPLETE_SIGNATURE),
        ("X-Amz-Expires=60", "X-Amz-Expires=x", INCOMPLETE_SIGNATURE),
        ("X-Amz-Expires=60", f"X-Amz-Expires={EXPIRES_S_MAX + 1}", INCOMPLETE_SIGNATURE),
        ("X-Amz-Expires=60", "X-Amz-Expires=6", SIGNATURE_DOES_NOT_MATCH),
        ("X-Amz-Expires=60", "", INCOMPLETE_SIGNATURE),
        ("X-Amz-Credential=", "X-Amz-Nothing=", INCOMPLETE_SIGNATURE),
        ("X-Amz-Signature=", "X-Amz-Signature=0", SIGNATURE_DOES_NOT_MATCH),
        ("X-Amz-Date=2", "X-Amz-Date=x", INCOMPLETE_SIGNATURE),
    ],
)
def test_a_presigned_url_that_was_changed_is_refused(
    old: str, new: str, code: ErrorCode
) -> None:
    request = presigned(url="http://h/?Action=ListQueues")
    query = request.query.decode()
    assert old in query
    request.query = query.replace(old, new).encode()
    assert refusal(request).code is code


@given(text=st.binary(max_size=200))
def test_any_header_is_a_claim_or_refused(text: bytes) -> None:
    for query, headers in (
        (b"", {b"authorization": text, b"x-amz-date": b"20261120T000000Z"}),
        (b"X-Amz-Signature=0&" + text, {}),
    ):
        try:
            find_claim(Request(b"POST", b"/", query, headers, b"", is_last=False))
        except SqsError as error:
            assert error.code in {INCOMPLETE_SIGNATURE, SIGNATURE_DOES_NOT_MATCH}  # noqa: PT017


def test_caches_are_bounded() -> None:
    for name in (
        "_known_scope",
        "_cached_head_hash",
        "_hmac_hashes",
        "_key_hashes",
        "parse_timestamp",
    ):
        assert getattr(signature, name).cache_info().maxsize is not None


def test_only_short_headers_are_cached() -> None:
    cached = signature._known_scope.cache_info().currsize
    for number in range(3):
        names = "host;" + "x" * 10_000 + str(number)
        head = f"AWS4-HMAC-SHA256 Credential=a/b/c/sqs/aws4_request, SignedHeaders={names}, "
        claim = claim_of(with_authorization(head + "Signature=" + "0" * 64))
        assert len(claim.scope.signed_names) > 10_000
    assert signature._known_scope.cache_info().currsize == cached
