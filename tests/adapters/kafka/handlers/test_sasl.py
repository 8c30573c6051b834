"""SaslHandshake and SaslAuthenticate: the order of the exchange, and its principal."""

from typing import Any

import pytest
from kafka.net.sasl.scram import ScramClient

from adapters.kafka.access.sasl import MECHANISMS, parse_plain
from adapters.kafka.errors import ErrorCode
from adapters.kafka.session import Session
from gateway.errors import Unauthenticated
from tests.adapters.kafka.handlers.handler_fixture import Rig


async def connect(rig: Rig) -> Session:
    await rig.users.put_user("ada", "secret")
    return Session(rig.node, peer_host="10.1.2.3", advertised=rig.session.advertised)


def is_inside(session: Session) -> bool:
    return session.is_authenticated


async def handshake(rig: Rig, session: Session, mechanism: str, version: int = 1) -> Any:
    return await rig.ask("sasl_handshake", version, session=session, mechanism=mechanism)


async def send(rig: Rig, session: Session, data: bytes, version: int = 2) -> Any:
    return await rig.ask("sasl_authenticate", version, session=session, auth_bytes=data)


@pytest.mark.parametrize("version", range(3))
async def test_plain_gives_the_session_its_principal(rig: Rig, version: int) -> None:
    session = await connect(rig)
    assert not is_inside(session)

    chosen = await handshake(rig, session, "PLAIN")
    answer = await send(rig, session, b"\0ada\0secret", version)

    assert chosen.mechanisms == MECHANISMS == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert (answer.error_code.value, answer.auth_bytes) == (ErrorCode.NONE, b"")
    assert is_inside(session)
    assert session.principal == ("ada", "kafka", "10.1.2.3")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram_gives_the_session_its_principal(rig: Rig, mechanism: str) -> None:
    session = await connect(rig)
    client = ScramClient("ada", "secret", mechanism)

    await handshake(rig, session, mechanism)
    first = await send(rig, session, client.first_message())
    assert not is_inside(session)
    client.process_server_first_message(first.auth_bytes)
    final = await send(rig, session, client.final_message())
    client.process_server_final_message(final.auth_bytes)

    assert is_inside(session)
    assert session.principal.name == "ada"


@pytest.mark.parametrize(
    "data",
    [b"\0ada\0wrong", b"\0eve\0secret", b"bob\0ada\0secret", b"ada", b"\0\0\0", b"\xff\0a\0b"],
)
async def test_wrong_credentials_leave_the_session_outside(rig: Rig, data: bytes) -> None:
    session = await connect(rig)
    await handshake(rig, session, "PLAIN")

    answer = await send(rig, session, data)

    assert answer.error_code.value == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message
    assert not is_inside(session)
    assert session.principal.name == "ANONYMOUS"


@pytest.mark.parametrize("user", ["ada", "nobody"])
async def test_a_wrong_scram_proof_is_refused_for_known_and_unknown(
    rig: Rig, user: str
) -> None:
    session = await connect(rig)
    client = ScramClient(user, "wrong", "SCRAM-SHA-256")
    await handshake(rig, session, "SCRAM-SHA-256")

    first = await send(rig, session, client.first_message())
    client.process_server_first_message(first.auth_bytes)
    final = await send(rig, session, client.final_message())

    assert first.error_code.value == ErrorCode.NONE
    assert final.error_code.value == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not is_inside(session)


async def test_an_exchange_is_not_begun_anew(rig: Rig) -> None:
    session = await connect(rig)
    await handshake(rig, session, "PLAIN")
    await send(rig, session, b"\0ada\0wrong")

    again = await send(rig, session, b"\0ada\0secret")
    anew = await handshake(rig, session, "PLAIN")

    assert again.error_code.value == ErrorCode.ILLEGAL_SASL_STATE
    assert anew.error_code.value == ErrorCode.ILLEGAL_SASL_STATE
    assert not is_inside(session)


async def test_authenticating_comes_after_the_handshake(rig: Rig) -> None:
    session = await connect(rig)

    answer = await send(rig, session, b"\0ada\0secret")

    assert answer.error_code.value == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize(
    ("mechanism", "version", "code"),
    [
        ("GSSAPI", 1, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("plain", 1, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("PLAIN", 0, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_what_is_not_offered_is_refused_and_may_be_tried_otherwise(
    rig: Rig, mechanism: str, version: int, code: ErrorCode
) -> None:
    session = await connect(rig)

    refused = await handshake(rig, session, mechanism, version)
    chosen = await handshake(rig, session, "PLAIN")

    assert refused.error_code.value == code
    assert refused.mechanisms == MECHANISMS
    assert chosen.error_code.value == ErrorCode.NONE


@pytest.mark.parametrize("data", [b"", b"\0" * 9_000, b"a\0b\0c\0d"])
def test_a_malformed_plain_message_is_unauthenticated(data: bytes) -> None:
    with pytest.raises(Unauthenticated):
        parse_plain(data)
