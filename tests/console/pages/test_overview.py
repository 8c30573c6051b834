"""The overview in a real browser: charts that live, the keyboard, the theme."""

import pytest
from playwright.sync_api import expect

from tests.console.pages.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console")]


def test_charts_are_drawn_while_somebody_looks(site: Site) -> None:
    page = site.open("overview", until="#charts path")
    assert page.locator("#charts figure").count() == 6
    memory = page.locator("figure", has_text="Memory").locator("svg.chart")
    assert "resident" in (memory.get_attribute("aria-label") or "")
    expect(page.locator("#endpoints")).to_contain_text("kafka")
    site.check()


def test_a_warning_names_the_dead_letters(site: Site) -> None:
    site.rest("POST", "queues", {"name": "overview-dead"})
    site.rest(
        "POST",
        "queues",
        {"name": "overview-work", "settings": {"dead_letter_topic": "overview-dead"}},
    )
    site.rest("POST", "topics/overview-dead/records", {"value": "lost"})
    page = site.open("overview")
    link = page.get_by_role("link", name="1 dead letters in overview-dead")
    expect(link).to_have_attribute("href", "/console/queues/overview-dead")


def test_the_keyboard_leads_everywhere(site: Site) -> None:
    page = site.open("overview")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    site.check()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("#jump-text")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/console/topics")


def test_the_theme_is_kept(site: Site) -> None:
    page = site.open("overview")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Theme").click()
    page.reload()
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != after
