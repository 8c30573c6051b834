"""GetCallerIdentity of STS at the same endpoint, which SDK tools call first."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.adapters.sqs.handlers.query import get
from tests.adapters.sqs.handlers.serving import (
    ACCOUNT,
    ONE_ATTEMPT,
    REGION,
    SESSION,
    UNKNOWN_KEY,
    Live,
    running,
)

OTHER_ACCOUNT = "123456789012"


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Live]:
    sqs = {"anonymous": "never", "accounts": [OTHER_ACCOUNT]}
    async with running(tmp_path, sqs=sqs) as found:
        yield found


def sts(live: Live, key: tuple[str, str] = UNKNOWN_KEY) -> Any:
    """Return a client of STS."""
    made = SESSION.client(
        "sts",
        endpoint_url=live.url,
        aws_access_key_id=key[0],
        aws_secret_access_key=key[1],
        region_name=REGION,
        config=ONE_ATTEMPT,
    )
    live.clients.append(made)
    return made


async def ask(client: Any, method: str = "get_caller_identity", **params: Any) -> Any:
    answer = await asyncio.to_thread(getattr(client, method), **params)
    del answer["ResponseMetadata"]
    return answer


async def refusal(client: Any, method: str = "get_caller_identity", **params: Any) -> str:
    with pytest.raises(ClientError) as caught:
        await ask(client, method, **params)
    return str(caught.value.response["Error"]["Code"])


async def test_a_user_is_told_the_account_and_the_arn(guarded: Live) -> None:
    key = await guarded.kernel.access_keys.add("alice", account=OTHER_ACCOUNT)

    answer = await ask(sts(guarded, (key.key_id, key.secret)))

    assert answer == {
        "Account": OTHER_ACCOUNT,
        "Arn": f"arn:aws:iam::{OTHER_ACCOUNT}:user/alice",
    }


async def test_who_signs_with_no_known_key_is_the_account_itself(live: Live) -> None:
    assert await ask(sts(live)) == {"Account": ACCOUNT, "Arn": f"arn:aws:iam::{ACCOUNT}:root"}


async def test_nobody_known_is_refused_where_a_key_is_needed(guarded: Live) -> None:
    assert await refusal(sts(guarded)) == "InvalidClientTokenId"


async def test_a_wrong_secret_is_refused(guarded: Live) -> None:
    key = await guarded.kernel.access_keys.add("alice")

    assert await refusal(sts(guarded, (key.key_id, "wrong"))) == "SignatureDoesNotMatch"


async def test_there_is_nothing_else_of_sts(live: Live) -> None:
    code = await refusal(
        sts(live),
        "assume_role",
        RoleArn=f"arn:aws:iam::{ACCOUNT}:role/r",
        RoleSessionName="s" * 9,
    )

    assert code == "InvalidAction"


async def test_a_signature_is_for_its_service_alone(guarded: Live) -> None:
    """A request signed for STS is refused by SQS, and the other way round."""
    key = await guarded.kernel.access_keys.add("alice")
    client = sts(guarded, (key.key_id, key.secret))

    def as_other(request: Any, **_: Any) -> None:
        request.data = {"Action": "ListQueues", "Version": "2012-11-05"}

    client.meta.events.register("request-created.sts", as_other)

    assert await refusal(client) == "SignatureDoesNotMatch"


async def test_it_may_be_asked_by_a_bare_request(live: Live) -> None:
    answer = await get(live, "/", Action="GetCallerIdentity", Version="2011-06-15")

    assert answer.status == 200
    assert f"<Account>{ACCOUNT}</Account>" in answer.text
    assert "https://sts.amazonaws.com/doc/2011-06-15/" in answer.text
