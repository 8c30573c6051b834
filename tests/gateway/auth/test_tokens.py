"""Tokens: signatures, claims and times; and keys that change."""

import asyncio
import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.bearer_login import parse_message
from gateway.auth.jwks import KeySet, KeysUnreadable, parse_keys, read_keys
from gateway.auth.tokens import TokenUser, TokenValidator
from gateway.clock import ManualClock
from gateway.config.oauth import OauthConfig
from gateway.errors import Unauthenticated
from tests.support.tokens import AUDIENCE, ISSUER, Authority, write_keys

RSA, OTHER = Authority(), Authority("two")
CURVE = Authority("curve", "ES256")


class House:
    """A validator, its clock and its file of keys."""

    def __init__(self, tmp_path: Path, **config: Any) -> None:
        self.path = write_keys(tmp_path / "jwks.json", RSA, CURVE)
        fields = {"jwks": str(self.path), "issuer": ISSUER, "audience": (AUDIENCE,)} | config
        self.config = OauthConfig.model_validate(fields)
        self.clock = ManualClock()
        self.keys = KeySet(self.config, self.clock)
        self.tokens = TokenValidator(self.config, self.keys, self.clock)

    @property
    def soon_s(self) -> float:
        return self.clock.wall_unix_ms() / 1_000 + 60

    async def refusal(self, token: str) -> str:
        with pytest.raises(Unauthenticated) as refused:
            await self.tokens.validate(token)
        return str(refused.value)


@pytest.fixture
async def house(tmp_path: Path) -> House:
    found = House(tmp_path)
    await found.keys.load()
    return found


@pytest.mark.parametrize("authority", [RSA, CURVE])
async def test_a_token_shows_its_user_and_its_end(house: House, authority: Authority) -> None:
    user = await house.tokens.validate(authority.token("ada", house.soon_s, nbf=0, iat=0))
    assert user == TokenUser("ada", int(house.soon_s * 1_000))


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://elsewhere.example"}, "ssuer"),
        ({"iss": None}, "iss"),
        ({"aud": "another"}, "udience"),
        ({"aud": None}, "aud"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp is no time"),
        ({"exp": True}, "exp is no time"),
        ({"exp": 1e300}, "exp is no time"),
        ({"sub": None}, "sub"),
        ({"sub": 5}, "cannot be a user's name"),
        ({"sub": "ANONYMOUS"}, "cannot be a user's name"),
        ({"sub": "*"}, "cannot be a user's name"),
        ({"sub": ""}, "cannot be a user's name"),
    ],
)
async def test_a_token_with_another_claim_is_refused(
    house: House, claims: dict[str, Any], reason: str
) -> None:
    assert reason in await house.refusal(RSA.token("ada", house.soon_s, **claims))


async def test_times_count_by_the_clock_with_its_skew(house: House) -> None:
    now_s = house.clock.wall_unix_ms() / 1_000
    skew_s = house.config.clock_skew_s
    await house.tokens.validate(RSA.token("ada", now_s - skew_s + 1))
    assert "expired" in await house.refusal(RSA.token("ada", now_s - skew_s))
    await house.tokens.validate(RSA.token("ada", house.soon_s, nbf=now_s + skew_s))
    for name in ("nbf", "iat"):
        late = {name: now_s + skew_s + 1}
        assert "future" in await house.refusal(RSA.token("ada", house.soon_s, **late))


async def test_no_other_signature_is_taken(house: House) -> None:
    valid = RSA.token("ada", house.soon_s)
    head, claims, signature = valid.split(".")
    none = jwt.encode({"sub": "ada", "exp": house.soon_s}, "", algorithm="none")
    assert "'none'" in await house.refusal(none)
    secret = RSA.jwk["n"].encode()  # what is public, as the secret of a HMAC
    assert "'HS256'" in await house.refusal(
        jwt.encode({"sub": "ada", "exp": house.soon_s}, secret, algorithm="HS256")
    )
    forged = base64.urlsafe_b64encode(b'{"sub":"eve","exp":9999999999}').decode().rstrip("=")
    assert "ignature" in await house.refusal(f"{head}.{forged}.{signature}")
    assert await house.refusal(f"{head}.{claims}.")
    mixed = Authority(CURVE.key_id)  # an RSA signature under the id of a curve's key
    assert await house.refusal(mixed.token("ada", house.soon_s))
    assert "unknown key" in await house.refusal(OTHER.token("ada", house.soon_s))
    assert "bytes" in await house.refusal("e" * 20_000)


@given(text=st.text(max_size=60) | st.from_regex(r"ey[\w-]*\.[\w-]*\.[\w-]*", fullmatch=True))
async def test_any_text_is_a_token_or_refused(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    house = House(tmp_path_factory.getbasetemp())
    house.keys.keys = {"one": parse_keys(json.dumps({"keys": [RSA.jwk]}).encode())["one"]}
    with pytest.raises(Unauthenticated):
        await house.tokens.validate(text)


@pytest.mark.parametrize(
    ("scope", "is_enough"),
    [("read write", True), (["write", "read"], True), ("read", False), (None, False)],
)
async def test_a_token_needs_all_scopes(
    tmp_path: Path, scope: object, *, is_enough: bool
) -> None:
    house = House(tmp_path, scopes=("read", "write"), user_claim="name", scope_claim="scp")
    await house.keys.load()
    token = RSA.token("x", house.soon_s, name="ada", scp=scope)
    if is_enough:
        assert (await house.tokens.validate(token)).name == "ada"
    else:
        assert "lacks the scopes" in await house.refusal(token)


async def test_failures_count_by_the_claimed_name(house: House) -> None:
    assert house.tokens.claimed_user(OTHER.token("ada", 0)) == "ada"
    assert house.tokens.claimed_user(OTHER.token("a" * 300, 0)) == "a" * 255
    for text in ("", "a.b.c", "e" * 20_000, OTHER.token("x", 0, sub=5)):
        assert house.tokens.claimed_user(text) == ""


# --- keys


async def test_a_new_key_is_found_at_a_bounded_rate(house: House) -> None:
    token = OTHER.token("ada", house.soon_s)
    write_keys(house.path, OTHER)
    assert "unknown key" in await house.refusal(token)
    house.clock.advance(house.config.refresh_s_min * 1_000)
    assert (await house.tokens.validate(token)).name == "ada"
    assert "unknown key" in await house.refusal(RSA.token("ada", house.soon_s))


async def test_keys_that_cannot_be_read_leave_the_old_ones(house: House) -> None:
    house.path.write_text("{}")
    house.clock.advance(house.config.refresh_s * 1_000)
    token = RSA.token("ada", house.soon_s)
    assert (await house.tokens.validate(token)).name == "ada"
    assert house.keys._reading is not None
    await house.keys._reading
    assert house.keys.reads_failed == 1
    assert (await house.tokens.validate(token)).name == "ada"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"keys": []}',
        '{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "one"}]}',
        '{"keys": [{"kty": "RSA"}, 5]}',
        json.dumps({"keys": [RSA.jwk | {"use": "enc"}]}),
        json.dumps({"keys": [RSA.jwk] * 101}),
        " " * 2_000_000,
    ],
)
async def test_what_is_no_set_of_keys_is_refused(tmp_path: Path, text: str) -> None:
    house = House(tmp_path)
    house.path.write_text(text)
    with pytest.raises(KeysUnreadable):
        await house.keys.load()


@pytest.mark.parametrize(
    "jwks",
    ["http://authority.example/keys", "ftp://a.example/k", "https://", "http://localhost"],
)
def test_keys_come_by_https(jwks: str) -> None:
    with pytest.raises(ValueError, match="https"):
        OauthConfig(jwks=jwks)


class KeyServer(http.server.BaseHTTPRequestHandler):
    """Answers with a set of keys, or leads to another place."""

    def do_GET(self) -> None:
        if self.path == "/keys":
            body = json.dumps({"keys": [RSA.jwk]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def key_url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), KeyServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_keys_are_read_from_a_url_and_redirects_are_not_followed(key_url: str) -> None:
    found = await asyncio.to_thread(read_keys, OauthConfig(jwks=f"{key_url}/keys"))
    assert list(found) == ["one"]
    with pytest.raises(KeysUnreadable, match="302"):
        await asyncio.to_thread(read_keys, OauthConfig(jwks=f"{key_url}/elsewhere"))


# --- the message


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", ("", "a.b.c")),
        (b"n,a=x=2Cy=3D,\x01auth=bearer t\x01host=h\x01port=1\x01\x01", ("x,y=", "t")),
        (b"y,,\x01host=h\x01auth=Bearer  t \x01\x01", ("", "t")),
    ],
)
def test_a_message_has_a_name_and_a_token(data: bytes, found: tuple[str, str]) -> None:
    assert parse_message(data) == found


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"p=tls,,\x01auth=Bearer t\x01\x01",
        b"n,ada,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,x\x01auth=Bearer t\x01\x01",
        b"n,a=ada\x01auth=Bearer t\x01\x01",
        b"\xff,,\x01auth=Bearer t\x01\x01",
    ],
)
def test_another_message_is_refused(data: bytes) -> None:
    with pytest.raises(Unauthenticated):
        parse_message(data)


@given(data=st.binary(max_size=80))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        name, token = parse_message(data)
    except Unauthenticated:
        return
    assert isinstance(name, str)
    assert isinstance(token, str)
