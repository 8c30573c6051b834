"""One browser and one node for all tests of the console's pages.

They end with this package: while the browser runs, no test may have an event loop of its own.
"""

import http.client
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright

from gateway.admin.token import read_token
from gateway.testing.ports import free_port
from tests.support.console_toolchain import axe
from tests.support.gateway import Gateway

CHROMIUM = "chromium"
SERIOUS = {"serious", "critical"}


class Site:
    """A running node, and a page of a browser that looks at its console."""

    def __init__(self, gateway: Gateway, page: Page) -> None:
        self.gateway = gateway
        self.page = page
        self.url = f"http://127.0.0.1:{gateway.admin_port}"
        self.elsewhere: list[str] = []
        self.errors: list[str] = []
        page.on("request", self._note_request)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note_console)

    def open(self, path: str, *, until: str = "main") -> Page:
        """Open a page of the console, and wait for an element."""
        self.page.goto(f"{self.url}/console/{path}")
        self.page.wait_for_selector(until, state="attached")
        return self.page

    def rest(self, method: str, path: str, body: object = None) -> Any:
        """Call the REST interface with the token, as an administrator's program does."""
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.admin_port)
        token = read_token(self.gateway.data_dir)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(
                method, f"/v1/{path}", data, {"authorization": f"Bearer {token}"}
            )
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status < 300, text
            return json.loads(text) if text else None
        finally:
            connection.close()

    def check(self) -> None:
        """Check a page as it is now: accessible, in both themes, and nothing from elsewhere."""
        self.page.evaluate(axe().read_text())
        for theme in ("light", "dark"):
            self.page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
            found = self.page.evaluate(
                "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']})"
            )
            serious = [
                (one["id"], [node["html"][:200] for node in one["nodes"]])
                for one in found["violations"]
                if one["impact"] in SERIOUS
            ]
            assert serious == [], theme
        assert self.elsewhere == []
        assert self.errors == []

    def _note_request(self, request: Request) -> None:
        asked, own = urlsplit(request.url), urlsplit(self.url)
        if asked.scheme not in {"data", "blob"} and asked.netloc != own.netloc:
            self.elsewhere.append(request.url)

    def _note_console(self, message: Any) -> None:
        if message.type == "error" and "the server responded with a status" not in message.text:
            self.errors.append(message.text)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def console_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder: Path = tmp_path_factory.mktemp("console")
    settings = {
        "adapters.amqp.bind": f"127.0.0.1:{free_port()}",
        "adapters.mqtt.bind": f"127.0.0.1:{free_port()}",
        "adapters.mqtt.websocket.bind": f"127.0.0.1:{free_port()}",
        "auth.sha256_iterations": 4_096,
        "auth.sha512_iterations": 4_096,
    }
    with Gateway(folder / "data", settings) as gateway:
        yield gateway


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """Context of its own for each test: cookies, and storage."""
    context = chromium.new_context(viewport={"width": 1_200, "height": 900})
    context.set_default_timeout(15_000)
    yield context
    context.close()


@pytest.fixture
def site(console_node: Gateway, context: BrowserContext) -> Site:
    return Site(console_node, context.new_page())
