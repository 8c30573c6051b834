"""SaslHandshake: API key 17, versions 0 to 1. Never flexible.

v0  the exchange follows in frames without headers; refused. It is advertised because librdkafka
    expects it, and then uses v1
v1  the exchange follows in SaslAuthenticate requests (KIP-152)
"""

from typing import Final

from kafka.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse

from adapters.kafka.access.sasl import MECHANISMS, SaslExchange
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
    mechanisms = list(MECHANISMS) if session.accepts_sasl else []
    return SaslHandshakeResponse(version=version, error_code=code, mechanisms=mechanisms)


def _choose(mechanism: str, session: Session, version: int) -> ErrorCode:
    if session.sasl is not None:
        return ErrorCode.ILLEGAL_SASL_STATE  # an exchange has begun, or is over
    if mechanism not in MECHANISMS or not session.accepts_sasl:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM
    if version == 0:
        return ErrorCode.UNSUPPORTED_VERSION
    node, peer = session.node, Peer("kafka", session.peer_host)
    session.sasl = SaslExchange(mechanism, node.authenticator, node.logins, peer)
    return ErrorCode.NONE
