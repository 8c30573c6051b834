"""Topics in a real browser: the list, the message browser, sending, deleting."""

import base64

import pytest
from playwright.sync_api import expect

from tests.console.pages.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console")]


def fill(site: Site, topic: str, count: int) -> None:
    site.rest("POST", "topics", {"name": topic, "partitions": 2})
    for at in range(count):
        body = {"key": f"user-{at % 3}", "value": f'{{"at": {at}}}'}
        site.rest("POST", f"topics/{topic}/records", body)


def test_the_node_sorts_filters_and_pages_the_list(site: Site) -> None:
    for at in range(55):
        site.rest("POST", "topics", {"name": f"many-{at:02}"})
    fill(site, "many-full", 1)
    page = site.open("topics?contains=many-", until="tbody a")
    expect(page.locator("#list")).to_contain_text("1 to 50 of 56")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#list")).to_contain_text("51 to 56 of 56")
    page.get_by_role("button", name="Records").click()
    page.get_by_role("button", name="Records").click()
    expect(page.locator("tbody tr").first).to_contain_text("many-full")
    assert "sort=-records" in page.url
    site.check()


def test_messages_are_found_by_key_value_and_header(site: Site) -> None:
    fill(site, "browsed", 9)
    header = {"value": "with", "headers": [{"name": "trace", "value": "abc"}]}
    site.rest("POST", "topics/browsed/records", header)
    page = site.open("topics/browsed", until="#found tr")
    progress, rows = page.locator("#progress"), page.locator("#found tr:not([hidden])")
    expect(progress).to_contain_text("10 found")
    expect(progress).to_contain_text("all read")
    page.get_by_label("Key is").fill("user-1")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(3)
    page.get_by_label("Value contains").fill('"at": 4')
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(1)
    page.get_by_label("Key is").fill("")
    page.get_by_label("Value contains").fill("")
    page.get_by_label("Header", exact=True).fill("trace=abc")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_contain_text("with")


def test_a_search_goes_on_from_where_it_was(site: Site) -> None:
    fill(site, "long", 60)
    page = site.open("topics/long?from=oldest", until="#found tr")
    rows = page.locator("#found tr:not([hidden])")
    expect(rows).to_have_count(50)
    expect(page.locator("#progress")).to_contain_text("there is more")
    page.get_by_role("button", name="Go on").click()
    expect(rows).to_have_count(60)


def test_what_is_no_text_is_shown_as_hex(site: Site) -> None:
    site.rest("POST", "topics", {"name": "binary"})
    value = base64.b64encode(b"\xff\x00ab").decode()
    site.rest("POST", "topics/binary/records", {"value_base64": value})
    page = site.open("topics/binary", until="#found tr")
    expect(page.locator("#found")).to_contain_text("hex ff 00 61 62")
    page.locator("#found").get_by_role("button", name="0/0").click()
    expect(page.locator(".record pre").last).to_contain_text("ff 00 61 62")
    site.check()


def test_markup_in_a_message_stays_text(site: Site) -> None:
    site.rest("POST", "topics", {"name": "markup"})
    hostile = "<img src=x onerror=\"document.title='owned'\">"
    site.rest("POST", "topics/markup/records", {"key": hostile, "value": hostile})
    page = site.open("topics/markup", until="#found tr")
    page.locator("#found").get_by_role("button", name="0/0").click()
    expect(page.locator(".record pre").first).to_contain_text("<img")
    assert page.locator("#found img").count() == 0
    assert "owned" not in page.title()


def test_a_sent_message_comes_to_a_page_that_follows(site: Site) -> None:
    site.rest("POST", "topics", {"name": "followed"})
    page = site.open("topics/followed", until="#progress")
    page.get_by_role("button", name="Follow").click()
    expect(page.locator("#progress")).to_contain_text("following: 0 came")
    page.get_by_role("tab", name="Send").click()
    page.get_by_label("Value", exact=True).fill("hello")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator("#sent")).to_contain_text("partition 0, offset 0")
    page.get_by_role("tab", name="Messages").click()
    expect(page.locator("#found")).to_contain_text("hello")


def test_a_topic_is_deleted_after_its_name_was_typed(site: Site) -> None:
    fill(site, "doomed", 2)
    page = site.open("topics/doomed#danger", until="#danger")
    page.get_by_role("button", name="Delete doomed").click()
    dialog = page.locator("#confirm")
    expect(dialog).to_contain_text("Deletes 2 records")
    expect(page.locator("#confirm-yes")).to_be_disabled()
    site.check()
    page.get_by_label("Type doomed to go on").fill("doomed")
    page.locator("#confirm-yes").click()
    page.wait_for_url("**/console/topics")
    assert site.rest("GET", "topics?limit=1&contains=doomed")["total"] == 0
