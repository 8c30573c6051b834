"""Access and config in a real browser: what decides a question, and masked secrets."""

import pytest
from playwright.sync_api import expect

from tests.console.pages.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console")]


def test_the_rule_that_decides_is_named(site: Site) -> None:
    rule = {
        "effect": "deny",
        "operation": "write",
        "resource": "topic",
        "pattern": "literal",
        "name": "asked-orders",
        "principal": "alice",
    }
    site.rest("POST", "rules", rule)
    page = site.open("access", until="#ask")
    page.get_by_label("User", exact=True).first.fill("alice")
    page.locator("#ask-name").fill("asked-orders")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#answer")).to_contain_text("No: a rule denies it")
    expect(page.locator("#answer")).to_contain_text("deny write topic literal asked-orders")
    site.check()
    page.locator("#ask-operation").select_option("read")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#answer")).to_contain_text("none of them allows it")
    page.get_by_role("tab", name="Rules").click()
    page.get_by_role("button", name="Remove deny write topic").click()
    page.locator("#confirm-yes").click()
    expect(page.locator("#rule-list tbody tr")).to_have_count(0)


def test_the_first_user_is_named_with_its_consequence(site: Site) -> None:
    page = site.open("access#users", until="#user-list table")
    page.locator("#user-name").fill("ada")
    page.locator("#user-password").fill("secret")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#confirm")).to_contain_text("everybody must log in")
    site.check()
    page.keyboard.press("Escape")
    assert site.rest("GET", "users") == {"users": []}


def test_what_was_set_differs_from_defaults(site: Site) -> None:
    page = site.open("config", until="#settings tbody tr")
    table = page.locator("#settings")
    expect(table).to_contain_text("admin.bind")
    expect(table).not_to_contain_text("default")
    page.get_by_label("Only what was set").uncheck()
    page.get_by_label("Key contains").fill("shards")
    expect(table).to_contain_text("default")
    site.check()
