"""Check of AWS Signature Version 4, in the Authorization header or a presigned URL. Pure.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html

Caches hold what changes rarely: a client's credential scope and list of signed headers, and the
signing key (5 HMACs), as the state of a hash. They also hold the state of the hashes that the
requests of a client for one action in one second have in common.
"""

import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from adapters.sqs.auth.canonical_request import canonical_path, canonical_query, query_pairs
from adapters.sqs.errors import (
    INCOMPLETE_SIGNATURE,
    REQUEST_EXPIRED,
    SIGNATURE_DOES_NOT_MATCH,
    SqsError,
)
from adapters.sqs.http.shapes import SQS, STS
from adapters.sqs.wire import Request

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

ALGORITHM: Final = b"AWS4-HMAC-SHA256"
SERVICES: Final = frozenset({SQS, STS})
TERMINATOR: Final = "aws4_request"
EXPIRES_S_MAX: Final = 604_800
SIGNATURE_CHARS: Final = 64
SIGNED_HEADERS_MAX: Final = 100
CREDENTIAL_BYTES_MAX: Final = 512
TIMESTAMP_CHARS_MAX: Final = 64
SCOPES_CACHED_MAX: Final = 4_096
CACHED_SCOPE_BYTES_MAX: Final = 2_048  # of a header; SDKs send 300
SIGNING_KEYS_CACHED_MAX: Final = 4_096
REQUEST_HEADS_CACHED_MAX: Final = 1_024  # by client, action and second
HMACS_CACHED_MAX: Final = 1_024  # by client and second
CACHED_HEADERS_BYTES_MAX: Final = 1_024  # of the signed headers; SDKs send 150

_SIGNATURE: Final = b"Signature="
_PRESIGNED: Final = b"X-Amz-Signature"
_TARGET: Final = b"x-amz-target"
_SCOPE_PARTS: Final = 5
_EMPTY: Final = hashlib.sha256()
_INNER: Final = 0x36  # RFC 2104: the mask of the key before the inner hash
_OUTER: Final = 0x5C  # and before the outer hash
_WRONG: Final = (
    "The request signature we calculated does not match the signature you provided. Check your "
    "AWS Secret Access Key and signing method. Consult the service documentation for details."
)


class Scope(NamedTuple):
    """The credential and the signed headers that a client names."""

    key_id: str
    date: bytes
    region: str
    service: str
    lines: bytes  # of the signed headers, with %b for their values
    values_of: Callable[[dict[bytes, bytes]], Any]
    signed_names: bytes
    signs_target: bool


class Claim(NamedTuple):
    """A signature to be checked. ``expires_s`` is None for one in a header."""

    scope: Scope
    signature: bytes
    timestamp: bytes
    signed_unix_s: int
    expires_s: int | None
    session_token: bytes


def find_claim(request: Request) -> Claim | None:
    """Return the signature of a request, or None without one. Errors: ``SqsError``."""
    authorization = request.headers.get(b"authorization")
    if authorization is not None:
        return _claim_of_header(request, authorization)
    if _PRESIGNED in request.query:
        return _claim_of_query(request)
    return None


def _claim_of_header(request: Request, authorization: bytes) -> Claim:
    head, _, signature = authorization.rpartition(_SIGNATURE)
    if len(signature) != SIGNATURE_CHARS or not head:  # an order that no SDK has
        head, signature = _reordered(authorization)
    headers = request.headers
    timestamp = headers.get(b"x-amz-date") or headers.get(b"date")
    if timestamp is None:
        raise _incomplete(
            "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."
        )
    timestamp, unix_s = parse_timestamp(timestamp)
    token = headers.get(b"x-amz-security-token", b"")
    # Unauthenticated peers send headers too: only small ones are cached.
    find_scope = _known_scope if len(head) <= CACHED_SCOPE_BYTES_MAX else _scope_of_head
    return Claim(find_scope(head), signature, timestamp, unix_s, None, token)


def _reordered(authorization: bytes) -> tuple[bytes, bytes]:
    """Return the header without its signature, and the signature, in any order of fields."""
    algorithm, _, rest = authorization.partition(b" ")
    parts = [part.strip() for part in rest.split(b",")]
    signatures = [part for part in parts if part.startswith(_SIGNATURE)]
    if algorithm != ALGORITHM or len(signatures) != 1:
        raise _incomplete("Authorization header requires 'Signature' parameter.")
    others = b",".join(part for part in parts if part is not signatures[0])
    return ALGORITHM + b" " + others, signatures[0].removeprefix(_SIGNATURE)


def _scope_of_head(head: bytes) -> Scope:
    algorithm, _, rest = head.partition(b" ")
    if algorithm != ALGORITHM:
        raise _incomplete(f"Unsupported AWS 'algorithm': '{_shown(algorithm)}'.")
    fields: dict[bytes, bytes] = {}
    for part in rest.split(b","):
        name, _, value = part.strip().partition(b"=")
        fields[name] = value
    for name in (b"Credential", b"SignedHeaders"):
        if not fields.get(name):
            raise _incomplete(f"Authorization header requires '{name.decode()}' parameter.")
    return _make_scope(fields[b"Credential"], fields[b"SignedHeaders"])


_known_scope: Final = lru_cache(maxsize=SCOPES_CACHED_MAX)(_scope_of_head)


def _make_scope(credential: bytes, signed_headers: bytes) -> Scope:
    try:
        parts = credential.decode("ascii").rsplit("/", _SCOPE_PARTS - 1)
    except UnicodeDecodeError:
        parts = []
    if (
        len(parts) != _SCOPE_PARTS
        or not all(parts)
        or len(credential) > CREDENTIAL_BYTES_MAX  # a signing key is cached by it
    ):
        raise _incomplete(
            "Credential must have exactly 5 slash-delimited elements, e.g. "
            f"keyid/date/region/service/term, got '{_shown(credential)}'."
        )
    key_id, date, region, service, terminator = parts
    if terminator != TERMINATOR:
        raise _mismatch(
            f"Credential should be scoped with a valid terminator: '{TERMINATOR}', "
            f"not '{terminator[:100]}'."
        )
    if service not in SERVICES:
        raise wrong_service(SQS)
    names = tuple(signed_headers.lower().split(b";"))
    if b"host" not in names:
        raise _mismatch("'Host' must be a 'SignedHeader' in the AWS Authorization.")
    if len(names) > SIGNED_HEADERS_MAX:
        raise _incomplete(f"There are more than {SIGNED_HEADERS_MAX} signed headers.")
    lines = b"".join(name.replace(b"%", b"%%") + b":%b\n" for name in names)
    return Scope(
        key_id,
        date.encode("ascii"),
        region,
        service,
        lines,
        itemgetter(*names),
        signed_headers.lower(),
        _TARGET in names,
    )


def _claim_of_query(request: Request) -> Claim:
    fields = {
        name: value for name, value in query_pairs(request.query) if name.startswith(b"X-Amz-")
    }
    for name in (b"Algorithm", b"Credential", b"Date", b"SignedHeaders", b"Expires"):
        if not fields.get(b"X-Amz-" + name):
            raise _incomplete(
                f"AWS query-string parameters must include 'X-Amz-{name.decode()}'."
            )
    if fields[b"X-Amz-Algorithm"] != ALGORITHM:
        algorithm = _shown(fields[b"X-Amz-Algorithm"])
        raise _incomplete(f"Unsupported AWS 'algorithm': '{algorithm}'.")
    expires = fields[b"X-Amz-Expires"]
    if not expires.isdigit() or len(expires) > 6 or int(expires) > EXPIRES_S_MAX:  # noqa: PLR2004
        raise _incomplete(f"X-Amz-Expires must be 0 to {EXPIRES_S_MAX} seconds.")
    timestamp, unix_s = parse_timestamp(fields[b"X-Amz-Date"])
    scope = _make_scope(fields[b"X-Amz-Credential"], fields[b"X-Amz-SignedHeaders"])
    token = fields.get(b"X-Amz-Security-Token", b"")
    signature = fields.get(_PRESIGNED, b"")
    return Claim(scope, signature, timestamp, unix_s, int(expires), token)


@lru_cache(maxsize=1_024)
def parse_timestamp(text: bytes) -> tuple[bytes, int]:
    """Return a signature's time as it is signed (``20261120T120000Z``), and in unix seconds."""
    try:
        moment = _parse_moment(text.decode("ascii"))
    except (ValueError, OverflowError):  # UnicodeDecodeError is one
        raise _incomplete(
            f"Date must be in ISO-8601 'basic format'. Got '{_shown(text)}'."
        ) from None
    return moment.strftime("%Y%m%dT%H%M%SZ").encode("ascii"), int(moment.timestamp())


def _parse_moment(text: str) -> datetime:
    if len(text) > TIMESTAMP_CHARS_MAX:
        raise ValueError("too long")
    if text.endswith("Z"):
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return parsedate_to_datetime(text).astimezone(UTC)


def check_time(claim: Claim, now_unix_ms: int, *, skew_s_max: int) -> None:
    """Refuse a signature that is too old or lies in the future. Errors: ``SqsError``."""
    now_s = now_unix_ms // 1_000
    if claim.signed_unix_s > now_s + skew_s_max:
        raise _mismatch(
            f"Signature not yet current: {claim.timestamp.decode()} is still later than "
            f"{_format(now_s + skew_s_max)} ({_format(now_s)} + {skew_s_max // 60} min.)"
        )
    if claim.expires_s is not None:
        if claim.signed_unix_s + claim.expires_s < now_s:
            raise SqsError(REQUEST_EXPIRED, "Request has expired.")
    elif claim.signed_unix_s < now_s - skew_s_max:
        raise _mismatch(
            f"Signature expired: {claim.timestamp.decode()} is now earlier than "
            f"{_format(now_s - skew_s_max)} ({_format(now_s)} - {skew_s_max // 60} min.)"
        )
    scope = claim.scope
    if not claim.timestamp.startswith(scope.date):
        raise _mismatch(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from "
            f"HTTP: '{_shown(scope.date)}' != '{claim.timestamp[:8].decode()}', from "
            f"'{claim.timestamp.decode()}'."
        )


def check_signature(request: Request, claim: Claim, secret: str) -> None:
    """Refuse a signature that the secret would not make. Errors: ``SqsError``.

    ``X-Amz-Target``, which names the action, has to be signed: otherwise a presigned URL for one
    action could be used for another.
    """
    scope = claim.scope
    if not scope.signs_target and _TARGET in request.headers:
        raise _mismatch("'X-Amz-Target' must be a 'SignedHeader' in the AWS Authorization.")
    canonical = _canonical_hash(request, scope)
    inner, outer = _hmac_hashes(
        secret, scope.date, scope.region, scope.service, claim.timestamp
    )
    inner, outer = inner.copy(), outer.copy()
    inner.update(canonical.hexdigest().encode())
    outer.update(inner.digest())
    if not hmac.compare_digest(outer.hexdigest().encode(), claim.signature):
        raise _mismatch(_WRONG)


def _canonical_hash(request: Request, scope: Scope) -> "Hash":
    """Return the hash of the canonical request. Errors: ``SqsError``."""
    try:
        lines = scope.lines % scope.values_of(request.headers)
    except KeyError:
        raise _mismatch(_WRONG) from None  # a header that is missing was not signed
    if request.path == b"/" and not request.query and len(lines) <= CACHED_HEADERS_BYTES_MAX:
        canonical = _cached_head_hash(request.method, lines, scope.signed_names).copy()
    else:
        query = canonical_query(request.query, but=_PRESIGNED) if request.query else b""
        path = canonical_path(request.path)
        lines = _trimmed(lines, scope.signed_names)
        canonical = _head_hash(request.method, path, query, lines, scope.signed_names)
    body = _EMPTY.copy()  # a copy of an empty hash costs a third of a new one
    body.update(request.body)
    canonical.update(body.hexdigest().encode())
    return canonical


@lru_cache(maxsize=REQUEST_HEADS_CACHED_MAX)
def _cached_head_hash(method: bytes, lines: bytes, signed_names: bytes) -> "Hash":
    """Return the hash that the requests of a client to "/" in one second have in common."""
    return _head_hash(method, b"/", b"", _trimmed(lines, signed_names), signed_names)


def _head_hash(
    method: bytes, path: bytes, query: bytes, lines: bytes, signed_names: bytes
) -> "Hash":
    """Return the hash of a canonical request up to the hash of its body."""
    digest = _EMPTY.copy()
    digest.update(b"\n".join((method, path, query, lines, signed_names, b"")))
    return digest


def _trimmed(lines: bytes, signed_names: bytes) -> bytes:
    """Return header lines with runs of white space as one space, and none at the end."""
    if b"  " not in lines and b" \n" not in lines and b"\t" not in lines:
        return lines
    names = signed_names.split(b";")
    values = lines[:-1].split(b"\n")  # neither names nor values hold a line feed
    return b"".join(
        [
            b"%b:%b\n" % (name, b" ".join(line[len(name) + 1 :].split()))
            for name, line in zip(names, values, strict=True)
        ]
    )


@lru_cache(maxsize=HMACS_CACHED_MAX)
def _hmac_hashes(
    secret: str, date: bytes, region: str, service: str, timestamp: bytes
) -> tuple["Hash", "Hash"]:
    """Return the two hashes of a signature's HMAC, up to the hash of the canonical request."""
    inner, outer = _key_hashes(secret, date, region, service)
    inner = inner.copy()
    scope = f"/{region}/{service}/{TERMINATOR}\n".encode("ascii")
    inner.update(b"\n".join((ALGORITHM, timestamp, date + scope)))
    return inner, outer


@lru_cache(maxsize=SIGNING_KEYS_CACHED_MAX)
def _key_hashes(secret: str, date: bytes, region: str, service: str) -> tuple["Hash", "Hash"]:
    """Return the two hashes of an HMAC (RFC 2104) that have taken in the signing key.

    A signature from copies of them takes 0.9 us, ``hmac.digest`` with the key 2.6 us.
    """
    key = hmac.digest(("AWS4" + secret).encode(), date, "sha256")
    for step in (region, service, TERMINATOR):
        key = hmac.digest(key, step.encode("ascii"), "sha256")
    block = key.ljust(_EMPTY.block_size, b"\0")
    return (
        hashlib.sha256(bytes(byte ^ _INNER for byte in block)),
        hashlib.sha256(bytes(byte ^ _OUTER for byte in block)),
    )


def _format(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y%m%dT%H%M%SZ")


def _shown(data: bytes) -> str:
    return data[:100].decode("ascii", "replace")


def wrong_service(service: str) -> SqsError:
    """Return the error for a request that was signed for another service."""
    return _mismatch(f"Credential should be scoped to correct service: '{service}'.")


def _incomplete(message: str) -> SqsError:
    return SqsError(INCOMPLETE_SIGNATURE, message)


def _mismatch(message: str) -> SqsError:
    return SqsError(SIGNATURE_DOES_NOT_MATCH, message)
