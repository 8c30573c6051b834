"""Queues in a real browser: looking takes nothing, dead letters go back after a preview."""

import pytest
from playwright.sync_api import expect

from tests.console.pages.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console")]


def dead_letter(site: Site, queue: str, reason: str, source: str) -> None:
    headers = [
        {"name": "dlq.reason", "value": reason},
        {"name": "dlq.source.topic", "value": source},
    ]
    body = {"value": f"{reason} of {source}", "headers": headers}
    site.rest("POST", f"topics/{queue}/records", body)


def work_with_dead_letters(site: Site, name: str) -> None:
    site.rest("POST", "queues", {"name": f"{name}-dead"})
    settings = {"dead_letter_topic": f"{name}-dead"}
    site.rest("POST", "queues", {"name": name, "settings": settings})


def test_looking_at_messages_takes_none(site: Site) -> None:
    site.rest("POST", "queues", {"name": "peeked"})
    for at in range(60):
        site.rest("POST", "topics/peeked/records", {"value": f"job {at}"})
    page = site.open("queues/peeked", until="#found tr")
    rows = page.locator("#found tr:not([hidden])")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Go on").click()
    expect(rows).to_have_count(60)
    expect(page.locator("#progress")).to_have_text("60 of 60 shown")
    page.get_by_role("button", name="Look again").click()
    expect(rows).to_have_count(50)
    site.check()
    counts = site.rest("GET", "queues/peeked")["counts"]
    assert counts == {"ready": 60, "in_flight": 0, "delayed": 0}


def test_queues_are_sorted_by_the_node(site: Site) -> None:
    site.rest("POST", "queues", {"name": "sorted-a"})
    site.rest("POST", "queues", {"name": "sorted-b"})
    site.rest("POST", "topics/sorted-b/records", {"value": "x"})
    page = site.open("queues?contains=sorted-&sort=-ready", until="tbody a")
    expect(page.locator("tbody tr").first).to_contain_text("sorted-b")
    site.check()


def test_dead_letters_go_back_after_a_preview(site: Site) -> None:
    work_with_dead_letters(site, "work")
    dead_letter(site, "work-dead", "attempts", "work")
    dead_letter(site, "work-dead", "attempts", "work")
    dead_letter(site, "work-dead", "expired", "gone")
    page = site.open("queues/work-dead#dead", until="#reasons td")
    reasons = page.locator("#reasons")
    expect(reasons.get_by_role("row").nth(1)).to_contain_text("attempts")
    expect(reasons.get_by_role("row").nth(1)).to_contain_text("2")
    expect(page.locator("#sources")).to_contain_text("Dead letters of work come here")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview")).to_contain_text("2 messages to work")
    expect(page.locator("#preview")).to_contain_text("1 message stay: there is no topic gone")
    site.check()
    page.get_by_role("button", name="Redrive 2 messages").click()
    expect(page.locator("#confirm")).to_contain_text("Moves 2 messages from work-dead")
    page.locator("#confirm-yes").click()
    expect(page.locator("#redrives")).to_contain_text("2 of 3")
    assert site.rest("GET", "queues/work")["counts"]["ready"] == 2


def test_nothing_moves_when_the_question_is_declined(site: Site) -> None:
    work_with_dead_letters(site, "kept")
    dead_letter(site, "kept-dead", "attempts", "kept")
    page = site.open("queues/kept-dead#dead", until="#reasons td")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Redrive 1 message").click()
    page.keyboard.press("Escape")
    expect(page.locator("#confirm")).to_be_hidden()
    assert site.rest("GET", "dlq/kept-dead/redrives") == {"redrives": []}


def test_a_purge_names_what_is_lost(site: Site) -> None:
    site.rest("POST", "queues", {"name": "purged"})
    for value in ("a", "b", "c"):
        site.rest("POST", "topics/purged/records", {"value": value})
    page = site.open("queues/purged#danger", until="#found tr")
    page.get_by_role("button", name="Purge purged").click()
    expect(page.locator("#confirm")).to_contain_text("Drops 3 messages, of them 0 in flight")
    page.get_by_label("Type purged to go on").fill("purged")
    page.locator("#confirm-yes").click()
    expect(page.locator("#status")).to_have_text("purged is purged")
    assert site.rest("GET", "queues/purged")["counts"]["ready"] == 0
