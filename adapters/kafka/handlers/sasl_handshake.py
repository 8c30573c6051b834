"""SaslHandshake: API key 17, versions 0 to 1. Never flexible.

v0  the exchange follows in frames without headers; refused. It is advertised because librdkafka
    expects it, and then uses v1
v1  the exchange follows in SaslAuthenticate requests (KIP-152)

A connection whose login ends may begin a second exchange, by the same mechanism (KIP-368).
"""

from typing import Final

from kafka.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse

from adapters.kafka.access.sasl import SaslExchange, mechanisms_of
from adapters.kafka.errors import ErrorCode
from adapters.kafka.session import Session
from gateway.auth.login_throttle import Peer

API_KEY: Final = 17
VERSIONS: Final = range(2)


def handle(
    request: SaslHandshakeRequest, session: Session, version: int
) -> SaslHandshakeResponse:
    """Select a mechanism and start an exchange."""
    code = _choose(request.mechanism, session, version)
    mechanisms = list(mechanisms_of(session.node)) if session.accepts_sasl else []
    return SaslHandshakeResponse(version=version, error_code=code, mechanisms=mechanisms)


def _choose(mechanism: str, session: Session, version: int) -> ErrorCode:
    before: SaslExchange | None = session.sasl
    if before is not None and not (before.is_over and session.ends_unix_ms):
        return ErrorCode.ILLEGAL_SASL_STATE  # an exchange has begun, or is over
    if mechanism not in mechanisms_of(session.node) or not session.accepts_sasl:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM
    if before is not None and mechanism != before.mechanism:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM
    if version == 0:
        return ErrorCode.UNSUPPORTED_VERSION
    session.sasl = SaslExchange(mechanism, session.node, Peer("kafka", session.peer_host))
    return ErrorCode.NONE
