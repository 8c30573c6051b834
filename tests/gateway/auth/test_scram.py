"""SCRAM's server side: the exchanges of RFC 7677 and RFC 5802, and what must be refused."""

import base64
import hashlib
import hmac
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.scram import (
    ScramMechanism,
    ScramServer,
    fits,
    make_credential,
    make_decoy,
    saslprep,
)
from gateway.errors import Unauthenticated

# RFC 7677 section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
CREDENTIAL = make_credential(ScramMechanism.SHA_256, "pencil", salt=SALT, iterations=4096)


def new_server(mechanism: ScramMechanism = ScramMechanism.SHA_256) -> ScramServer:
    return ScramServer(mechanism, nonce=SERVER_NONCE)


def after_first(client_first: bytes = CLIENT_FIRST) -> ScramServer:
    server = new_server()
    server.receive_first(client_first)
    server.first_message(CREDENTIAL)
    return server


def client_final(
    password: str,
    server_first: bytes,
    *,
    mechanism: ScramMechanism = ScramMechanism.SHA_256,
    header: bytes = b"n,,",
    bare: bytes = b"n=user,r=rOprNGfwEbeRWgbNEkqO",
    extra: bytes = b"",
    nonce: bytes | None = None,
) -> bytes:
    """Return what an RFC 5802 client answers, worked out apart from the code under test."""
    digest = mechanism.value.removeprefix("SCRAM-").replace("-", "").lower()
    fields = dict(part.split(b"=", 1) for part in server_first.split(b","))
    salted = hashlib.pbkdf2_hmac(
        digest, password.encode(), base64.b64decode(fields[b"s"]), int(fields[b"i"])
    )
    client_key = hmac.digest(salted, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    unproven = b"c=" + base64.b64encode(header) + b",r=" + (nonce or fields[b"r"]) + extra
    signature = hmac.digest(stored_key, b",".join([bare, server_first, unproven]), digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return unproven + b",p=" + base64.b64encode(proof)


def test_the_exchange_of_rfc_7677_section_3() -> None:
    server = new_server()

    assert server.receive_first(CLIENT_FIRST) == "user"
    assert server.first_message(CREDENTIAL) == SERVER_FIRST
    assert server.final_message(CLIENT_FINAL) == SERVER_FINAL


def test_sha_512_proves_both_sides() -> None:
    mechanism = ScramMechanism.SHA_512
    credential = make_credential(mechanism, "pencil", salt=b"salty", iterations=5000)
    server = new_server(mechanism)
    server.receive_first(CLIENT_FIRST)
    first = server.first_message(credential)

    final = server.final_message(client_final("pencil", first, mechanism=mechanism))

    assert first.endswith(b",i=5000")
    assert len(base64.b64decode(final.removeprefix(b"v="))) == 64


@pytest.mark.parametrize("header", [b"n,,", b"y,,", b"n,a=user,"])
def test_a_client_without_channel_binding_gets_in(header: bytes) -> None:
    server = new_server()
    bare = b"n=user,r=" + NONCE.encode()
    server.receive_first(header + bare)
    first = server.first_message(CREDENTIAL)

    final = client_final("pencil", first, header=header, bare=bare)

    assert server.final_message(final).startswith(b"v=")


def test_extensions_are_part_of_what_is_signed() -> None:
    bare = b"n=user,r=" + NONCE.encode() + b",tokenauth=true"
    server = new_server()
    server.receive_first(b"n,," + bare)
    first = server.first_message(CREDENTIAL)

    final = client_final("pencil", first, bare=bare, extra=b",x=later")

    assert server.final_message(final).startswith(b"v=")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,r=abc,n=user",
        b"p=tls-unique,,n=user,r=abc",  # channel binding was not offered
        b"n,a=root,n=user,r=abc",  # acting for somebody else
        b"n,,m=1,n=user,r=abc",  # an extension that must be understood
        b"n,,n=\xc2\xad,r=abc",  # nothing is left of the name once it is prepared
        b"n,,n=us=er,r=abc",  # a bare equals sign
        b"n,,n=us=2cer,r=abc",
        b"n,,n=user,r=a\x7fc",
        b"n,,n=us\xffer,r=abc",
        b"n,,n=" + b"u" * 9000 + b",r=abc",
    ],
)
def test_a_bad_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(Unauthenticated):
        new_server().receive_first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws",
        CLIENT_FINAL.replace(b"p=dH", b"p=dI"),
        CLIENT_FINAL[:-4],
        CLIENT_FINAL.replace(b"p=", b"p=!"),
        CLIENT_FINAL.replace(b"c=biws", b"c=eSws"),  # y,, where n,, was said before
        CLIENT_FINAL.replace(b"c=biws", b"c=*"),
        CLIENT_FINAL.replace(b"$k0", b"$k1"),
        CLIENT_FINAL.replace(b"r=", b"x=1,r="),
        CLIENT_FINAL.partition(b",p=")[0] + b",p=",
        CLIENT_FINAL.partition(b",p=")[0] + b",p=AA==",
    ],
)
def test_a_bad_final_message_is_refused(message: bytes) -> None:
    with pytest.raises(Unauthenticated):
        after_first().final_message(message)


def test_a_proof_for_another_channel_binding_is_refused() -> None:
    final = client_final("pencil", SERVER_FIRST, header=b"y,,")

    with pytest.raises(Unauthenticated, match="channel binding"):
        after_first().final_message(final)


def test_a_proof_for_another_nonce_is_refused() -> None:
    final = client_final("pencil", SERVER_FIRST, nonce=b"another")

    with pytest.raises(Unauthenticated, match="nonce"):
        after_first().final_message(final)


def test_a_wrong_password_is_refused() -> None:
    with pytest.raises(Unauthenticated, match="wrong user name or password"):
        after_first().final_message(client_final("Pencil", SERVER_FIRST))


def test_an_unknown_user_is_asked_and_refused_like_a_wrong_password() -> None:
    decoy = make_decoy(ScramMechanism.SHA_256, "nobody", secret=b"secret", iterations=4096)
    server = new_server()
    server.receive_first(CLIENT_FIRST)
    first = server.first_message(decoy)

    with pytest.raises(Unauthenticated, match="wrong user name or password"):
        server.final_message(client_final("pencil", first))


def test_a_decoy_is_the_same_each_time_and_another_for_each_name() -> None:
    def salt(name: str, secret: bytes = b"secret") -> bytes:
        mechanism = ScramMechanism.SHA_256
        return make_decoy(mechanism, name, secret=secret, iterations=4096).salt

    assert salt("alice") == salt("alice")
    assert len({salt("alice"), salt("bob"), salt("alice", b"another")}) == 3


def test_a_name_is_unescaped_and_prepared() -> None:
    server = new_server()

    name = server.receive_first("n,,n=a=2Cb=3Dc\u00ad\u2168,r=abc".encode())

    assert name == "a,b=cIX"


def test_a_password_is_checked_against_what_is_kept() -> None:
    assert fits(CREDENTIAL, "pencil")
    assert not fits(CREDENTIAL, "pencil ")


@pytest.mark.parametrize(
    ("text", "prepared"),
    [  # RFC 4013 section 3
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
    ],
)
def test_text_is_prepared(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\x07", "a\x00", "\u0627\u0031", "\ue000", "\u0627a\u0627"])
def test_text_that_may_not_be_is_refused(text: str) -> None:  # RFC 4013 section 3
    with pytest.raises(Unauthenticated):
        saslprep(text)


def test_characters_newer_than_unicode_3_2_are_not_stored() -> None:
    assert saslprep("pass\U0001f600") == "pass\U0001f600"
    with pytest.raises(Unauthenticated):
        saslprep("pass\U0001f600", stored=True)


@given(message=st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_any_bytes_are_a_name_or_a_refusal(message: bytes) -> None:
    for prefix in (b"", b"n,,n=", b"n,,n=user,r="):
        with suppress(Unauthenticated):
            assert new_server().receive_first(prefix + message)


@given(message=st.binary(max_size=80))
def test_no_bytes_but_the_right_ones_get_in(message: bytes) -> None:
    for prefix in (b"", CLIENT_FINAL[:60], CLIENT_FINAL[: CLIENT_FINAL.index(b"p=") + 2]):
        with pytest.raises(Unauthenticated):
            after_first().final_message(prefix + message)
