"""Who has signed a moment ago: what his requests of one second share, for what they ask.

Of a signature that was found right is remembered whose it is, when it was made and what with. The
next request of the same client, second and address has one thing to show: that its own is made
with the same. What is odd about it, if anything, is said by ``RequestAuthenticator``.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.sqs.auth.signature import (
    SIGNATURE_CHARS,
    Claim,
    begun_signature,
    check_time,
    is_right,
)
from adapters.sqs.call import Identity
from adapters.sqs.wire import Request

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

SIGNERS_REMEMBERED: Final = 4_096
HEAD_BYTES_MAX: Final = 2_048  # of a header that is remembered; SDKs send 200

_AUTHORIZATION: Final = b"authorization"
_DATE: Final = b"x-amz-date"
_TARGET: Final = b"x-amz-target"
_TOKEN: Final = b"x-amz-security-token"

_Key = tuple[bytes, bytes, str]  # the Authorization header up to its signature, date, address


class _Signer(NamedTuple):
    """A client in one second."""

    claim: Claim
    begun: tuple["Hash", "Hash"]
    identity: Identity


class Signers:
    """Those that are remembered; all of them until a key comes or goes."""

    def __init__(self, *, skew_s_max: int) -> None:
        self._skew_s_max = skew_s_max
        self._revision = 0  # of the access keys
        self._signers: dict[_Key, _Signer] = {}

    def find(
        self, request: Request, peer_host: str, now_unix_ms: int, revision: int
    ) -> Identity | None:
        """Return who has signed a request, None when that is for the long way to say.

        Errors: ``SqsError``, as ``check_time`` and ``check_signature``.
        """
        headers = request.headers
        authorization = headers.get(_AUTHORIZATION)
        date = headers.get(_DATE)
        if authorization is None or date is None:
            return None
        signer = self._signers.get((authorization[:-SIGNATURE_CHARS], date, peer_host))
        if (
            signer is None
            or revision != self._revision
            or _TOKEN in headers
            or not (signer.claim.scope.signs_target or _TARGET not in headers)
        ):
            return None
        check_time(signer.claim, now_unix_ms, skew_s_max=self._skew_s_max)
        signature = authorization[-SIGNATURE_CHARS:]
        is_his = is_right(request, signer.claim.scope, signer.begun, signature)
        return signer.identity if is_his else None

    def remember(  # noqa: PLR0917 - what was found of a request; called in one place
        self,
        request: Request,
        peer_host: str,
        claim: Claim,
        secret: str,
        identity: Identity,
        revision: int,
    ) -> None:
        """A signature was right: remember what it has shown, if it is of the usual kind."""
        headers, scope = request.headers, claim.scope
        authorization = headers.get(_AUTHORIZATION, b"")
        head = authorization[:-SIGNATURE_CHARS]
        if (
            authorization[-SIGNATURE_CHARS:] != claim.signature
            or claim.expires_s is not None
            or headers.get(_DATE) != claim.timestamp
            or len(head) > HEAD_BYTES_MAX
        ):
            return
        if revision != self._revision or len(self._signers) >= SIGNERS_REMEMBERED:
            self._revision = revision
            self._signers.clear()
        begun = begun_signature(secret, scope, claim.timestamp)
        key = (head, claim.timestamp, peer_host)
        self._signers[key] = _Signer(claim, begun, identity)
