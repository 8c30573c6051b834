"""TagQueue, UntagQueue, ListQueueTags."""

import asyncio

import pytest

from tests.adapters.sqs.handlers.serving import Live


async def tags(live: Live, url: str) -> dict[str, str]:
    return dict((await live.call("list_queue_tags", QueueUrl=url)).get("Tags", {}))


async def test_tags_are_added_replaced_and_removed(live: Live) -> None:
    url = await live.queue()
    assert await tags(live, url) == {}
    given = {"team": "a", "Team": "b", "empty": ""}
    assert await live.call("tag_queue", QueueUrl=url, Tags=given) == {}
    await live.call("tag_queue", QueueUrl=url, Tags={"team": "c"})
    assert await tags(live, url) == {"team": "c", "Team": "b", "empty": ""}
    answer = await live.call("untag_queue", QueueUrl=url, TagKeys=["team", "none"])
    assert answer == {}
    assert await tags(live, url) == {"Team": "b", "empty": ""}


async def test_tags_change_no_attribute(live: Live) -> None:
    url = await live.queue(DelaySeconds="5", MaximumMessageSize="2048")
    before = await live.attributes(url)
    await live.call("tag_queue", QueueUrl=url, Tags={"team": "a"})
    assert await live.attributes(url) == before


async def test_tags_of_requests_at_once_are_all_there(live: Live) -> None:
    url = await live.queue()
    clients = [live.client() for _ in range(3)]
    await asyncio.gather(
        *[
            live.call("tag_queue", by=client, QueueUrl=url, Tags={f"key-{index}": ""})
            for index, client in enumerate(clients)
        ]
    )
    assert sorted(await tags(live, url)) == ["key-0", "key-1", "key-2"]


async def test_a_queue_has_at_most_50_tags(live: Live) -> None:
    url = await live.queue()
    full = {f"key-{index}": "" for index in range(50)}
    await live.call("tag_queue", QueueUrl=url, Tags=full)
    refused = await live.refused("tag_queue", QueueUrl=url, Tags={"one-more": ""})
    assert refused.code == "InvalidParameterValue"
    assert refused.message == "Too many tags added for queue orders."
    assert await tags(live, url) == full


@pytest.mark.parametrize(
    "given", [{"": "x"}, {"k" * 129: "x"}, {"k": "v" * 257}, {"aws:k": ""}]
)
async def test_wrong_tags_are_refused(live: Live, given: dict[str, str]) -> None:
    url = await live.queue()
    refused = await live.refused("tag_queue", QueueUrl=url, Tags=given)
    assert refused.code == "InvalidParameterValue"
    assert refused.message.startswith("Tag ")


@pytest.mark.parametrize("keys", [[""], ["k" * 129]])
async def test_wrong_keys_are_refused(live: Live, keys: list[str]) -> None:
    url = await live.queue()
    refused = await live.refused("untag_queue", QueueUrl=url, TagKeys=keys)
    assert refused.code == "InvalidParameterValue"
    assert refused.message == "Tag keys must be between 1 and 128 characters in length."


@pytest.mark.parametrize(
    ("action", "params", "missing"),
    [
        ("tag_queue", {}, "Tags"),
        ("tag_queue", {"Tags": {}}, "Tags"),
        ("untag_queue", {}, "TagKeys"),
        ("untag_queue", {"TagKeys": []}, "TagKeys"),
    ],
)
async def test_nothing_to_do_is_a_missing_parameter(
    live: Live, action: str, params: dict[str, object], missing: str
) -> None:
    url = await live.queue()
    refused = await live.refused(action, QueueUrl=url, **params)
    assert refused.code == "MissingParameter"
    assert refused.message == f"The request must contain the parameter {missing}."
