"""Requests of one client in one second share cached hashes; each signature is still checked."""

import asyncio
from typing import cast

import pytest
from botocore import auth

from adapters.sqs.auth.authentication import RequestAuthenticator
from adapters.sqs.auth.signature import find_claim
from adapters.sqs.config import SqsConfig
from adapters.sqs.errors import (
    INVALID_CLIENT_TOKEN_ID,
    REQUEST_EXPIRED,
    SIGNATURE_DOES_NOT_MATCH,
    ErrorCode,
    SqsError,
)
from adapters.sqs.wire import Request
from gateway.auth.access_keys import AccessKeys
from gateway.clock import ManualClock
from gateway.metadata.store import AccessKey, MetadataStore
from tests.adapters.sqs.auth.test_authentication import ELSEWHERE, HERE, Stored, login
from tests.adapters.sqs.auth.test_signature import KEY_ID, SECRET, presigned, signed

TARGET = {"X-Amz-Target": "AmazonSQS.ReceiveMessage"}
SKEW_S = SqsConfig().clock_skew_s_max


class Store(Stored):
    """A store that forgets keys."""

    async def delete_access_key(self, _key_id: str) -> bool:
        return True


class Who:
    """An authenticator whose parts a test may change."""

    def __init__(self, *, ahead_ms: int = 0) -> None:
        """``ahead_ms`` is the lead of the node's clock over the signer's."""
        store = Store(AccessKey(KEY_ID, SECRET, "bob", ""))
        self.keys = AccessKeys(cast("MetadataStore", store))
        asyncio.run(self.keys.load())
        claim = find_claim(again(b"{}"))
        assert claim is not None
        self.signed_ms = claim.signed_unix_s * 1_000
        self.clock = ManualClock(self.signed_ms + ahead_ms)
        config = SqsConfig(anonymous="never")
        self.authenticator = RequestAuthenticator(config, self.keys, login(), self.clock)

    def ask(self, request: Request, peer_host: str = HERE) -> str:
        return self.authenticator.authenticate(request, peer_host).principal.name

    def refusal(self, request: Request) -> ErrorCode:
        with pytest.raises(SqsError) as caught:
            self.ask(request)
        return caught.value.code


@pytest.fixture(autouse=True)
def _same_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sign all requests at the same time."""
    moment = auth.get_current_datetime()
    monkeypatch.setattr(auth, "get_current_datetime", lambda *_: moment)


def again(body: bytes, **headers: str) -> Request:
    return signed(body=body, headers=TARGET | headers)


def test_another_body_or_action_under_the_same_signature_is_refused() -> None:
    who = Who()
    assert who.ask(again(b"first")) == "bob"
    changed = again(b"second")
    changed.body = b"third"
    assert who.refusal(changed) is SIGNATURE_DOES_NOT_MATCH
    changed = again(b"second")
    changed.headers[b"x-amz-target"] = b"AmazonSQS.PurgeQueue"
    assert who.refusal(changed) is SIGNATURE_DOES_NOT_MATCH
    for method, path, query in (
        (b"PUT", b"/", b""),
        (b"POST", b"/q", b""),
        (b"POST", b"/", b"a"),
    ):
        changed = again(b"second")
        changed.method, changed.path, changed.query = method, path, query
        assert who.refusal(changed) is SIGNATURE_DOES_NOT_MATCH
    changed = again(b"second")
    del changed.headers[b"x-amz-target"]
    assert who.refusal(changed) is SIGNATURE_DOES_NOT_MATCH


def test_an_action_that_is_not_signed_is_refused() -> None:
    who = Who()
    assert who.ask(signed(body=b"Action=ListQueues")) == "bob"
    added = signed(body=b"{}")
    assert who.ask(added) == "bob"
    added.headers[b"x-amz-target"] = b"AmazonSQS.PurgeQueue"
    assert who.refusal(added) is SIGNATURE_DOES_NOT_MATCH


def test_a_key_that_was_taken_away_is_known_no_more() -> None:
    who = Who()
    assert who.ask(again(b"first")) == "bob"
    asyncio.run(who.keys.remove(KEY_ID))
    assert who.refusal(again(b"second")) is INVALID_CLIENT_TOKEN_ID


def test_a_signature_holds_as_long_as_any() -> None:
    who = Who()
    assert who.ask(again(b"first")) == "bob"
    who.clock.step_unix(SKEW_S * 1_000 + 999)
    assert who.ask(again(b"second")) == "bob"
    who.clock.step_unix(1)
    assert who.refusal(again(b"third")) is SIGNATURE_DOES_NOT_MATCH


def test_a_signature_begins_to_hold_as_any() -> None:
    """The node's clock may be behind the signer's."""
    who = Who(ahead_ms=-SKEW_S * 1_000)
    assert [who.ask(again(b"%d" % n)) for n in range(2)] == ["bob"] * 2
    behind = Who(ahead_ms=-SKEW_S * 1_000 - 1)
    assert behind.refusal(again(b"first")) is SIGNATURE_DOES_NOT_MATCH


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_set_right_lets_in_at_once(step_ms: int) -> None:
    """The node's clock was wrong by an hour; its unix time may stand still for as long."""
    who = Who(ahead_ms=-step_ms)
    assert who.refusal(again(b"first")) is SIGNATURE_DOES_NOT_MATCH
    who.clock.step_unix(step_ms)
    assert [who.ask(again(b"%d" % n)) for n in range(2)] == ["bob"] * 2
    who.clock.step_unix(step_ms)  # wrong the other way
    assert who.refusal(again(b"second")) is SIGNATURE_DOES_NOT_MATCH


def test_a_presigned_url_holds_by_a_clock_that_was_set_right() -> None:
    who = Who(ahead_ms=3_600_000)
    url = presigned(expires_s=60)
    assert who.refusal(url) is REQUEST_EXPIRED
    who.clock.step_unix(-3_600_000)
    assert who.ask(url) == "bob"
    who.clock.advance(61_000)
    assert who.refusal(url) is REQUEST_EXPIRED


def test_a_token_is_invalid_whoever_has_signed() -> None:
    who = Who()
    assert who.ask(again(b"first")) == "bob"
    with_token = again(b"second")
    with_token.headers[b"x-amz-security-token"] = b"t"
    assert who.refusal(with_token) is INVALID_CLIENT_TOKEN_ID


def test_each_address_is_its_own() -> None:
    who = Who()
    found = [
        who.authenticator.authenticate(again(b"x"), host) for host in (HERE, ELSEWHERE, HERE)
    ]
    assert [one.principal.host for one in found] == [HERE, ELSEWHERE, HERE]
