"""GetQueueUrl."""

from pathlib import Path

import pytest

from tests.adapters.sqs.handlers.serving import ACCOUNT, Live, running


@pytest.mark.parametrize("account", [None, ACCOUNT])
async def test_the_url_of_a_name(live: Live, account: str | None) -> None:
    url = await live.queue()
    owner = {} if account is None else {"QueueOwnerAWSAccountId": account}
    assert await live.call("get_queue_url", QueueName="orders", **owner) == {"QueueUrl": url}


@pytest.mark.parametrize(
    "params",
    [
        {"QueueName": "others"},
        {"QueueName": "Orders"},
        {"QueueName": ""},
        {"QueueName": "orders", "QueueOwnerAWSAccountId": "999999999999"},
    ],
)
async def test_a_name_that_no_queue_has(live: Live, params: dict[str, str]) -> None:
    await live.queue()
    refused = await live.refused("get_queue_url", **params)
    assert refused.exception == "QueueDoesNotExist"
    assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"
    assert refused.message == "The specified queue does not exist."
    assert refused.status == 400


async def test_the_queue_of_another_account_when_its_owner_permits(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"accounts": ["111111111111"]}) as live:
        other = await live.user("bob", "111111111111")
        url = await live.queue()
        asked = {"QueueName": "orders", "QueueOwnerAWSAccountId": ACCOUNT}
        assert (await live.refused("get_queue_url", by=other, **asked)).code == "AccessDenied"
        await live.call(
            "add_permission",
            QueueUrl=url,
            Label="bob",
            AWSAccountIds=["111111111111"],
            Actions=["GetQueueUrl"],
        )
        assert await live.call("get_queue_url", by=other, **asked) == {"QueueUrl": url}
