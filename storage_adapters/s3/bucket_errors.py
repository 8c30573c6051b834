"""Errors of a bucket, and the verdict on botocore's errors: try again, renew, or give up.

Error texts are made here, from the server's code and message: botocore's own may show URLs with
the passwords of proxies.
"""

import enum
from typing import Final, NamedTuple

import urllib3.exceptions
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from gateway.errors import StorageUnavailable

_SAID_MAX: Final = 200  # characters of a server's message


class BucketUnavailable(StorageUnavailable):
    """The bucket did not do the request after all tries. A later call may succeed."""


class BucketRefused(BucketUnavailable):
    """The bucket refuses the request until an operator corrects the cause; the text names it."""


class ObjectMissing(StorageUnavailable):
    """Missing object: no object has that key."""


class KeyTaken(StorageUnavailable):
    """Another object has that key already; it was not touched."""

    retriable = False


class BodyBroken(Exception):
    """An answer that does not match the request; the text names the difference."""


class WrongChecksum(Exception):
    """The server's checksum differs from that of the bytes sent."""


class ChecksumUnknown(Exception):
    """The server does not support the checksum; it gets another one from now on."""


class TooSlow(Exception):
    """A body arrives too slowly."""


class Verdict(enum.Enum):
    """Reaction to an error."""

    AGAIN = enum.auto()  # after a pause
    RENEW = enum.auto()  # after reading the credentials again
    REFUSED = enum.auto()
    MISSING = enum.auto()
    TAKEN = enum.auto()


class RequestFault(NamedTuple):
    """Verdict on an error. ``reason``: one of a few words, for metrics. ``text``: for people."""

    verdict: Verdict
    reason: str
    text: str


_EXPIRED: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
)
_SLOW_DOWN: Final = frozenset(
    {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests"}
)
_BROKEN_ON_THE_WAY: Final = frozenset(
    {"BadDigest", "IncompleteBody", "InvalidRange", "RequestTimeout"}
    | {"XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}
)
_CONFLICT: Final = frozenset({"ConditionalRequestConflict", "OperationAborted"})

_ALLOW: Final = (
    "allow these credentials s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket and "
    "s3:AbortMultipartUpload"
)
_CORRECT_KEY: Final = (
    "correct the access key that AWS tools find here (environment, profile, role)"
)
_CORRECT_REGION: Final = "set storage.region to the bucket's region"
_SET_CLOCK: Final = "set the clock of this machine"
_RENEW: Final = "renew the credentials"
_ADVICE: Final = {
    "NoSuchBucket": "make the bucket, or correct storage.bucket",
    "InvalidBucketName": "correct storage.bucket",
    "AccessDenied": _ALLOW,
    "403": _ALLOW,
    "InvalidAccessKeyId": _CORRECT_KEY,
    "SignatureDoesNotMatch": _CORRECT_KEY,
    "InvalidToken": _RENEW,
    "RequestTimeTooSkewed": _SET_CLOCK,
    "PermanentRedirect": _CORRECT_REGION,
    "AuthorizationHeaderMalformed": _CORRECT_REGION,
    "IllegalLocationConstraintException": _CORRECT_REGION,
    "301": _CORRECT_REGION,
    "NotImplemented": "use a server that knows conditional PUTs (If-None-Match)",
}

# In this order: a subclass stands before its base.
_REFUSALS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (
        boto.NoCredentialsError,
        "there are no credentials; set AWS_ACCESS_KEY_ID and its secret, a profile or a role",
    ),
    (
        boto.PartialCredentialsError,
        "the credentials are incomplete; set the access key and its secret",
    ),
    (boto.ProfileNotFound, "the AWS profile is not there; correct storage.profile"),
    (boto.ConfigParseError, "the AWS configuration cannot be read; correct its file"),
    (boto.InvalidRegionError, "no such region; correct storage.region"),
    (boto.InvalidProxiesConfigError, "the proxy is not usable; correct HTTPS_PROXY"),
    (boto.ParamValidationError, "the request is not valid; correct storage.bucket and prefix"),
)
_OWN: Final = {
    TooSlow: "timeout",
    BodyBroken: "broken",
    WrongChecksum: "wrong_checksum",
    ChecksumUnknown: "checksum_unknown",
}
_AGAIN: Final[tuple[tuple[type[Exception], str, str], ...]] = (
    (boto.ConnectTimeoutError, "timeout", "no connection within storage.connect_timeout_ms"),
    (boto.ReadTimeoutError, "timeout", "no answer within storage.request_timeout_ms"),
    (urllib3.exceptions.TimeoutError, "timeout", "the body stopped coming"),
    (
        boto.ProxyConnectionError,
        "connection",
        "no connection to the proxy; look at HTTPS_PROXY",
    ),
    (boto.SSLError, "connection", "no TLS; is its certificate one of storage.ca_file's?"),
    (boto.EndpointConnectionError, "connection", "nobody answers there"),
    (boto.HTTPClientError, "connection", "the connection broke"),
    (urllib3.exceptions.HTTPError, "broken", "the body broke off"),
    (boto.IncompleteReadError, "broken", "the body broke off"),
    (ResponseParserError, "broken", "the answer is not one of S3's"),
    (OSError, "connection", "the connection broke"),
)

EXPECTED: Final = (
    boto.BotoCoreError,
    boto.ClientError,
    ResponseParserError,
    urllib3.exceptions.HTTPError,
    OSError,
    BodyBroken,
    TooSlow,
    WrongChecksum,
    ChecksumUnknown,
)


def judge(error: Exception) -> RequestFault:
    """Return the verdict on an error of botocore, urllib3 or this adapter.

    >>> judge(TooSlow("the body came too slowly")).verdict
    <Verdict.AGAIN: 1>
    """
    if isinstance(error, boto.ClientError):
        return _judge_answer(error)
    if isinstance(error, tuple(_OWN)):
        return RequestFault(Verdict.AGAIN, _OWN[type(error)], str(error))
    if isinstance(error, (boto.CredentialRetrievalError, boto.MetadataRetrievalError)):
        text = f"credentials could not be got; {_RENEW}, or look at what gives them"
        return RequestFault(Verdict.RENEW, "credentials", text)
    for kind, reason, text in _AGAIN:
        if isinstance(error, kind):
            return RequestFault(Verdict.AGAIN, reason, text)
    texts = [text for kind, text in _REFUSALS if isinstance(error, kind)]
    texts.append(f"{type(error).__name__}; look at [storage]")
    return RequestFault(Verdict.REFUSED, "refused", texts[0])


def code_of(error: Exception) -> str:
    """Return the code of an S3 error answer, empty for other errors."""
    if not isinstance(error, boto.ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


def _judge_answer(error: boto.ClientError) -> RequestFault:
    code = code_of(error)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    text = _said(error, code, status)
    fault = _judge_code(code, text) or _judge_status(status, text)
    if fault is not None:
        return fault
    advice = _ADVICE.get(code) or _ADVICE.get(str(status))
    return RequestFault(Verdict.REFUSED, "refused", f"{text}; {advice}" if advice else text)


def _judge_code(code: str, text: str) -> RequestFault | None:
    if code in _EXPIRED:
        return RequestFault(Verdict.RENEW, "credentials", f"{text}; {_RENEW}")
    if code in _SLOW_DOWN:
        return RequestFault(Verdict.AGAIN, "slow_down", text)
    if code in _BROKEN_ON_THE_WAY:
        return RequestFault(Verdict.AGAIN, "broken", text)
    if code in _CONFLICT:
        return RequestFault(Verdict.AGAIN, "conflict", text)
    if code in {"NoSuchBucket", "NotImplemented"}:
        return RequestFault(Verdict.REFUSED, "refused", f"{text}; {_ADVICE[code]}")
    return None


def _judge_status(status: int, text: str) -> RequestFault | None:
    if status == 404:  # noqa: PLR2004 - codes of HTTP say more than names
        return RequestFault(Verdict.MISSING, "missing", text)
    if status == 412:  # noqa: PLR2004
        return RequestFault(Verdict.TAKEN, "taken", "another object has that key")
    if status in {429, 503}:
        return RequestFault(Verdict.AGAIN, "slow_down", text)
    if status >= 500:  # noqa: PLR2004
        return RequestFault(Verdict.AGAIN, "server", text)
    return None


def _said(error: boto.ClientError, code: str, status: int) -> str:
    """Return the server's code and message, on one line and bounded."""
    message = " ".join(str(error.response.get("Error", {}).get("Message", "")).split())
    name = code if code and code != str(status) else f"status {status}"
    return f"{name}: {message[:_SAID_MAX]}" if message else name
