"""Long lists are sorted, filtered and cut by the node; looking keeps nothing in memory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.model import DEFAULT_NAMESPACE, TopicName
from tests.console.http_client import Browser
from tests.gateway.admin.kernel_with_admin import Setup, running_admin


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    async with running_admin(tmp_path) as found:
        yield found


@pytest.fixture
async def browser(setup: Setup) -> Browser:
    browser = Browser(setup.server)
    await browser.open()
    return browser


async def topic(setup: Setup, name: str, partitions: int = 1) -> None:
    await setup.kernel.topics.create(TopicName(DEFAULT_NAMESPACE, name), partitions=partitions)


async def test_topics_are_sorted_and_cut(setup: Setup, browser: Browser) -> None:
    for name, partitions, records in (("a", 1, 2), ("b", 3, 0), ("ab", 2, 1)):
        await topic(setup, name, partitions)
        for _ in range(records):
            await browser.call("POST", f"topics/{name}/records", {"value": "x"})

    async def names(query: str) -> tuple[list[str], int]:
        answer = (await browser.get(f"/v1/topics?{query}")).json
        return [one["name"] for one in answer["topics"]], answer["total"]

    assert await names("limit=9") == (["a", "ab", "b"], 3)
    assert await names("limit=1&offset=1") == (["ab"], 3)
    assert await names("limit=9&sort=-name") == (["b", "ab", "a"], 3)
    assert await names("limit=9&sort=-partitions&contains=B") == (["b", "ab"], 2)
    assert await names("limit=9&sort=records") == (["b", "ab", "a"], 3)
    assert await names("limit=9&sort=-bytes") == (["a", "ab", "b"], 3)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=5&offset=-1", "limit=5&sort=colour"]
)
async def test_a_page_that_makes_no_sense_is_refused(browser: Browser, query: str) -> None:
    assert (await browser.get(f"/v1/topics?{query}")).status == 400


async def test_looking_at_partitions_makes_no_live_state(
    setup: Setup, browser: Browser
) -> None:
    await topic(setup, "wide", 2_000)
    answer = (await browser.get("/v1/topics/wide/partitions?limit=2&offset=1998")).json
    assert [one["number"] for one in answer["partitions"]] == [1998, 1999]
    assert answer["total"] == 2_000
    assert (await browser.get("/v1/topics/wide/partitions?limit=5&sort=-bytes")).status == 200
    assert (await browser.get("/v1/topics?limit=5&sort=-bytes")).status == 200
    found = setup.kernel.topics.get(TopicName(DEFAULT_NAMESPACE, "wide"))
    assert not any(found.partitions)


async def test_a_search_needs_terms_unless_it_browses(setup: Setup, browser: Browser) -> None:
    await topic(setup, "t")
    for value in ("one", "two", "three"):
        await browser.call("POST", "topics/t/records", {"value": value})

    async def found(body: dict[str, object]) -> list[str]:
        answer = await browser.call("POST", "topics/t/find", body)
        return [one["value"] for one in answer.json["matches"]]

    assert (await browser.call("POST", "topics/t/find", {})).status == 400
    assert await found({"browse": True}) == ["one", "two", "three"]
    assert await found({"browse": True, "newest": 2}) == ["two", "three"]
    assert await found({"contains": "t"}) == ["two", "three"]
    assert await found({"contains": "t", "offset_min": 2}) == ["three"]


async def test_following_gives_each_record_once(setup: Setup, browser: Browser) -> None:
    await topic(setup, "t", 2)
    await browser.call("POST", "topics/t/records", {"value": "before"})
    first = (await browser.call("POST", "topics/t/follow", {})).json
    assert (first["matches"], first["positions"]) == ([], {"0": 1, "1": 0})
    await browser.call("POST", "topics/t/records", {"value": "after", "partition": 1})
    body = {"positions": first["positions"]}
    second = (await browser.call("POST", "topics/t/follow", body)).json
    assert [one["value"] for one in second["matches"]] == ["after"]
    third = (
        await browser.call("POST", "topics/t/follow", {"positions": second["positions"]})
    ).json
    assert third["matches"] == []


async def test_records_keep_null_empty_binary_and_headers(
    setup: Setup, browser: Browser
) -> None:
    await topic(setup, "t")
    headers = [
        {"name": "h", "value": "1"},
        {"name": "h"},
        {"name": "b", "value_base64": "/w=="},
    ]
    for body in (
        {"key": "k"},
        {"key_base64": "/w==", "value_base64": "AP8=", "headers": headers},
        {"value": ""},
    ):
        assert (await browser.call("POST", "topics/t/records", body)).status == 201
    answer = await browser.call("POST", "topics/t/find", {"browse": True})
    null, binary, empty = answer.json["matches"]
    assert (null["key"], null["value"]) == ("k", None)
    assert (binary["key_base64"], binary["value_base64"]) == ("/w==", "AP8=")
    assert binary["headers"] == [
        {"name": "h", "value": "1"},
        {"name": "h", "value": None},
        {"name": "b", "value_base64": "/w=="},
    ]
    assert empty["value"] == ""


async def test_nobody_writes_to_the_nodes_own_topics(browser: Browser) -> None:
    answer = await browser.call("POST", "topics/__cursors/records", {"value": "x"})
    assert "own topic" in answer.json["message"]
