"""Consumer groups in a real browser: lag, and moving positions after a preview."""

import pytest
from playwright.sync_api import expect

from tests.console.pages.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console")]


def group_behind(site: Site, name: str, *, records: int, at: str) -> None:
    """Make a topic of a group's name, and a position in it."""
    site.rest("POST", "topics", {"name": name})
    for number in range(records):
        site.rest("POST", f"topics/{name}/records", {"value": str(number)})
    site.rest("POST", f"groups/{name}/offsets", {"topic": name, "to": at})


def test_lag_is_shown_in_messages_and_in_time(site: Site) -> None:
    group_behind(site, "slow", records=5, at="2")
    page = site.open("groups?contains=slow", until="tbody a")
    expect(page.locator("tbody tr")).to_contain_text("3")
    site.check()
    page.get_by_role("link", name="slow").click()
    row = page.locator("#positions tbody tr")
    expect(row).to_contain_text("slow, 0")
    expect(row.locator("td").nth(2)).to_have_text("3")
    expect(row.locator("td").nth(3)).to_contain_text("s")
    site.check()


def test_positions_move_after_a_preview(site: Site) -> None:
    group_behind(site, "moved", records=4, at="3")
    page = site.open("groups/moved", until="#positions tbody a")
    reset = page.locator("#reset")
    reset.get_by_label("Topic").fill("moved")
    reset.get_by_label("To", exact=True).select_option("earliest")
    reset.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview")).to_contain_text("repeats 3 messages")
    assert site.rest("GET", "groups/moved/offsets")["offsets"][0]["offset"] == 3
    page.get_by_role("button", name="Move 1 positions").click()
    expect(page.locator("#confirm")).to_contain_text("3 are delivered again")
    page.locator("#confirm-yes").click()
    expect(page.locator("#status")).to_have_text("The positions have moved")
    assert site.rest("GET", "groups/moved/offsets")["offsets"][0]["offset"] == 0


def test_a_topic_is_forgotten(site: Site) -> None:
    group_behind(site, "forgetful", records=1, at="latest")
    page = site.open("groups/forgetful", until="#positions tbody a")
    page.locator("#forget").get_by_label("Topic").fill("forgetful")
    page.get_by_role("button", name="Forget the positions").click()
    page.locator("#confirm-yes").click()
    page.wait_for_url("**/console/groups")
    assert site.rest("GET", "groups?limit=9&contains=forgetful")["total"] == 0
