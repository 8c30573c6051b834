"""Moves of a group's positions over REST: by time, by a number, and as a preview."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.model import DEFAULT_NAMESPACE, TopicName
from tests.console.http_client import Browser
from tests.gateway.admin.kernel_with_admin import running_admin


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    """Browser of a node with five records in the topic t."""
    async with running_admin(tmp_path) as setup:
        await setup.kernel.topics.create(TopicName(DEFAULT_NAMESPACE, "t"))
        browser = Browser(setup.server)
        await browser.open()
        for value in "abcde":
            await browser.call("POST", "topics/t/records", {"value": value})
        yield browser


async def moved(browser: Browser, **body: Any) -> dict[str, Any]:
    answer = await browser.call("POST", "groups/g/offsets", {"topic": "t", **body})
    assert answer.status == 200, answer.text
    found: dict[str, Any] = answer.json["offsets"][0]
    return found


async def test_a_preview_moves_nothing(browser: Browser) -> None:
    preview = await moved(browser, to="earliest", dry_run=True)
    assert (preview["before"], preview["offset"], preview["end"]) == (None, 0, 5)
    assert (await browser.get("/v1/groups/g/offsets")).status == 404


async def test_a_shift_stays_within_the_log(browser: Browser) -> None:
    assert (await moved(browser, shift_by=2))["offset"] == 2
    assert (await moved(browser, shift_by=1, dry_run=True))["before"] == 2
    assert (await moved(browser, shift_by=100))["offset"] == 5
    assert (await moved(browser, shift_by=-100))["offset"] == 0


async def test_a_time_finds_the_first_record_after_it(browser: Browser) -> None:
    search = await browser.call("POST", "topics/t/find", {"browse": True})
    first = search.json["matches"][0]["timestamp_unix_ms"]
    assert (await moved(browser, to_time_unix_ms=first))["offset"] == 0
    assert (await moved(browser, to_time_unix_ms=first + 3_600_000))["offset"] == 5


@pytest.mark.parametrize("body", [{}, {"to": "latest", "shift_by": 1}, {"to": "sideways"}])
async def test_one_target_is_named(browser: Browser, body: dict[str, Any]) -> None:
    answer = await browser.call("POST", "groups/g/offsets", {"topic": "t", **body})
    assert answer.status == 400


async def test_lag_in_time_is_that_of_the_first_unread_record(browser: Browser) -> None:
    await moved(browser, to="1")
    behind = (await browser.get("/v1/groups/g/offsets?limit=5")).json["offsets"][0]
    assert (behind["lag"], behind["behind_ms"] >= 0) == (4, True)
    await moved(browser, to="latest")
    ahead = (await browser.get("/v1/groups/g/offsets?limit=5")).json["offsets"][0]
    assert (ahead["lag"], ahead["behind_ms"]) == (0, 0)
