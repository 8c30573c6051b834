"""Authentication: signatures by known keys, and anonymous callers only where allowed."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from adapters.sqs.auth.authentication import RequestAuthenticator, is_loopback
from adapters.sqs.auth.signature import find_claim
from adapters.sqs.call import Identity
from adapters.sqs.config import SqsConfig
from adapters.sqs.errors import (
    ACCESS_DENIED,
    INVALID_CLIENT_TOKEN_ID,
    MISSING_AUTHENTICATION_TOKEN,
    SIGNATURE_DOES_NOT_MATCH,
    ErrorCode,
    SqsError,
)
from adapters.sqs.wire import Request
from gateway.auth.access_keys import AccessKeys
from gateway.auth.ports import Authenticator
from gateway.clock import ManualClock
from gateway.metadata.change_model import ChangesSince
from gateway.metadata.feed import ChangeFeed
from gateway.metadata.store import AccessKey, MetadataStore
from tests.adapters.sqs.auth.test_signature import KEY_ID, SECRET, signed

HERE = "127.0.0.1"
ELSEWHERE = "192.0.2.1"
OTHER_ACCOUNT = "111111111111"


class Stored:
    """A store with one access key."""

    def __init__(self, key: AccessKey) -> None:
        self._key = key
        self.feed = ChangeFeed(self._changes_since)

    async def _changes_since(self, _revision: int) -> ChangesSince:
        raise NotImplementedError  # no other node writes to it

    async def access_keys(self, _key_ids: set[str] | None = None) -> list[AccessKey]:
        return [self._key]


def login(*, required: bool = False) -> Authenticator:
    """Return an authenticator of which only ``required`` is asked."""
    return cast("Authenticator", SimpleNamespace(required=required))


def authenticator(
    key_id: str = KEY_ID, account: str = "", *, required: bool = False, **config: Any
) -> RequestAuthenticator:
    keys = AccessKeys(cast("MetadataStore", Stored(AccessKey(key_id, SECRET, "bob", account))))
    asyncio.run(keys.load())
    request = signed()
    claim = find_claim(request)
    assert claim is not None
    clock = ManualClock(claim.signed_unix_s * 1_000)
    return RequestAuthenticator(SqsConfig(**config), keys, login(required=required), clock)


def unsigned() -> Request:
    return Request(b"POST", b"/", b"", {b"host": b"h"}, b"{}", is_last=False)


def refusal(who: RequestAuthenticator, request: Request, peer_host: str = HERE) -> ErrorCode:
    with pytest.raises(SqsError) as caught:
        who.authenticate(request, peer_host)
    return caught.value.code


def test_a_known_key_is_its_user() -> None:
    found = authenticator(account=OTHER_ACCOUNT).authenticate(signed(), ELSEWHERE)
    assert found.principal == ("bob", "sqs", ELSEWHERE)
    assert found[1:] == (OTHER_ACCOUNT, "us-east-1", KEY_ID, "sqs")


def test_a_known_key_is_checked_even_where_anybody_may_come() -> None:
    request = signed()
    request.body += b"x"
    assert refusal(authenticator(anonymous="always"), request) is SIGNATURE_DOES_NOT_MATCH


def test_a_token_that_nobody_has_given_out_is_invalid() -> None:
    request = signed(headers={"X-Amz-Security-Token": "t"})
    assert refusal(authenticator(), request) is INVALID_CLIENT_TOKEN_ID


def test_a_region_that_is_not_served_is_refused() -> None:
    assert refusal(authenticator(region="eu-west-1"), signed()) is SIGNATURE_DOES_NOT_MATCH
    served = authenticator(region="eu-west-1", regions=("us-east-1",))
    assert served.authenticate(signed(), HERE).region == "us-east-1"


@pytest.mark.parametrize(
    ("anonymous", "peer_host", "is_let_in"),
    [
        ("loopback", HERE, True),
        ("loopback", ELSEWHERE, False),
        ("never", HERE, False),
        ("always", ELSEWHERE, True),
    ],
)
def test_who_does_not_sign_comes_in_where_the_config_says(
    anonymous: str, peer_host: str, *, is_let_in: bool
) -> None:
    who = authenticator(key_id="AKIAOTHER", anonymous=anonymous)
    if is_let_in:
        for request, service in ((unsigned(), ""), (signed(), "sqs")):
            found = who.authenticate(request, peer_host)
            assert found == Identity(
                found.principal, "000000000000", "us-east-1", access_key_id="", service=service
            )
            assert found.principal.is_anonymous
    else:
        assert refusal(who, unsigned(), peer_host) is MISSING_AUTHENTICATION_TOKEN
        assert refusal(who, signed(), peer_host) is INVALID_CLIENT_TOKEN_ID


def test_an_anonymous_caller_names_his_account_by_his_key() -> None:
    request = signed()
    text = request.headers[b"authorization"].replace(KEY_ID.encode(), OTHER_ACCOUNT.encode())
    request.headers[b"authorization"] = text.replace(b"us-east-1", b"eu-west-1")

    served = authenticator(accounts=(OTHER_ACCOUNT,), regions=("eu-west-1",))
    assert served.authenticate(request, HERE)[1:3] == (OTHER_ACCOUNT, "eu-west-1")
    assert authenticator().authenticate(request, HERE)[1:3] == ("000000000000", "us-east-1")


@pytest.mark.parametrize(
    "header",
    [
        (b"origin", b"https://example.org"),
        (b"sec-fetch-site", b"cross-site"),
        (b"sec-fetch-site", b"same-origin"),
        # By a name that leads to this machine: then a browser does not say from where.
        (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"),
    ],
)
def test_a_page_in_a_browser_is_not_let_in_unsigned(header: tuple[bytes, bytes]) -> None:
    request = unsigned()
    request.headers[header[0]] = header[1]
    assert refusal(authenticator(), request) is ACCESS_DENIED


@pytest.mark.parametrize(
    "headers",
    [
        # Who types an address into a browser.
        {b"user-agent": b"Mozilla/5.0 (X11; Linux x86_64)", b"sec-fetch-site": b"none"},
        {b"user-agent": b"Mozilla/5.0 (compatible; pycurl)"},  # celery
        {b"user-agent": b"Boto3/1.44.5"},
    ],
)
def test_who_is_no_page_is_let_in_unsigned(headers: dict[bytes, bytes]) -> None:
    request = unsigned()
    request.headers |= headers
    assert authenticator().authenticate(request, HERE).principal.is_anonymous


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:192.0.2.1", False),
        ("192.0.2.1", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, *, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours


def test_the_user_of_a_certificate_cannot_choose_an_account() -> None:
    who = authenticator("KEY", accounts=[OTHER_ACCOUNT], required=True)
    request = unsigned()
    claimed = signed()
    request.headers[b"authorization"] = claimed.headers[b"authorization"].replace(
        KEY_ID.encode(), OTHER_ACCOUNT.encode()
    )
    request.headers[b"x-amz-date"] = claimed.headers[b"x-amz-date"]
    found = who.authenticate(request, HERE, "ada")
    assert found.principal.name == "ada"
    assert found.account == SqsConfig().account
