"""SASL OAUTHBEARER (RFC 7628), and logins that end and are made again (KIP-368)."""

from dataclasses import replace
from pathlib import Path

import pytest

from adapters.kafka.codec import RequestHeader
from adapters.kafka.config import KafkaConfig
from adapters.kafka.errors import ErrorCode
from adapters.kafka.requests.request_codec import find_api
from adapters.kafka.session import Session
from gateway.auth.jwks import KeySet
from gateway.auth.tokens import TokenValidator
from gateway.config.oauth import OauthConfig
from gateway.errors import PeerError
from tests.adapters.kafka.handlers.handler_fixture import Rig
from tests.adapters.kafka.handlers.test_sasl import handshake, send
from tests.support.tokens import Authority, write_keys

AUTHORITY = Authority()
REAUTH_MS = 60_000
METADATA = RequestHeader(3, 9, 1, "", 0)
HANDSHAKE = RequestHeader(17, 1, 1, "", 0)


@pytest.fixture
async def session(rig: Rig, tmp_path: Path) -> Session:
    config = OauthConfig(jwks=str(write_keys(tmp_path / "jwks.json", AUTHORITY)))
    keys = KeySet(config, rig.clock)
    await keys.load()
    tokens = TokenValidator(config, keys, rig.clock)
    kafka = KafkaConfig(connections_max_reauth_ms=REAUTH_MS)
    rig.node = replace(rig.node, tokens=tokens, config=kafka)
    await rig.users.put_user("ada", "secret")
    return Session(rig.node, peer_host="10.1.2.3", advertised=rig.session.advertised)


def message(rig: Rig, user: str, seconds: int = 600, authzid: str = "") -> bytes:
    token = AUTHORITY.token(user, rig.clock.wall_unix_ms() / 1_000 + seconds)
    return f"n,{authzid},\x01auth=Bearer {token}\x01\x01".encode()


async def log_in(rig: Rig, session: Session, data: bytes) -> int:
    """Log in by a token; return the lifetime of the login."""
    chosen = await handshake(rig, session, "OAUTHBEARER")
    assert chosen.error_code == ErrorCode.NONE
    assert "OAUTHBEARER" in chosen.mechanisms
    answer = await send(rig, session, data)
    assert (answer.error_code, answer.auth_bytes) == (ErrorCode.NONE, b"")
    return int(answer.session_lifetime.total_seconds() * 1_000)


@pytest.mark.parametrize(("seconds", "lifetime_ms"), [(600, REAUTH_MS), (20, 20_000)])
async def test_a_token_gives_the_session_its_principal(
    rig: Rig, session: Session, seconds: int, lifetime_ms: int
) -> None:
    found_ms = await log_in(rig, session, message(rig, "ada", seconds, "a=ada"))
    assert lifetime_ms - 1 <= found_ms <= lifetime_ms
    assert session.principal == ("ada", "kafka", "10.1.2.3")


@pytest.mark.parametrize("bad", ["garbage", "another"])
async def test_a_refused_token_is_explained_and_then_refused(
    rig: Rig, session: Session, bad: str
) -> None:
    await handshake(rig, session, "OAUTHBEARER")
    data = b"garbage" if bad == "garbage" else message(rig, "ada", authzid="a=eve")
    challenge = await send(rig, session, data)
    assert (challenge.error_code, challenge.auth_bytes) == (
        ErrorCode.NONE,
        b'{"status":"invalid_token"}',
    )
    assert not session.is_authenticated
    answer = await send(rig, session, b"\x01")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert session.is_rejected
    assert rig.node.logins.refused["kafka"] == 1


async def test_without_an_authority_there_is_no_such_mechanism(rig: Rig) -> None:
    session = Session(rig.node, peer_host="10.1.2.3", advertised=rig.session.advertised)
    chosen = await handshake(rig, session, "OAUTHBEARER")
    assert chosen.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert "OAUTHBEARER" not in chosen.mechanisms


async def test_requests_after_the_end_of_a_login_close_the_connection(
    rig: Rig, session: Session
) -> None:
    await handshake(rig, session, "PLAIN")
    answer = await send(rig, session, b"\0ada\0secret")
    assert answer.session_lifetime.total_seconds() * 1_000 == REAUTH_MS
    rig.clock.advance(REAUTH_MS - 1)
    find_api(METADATA, session)
    rig.clock.advance(1)
    with pytest.raises(PeerError, match="after the end of the login"):
        find_api(METADATA, session)
    find_api(HANDSHAKE, session)


async def test_a_login_is_made_again_on_the_same_connection(rig: Rig, session: Session) -> None:
    await log_in(rig, session, message(rig, "ada", 20))
    rig.clock.advance(15_000)
    assert await log_in(rig, session, message(rig, "ada")) == REAUTH_MS
    rig.clock.advance(30_000)
    find_api(METADATA, session)


@pytest.mark.parametrize("way", ["another user", "another mechanism", "in between"])
async def test_a_login_is_made_again_by_the_same_user_and_mechanism(
    rig: Rig, session: Session, way: str
) -> None:
    await log_in(rig, session, message(rig, "ada"))
    if way == "another mechanism":
        chosen = await handshake(rig, session, "PLAIN")
        assert chosen.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return
    await handshake(rig, session, "OAUTHBEARER")
    if way == "in between":
        chosen = await handshake(rig, session, "OAUTHBEARER")
        assert chosen.error_code == ErrorCode.ILLEGAL_SASL_STATE
        return
    answer = await send(rig, session, message(rig, "eve"))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert session.is_rejected
    assert session.principal.name == "ada"
