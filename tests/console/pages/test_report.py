"""The last report of a Spark job in a real browser, and what the page says without one."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from gateway.last_report import FILE, write_last_report
from tests.console.pages.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console")]

NONE = {"p50": None, "p95": None, "p99": None}


def figures(**values: object) -> dict[str, Any]:
    return {
        "topic": None, "protocol": None, "records": 7_200, "decoded_bytes": 2_048,
        "stored_bytes": 1_024, "late_ms": {"p50": 1, "p95": 2, "p99": 65_000},
        "overdue_ms": NONE, "undecodable": 0, **values,
    }  # fmt: skip


@pytest.fixture
def report(site: Site) -> Iterator[dict[str, Any]]:
    """A report of one topic with two damaged batches, as a job leaves it."""
    document = {
        "job": "report",
        "source": "the log in /data",
        "ended_unix_ms": 1_764_000_000_000,
        "took_ms": 42_000,
        "total": figures(undecodable=2),
        "by_topic": [figures(topic="orders<b>", protocol="kafka", undecodable=2)],
        "row_count": 5,
        "topic_count": 3,
    }
    write_last_report(site.gateway.data_dir, document)
    yield document
    (site.gateway.data_dir / FILE).unlink()


def test_without_a_report_the_page_says_how_to_make_one(site: Site) -> None:
    page = site.open("report", until="#empty")
    expect(page.locator("#empty")).to_contain_text("headgate pipeline report")
    expect(page.locator("#found")).to_be_hidden()
    site.check()


@pytest.mark.usefixtures("report")
def test_the_last_report_is_shown_with_its_faults(site: Site) -> None:
    page = site.open("report", until="#by-topic td")
    expect(page.locator("#source")).to_contain_text("Job report, ended 2025-11-24 16:00:00")
    expect(page.locator("#source")).to_contain_text("after 42 s")
    expect(page.locator("#cards")).to_contain_text("7,200")
    expect(page.locator("#cards")).to_contain_text("1.1 min")
    expect(page.locator("#faults")).to_contain_text("2 batches cannot be decoded")
    expect(page.locator("#by-topic")).to_contain_text("orders<b>")
    expect(page.locator("#more")).to_contain_text("4 smaller ones")
    site.check()
