"""SCRAM verifiers as text: there and back, by PostgreSQL's form, and what is none."""

import pytest

from gateway.auth.scram import ScramCredential, ScramMechanism, fits, make_credential
from gateway.auth.verifiers import format_verifier, parse_verifier
from gateway.errors import InvalidRequest

# From PostgreSQL's documentation of pg_authid: SCRAM-SHA-256$<iteration count>:<salt>$...
TEXT = (
    "SCRAM-SHA-256$4096:c2FsdC1vZi1ib2I=$45jGYqrAeIz+GdgdhlKXzi1cOXG+tT6mLZD5yWYi6qI="
    ":j16d/Ds7OAia/K1EhfJPeJzpC1fCyRm2IQKUga1QVCg="
)


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_a_verifier_is_the_credential(mechanism: ScramMechanism) -> None:
    credential = make_credential(mechanism, "pencil", salt=b"some salt", iterations=5_000)
    assert parse_verifier(format_verifier(credential)) == credential


def test_the_form_is_that_of_postgresql() -> None:
    credential = parse_verifier(TEXT)
    assert isinstance(credential, ScramCredential)
    assert fits(credential, "right horse")
    assert format_verifier(credential) == TEXT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "right horse",
        TEXT.replace("4096", "4095"),
        TEXT.replace("4096", "1000001"),
        TEXT.replace("SHA-256", "SHA-512"),
        TEXT.replace("SHA-256", "SHA-1"),
        TEXT.replace("45jG", "!!!!"),
        TEXT + "$",
    ],
)
def test_what_is_none_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_verifier(text)
    assert "j16d" not in str(caught.value)
