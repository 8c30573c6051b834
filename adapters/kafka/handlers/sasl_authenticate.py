"""SaslAuthenticate: API key 36, versions 0 to 2 (KIP-152).

v1  session_lifetime_ms (KIP-368); 0, sessions do not expire
v2  flexible encoding (KIP-482)
"""

from typing import Final

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse

from adapters.kafka.access.sasl import SaslExchange
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
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
    if step.username is not None:
        session.principal = session.principal._replace(name=step.username)
        session.is_authenticated = True
    return _answer(version, ErrorCode.NONE, None, step.data)


def _answer(
    version: int, code: ErrorCode, message: str | None, data: bytes = b""
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        version=version,
        error_code=code,
        error_message=message,
        auth_bytes=data,
        session_lifetime_ms=0,
    )
