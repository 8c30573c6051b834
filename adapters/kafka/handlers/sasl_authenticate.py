"""SaslAuthenticate: API key 36, versions 0 to 2 (KIP-152).

v1  session_lifetime_ms (KIP-368): how long the login lasts; 0, for ever
v2  flexible encoding (KIP-482)
"""

from typing import Final

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse

from adapters.kafka.access.sasl import SaslExchange
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.scram_login import LoginStep
from gateway.errors import GatewayError, public_text

API_KEY: Final = 36
VERSIONS: Final = range(3)


async def handle(
    request: SaslAuthenticateRequest, session: Session, version: int
) -> SaslAuthenticateResponse:
    """Process one message of the exchange; the last one gives the session its principal."""
    exchange: SaslExchange | None = session.sasl
    if exchange is None or exchange.is_over:
        session.is_rejected = True
        return _answer(
            version,
            ErrorCode.ILLEGAL_SASL_STATE,
            "SaslAuthenticate comes after SaslHandshake, and once",
        )
    try:
        step = await exchange.receive(request.auth_bytes)
    except GatewayError as error:
        session.is_rejected = True
        return _answer(version, code_of(error), f"Authentication failed: {public_text(error)}")
    if step.username is None:
        return _answer(version, ErrorCode.NONE, None, step.data)
    if session.ends_unix_ms and step.username != session.principal.name:
        session.is_rejected = True
        msg = "Authentication failed: a connection keeps its user when it logs in again"
        return _answer(version, ErrorCode.SASL_AUTHENTICATION_FAILED, msg)
    session.principal = session.principal._replace(name=step.username)
    session.is_authenticated = True
    lifetime_ms = _begin(session, step)
    return _answer(version, ErrorCode.NONE, None, step.data, lifetime_ms)


def _begin(session: Session, step: LoginStep) -> int:
    """Set when the login ends; return the milliseconds until then, 0 for never.

    As in Kafka, a token's own end counts only where logins end at all.
    """
    lifetime_ms = session.node.config.connections_max_reauth_ms
    if not lifetime_ms:
        return 0
    clock = session.node.clock
    if step.expires_unix_ms is not None:
        lifetime_ms = min(lifetime_ms, max(step.expires_unix_ms - clock.wall_unix_ms(), 1))
    session.ends_unix_ms = clock.steady_unix_ms() + lifetime_ms
    return lifetime_ms


def _answer(
    version: int,
    code: ErrorCode,
    message: str | None,
    data: bytes = b"",
    lifetime_ms: int = 0,
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        version=version,
        error_code=code,
        error_message=message,
        auth_bytes=data,
        session_lifetime_ms=lifetime_ms,
    )
