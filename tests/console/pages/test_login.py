"""Login and logout by their forms, with the headers that a real browser sends."""

from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.console.pages.conftest import Site
from tests.support.gateway import Gateway

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console")]


def test_a_user_logs_in_and_out(tmp_path: Path, context: BrowserContext) -> None:
    settings = {"auth.sha256_iterations": 4_096, "auth.sha512_iterations": 4_096}
    with Gateway(tmp_path / "data", settings) as gateway:
        site = Site(gateway, context.new_page())
        site.rest("PUT", "users/ada", {"password": "ada-secret", "administrator": True})
        page = site.open("topics", until="main.login")
        site.check()
        page.get_by_label("User name").fill("ada")
        page.get_by_label("Password").fill("ada-secret")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Topics")
        page.get_by_role("button", name="Log out").click()
        expect(page.locator("main.login")).to_be_visible()
