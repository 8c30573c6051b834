"""MQTT's "Try it": the browser subscribes and publishes over the node's WebSocket listener."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import BrowserContext, Page, expect

from gateway.testing.ports import free_port
from tests.console.pages.conftest import Site
from tests.support.gateway import Gateway
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console")]


def connected(site: Site, version: str = "5.0") -> Page:
    page = site.open("mqtt#try", until="#try-connect")
    page.get_by_label("Version").select_option(version)
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.locator("#try-state")).to_contain_text("Connected to ws://127.0.0.1:")
    return page


def subscribe(page: Page, topic_filter: str) -> None:
    page.get_by_label("Subscribe to").fill(topic_filter)
    page.get_by_role("button", name="Subscribe", exact=True).click()
    expect(page.locator("#try-filters")).to_contain_text(topic_filter)


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    client = Client(CallbackAPIVersion.VERSION2, client_id="outside")
    host, _, port = str(site.gateway.settings["adapters.mqtt.bind"]).rpartition(":")
    client.connect(host, int(port))
    client.loop_start()
    yield client
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("version", ["5.0", "3.1.1"])
def test_a_message_comes_back_to_its_own_page(site: Site, version: str) -> None:
    page = connected(site, version)
    subscribe(page, f"try/{version}/+")
    page.get_by_label("Topic", exact=True).fill(f"try/{version}/a")
    page.get_by_label("Payload", exact=True).fill("grüße")
    page.get_by_role("button", name="Publish").click()
    expect(page.locator("#try-state")).to_contain_text(
        f"Acknowledged: 7 bytes to try/{version}/a"
    )
    expect(page.locator("#try-rows tr")).to_have_count(1)
    expect(page.locator("#try-rows")).to_contain_text("grüße")
    page.locator("#try-rows summary").click()
    site.check()


def test_bytes_go_out_as_hex_and_come_in_as_hex(site: Site, client: Client) -> None:
    got: list[MQTTMessage] = []
    client.on_message = lambda _client, _data, message: got.append(message)
    client.subscribe("try/out", qos=0)
    page = connected(site)
    subscribe(page, "try/in")
    page.get_by_label("Topic", exact=True).fill("try/out")
    page.get_by_label("Payload is hex").check()
    page.get_by_label("Payload", exact=True).fill("ff 00 1f")
    page.get_by_label("QoS of the message").select_option("0")
    page.get_by_role("button", name="Publish").click()
    wait_until(lambda: bool(got), within_s=60, what="the browser's message")
    assert got[0].payload == b"\xff\x00\x1f"
    client.publish("try/in", b"\xfe\x01", qos=1)
    expect(page.locator("#try-rows")).to_contain_text("hex fe 01")


def test_a_long_flood_keeps_the_newest_rows(site: Site, client: Client) -> None:
    page = connected(site)
    subscribe(page, "try/flood")
    for at in range(500):
        sent = client.publish("try/flood", f"reading {at}", qos=1)
    sent.wait_for_publish(60)
    expect(page.locator("#try-count")).to_have_text("500 received, the newest 200 shown")
    expect(page.locator("#try-rows tr")).to_have_count(200)
    expect(page.locator("#try-rows tr").first).to_contain_text("reading 499")


def test_all_of_it_works_by_keyboard(site: Site) -> None:
    page = site.open("mqtt#who", until="#ask")
    page.get_by_role("tab", name="Who would get it?").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#try-state")).to_contain_text("Not connected")
    page.get_by_label("Client identifier", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#try-filter")).to_be_focused()
    page.keyboard.type("try/keys")
    page.keyboard.press("Enter")
    button = page.get_by_role("button", name="Unsubscribe try/keys")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#try-filters li")).to_have_count(0)
    page.get_by_role("button", name="Disconnect", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#try-state")).to_have_text("Disconnected.")


def test_a_lost_connection_is_said(site: Site) -> None:
    page = connected(site)
    client_id = page.locator("#try-client").input_value()
    site.rest("POST", "adapters/mqtt/disconnect", {"values": {"client_id": client_id}})
    expect(page.locator("#try-state")).to_contain_text("Administrative action")
    expect(page.get_by_role("button", name="Connect", exact=True)).to_be_enabled()


def test_the_policy_names_the_listener_on_this_page_alone(site: Site) -> None:
    bind = site.gateway.settings["adapters.mqtt.websocket.bind"]
    for path, named in (
        ("mqtt", f"connect-src 'self' ws://{bind};"),
        ("topics", "connect-src 'self';"),
    ):
        answer = site.page.goto(f"{site.url}/console/{path}")
        assert answer is not None
        assert named in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"enabled": False}, "MQTT over WebSocket is off"),
        ({"origins": ["https://ours.example"]}, "is not in adapters.mqtt.websocket.origins"),
    ],
)
def test_a_listener_that_is_off_or_refuses_says_so(
    tmp_path: Path, context: BrowserContext, settings: dict[str, object], words: str
) -> None:
    given = {"bind": f"127.0.0.1:{free_port()}", **settings}
    names = {f"adapters.mqtt.websocket.{name}": value for name, value in given.items()}
    bind = {"adapters.mqtt.bind": f"127.0.0.1:{free_port()}"}
    with Gateway(tmp_path / "data", bind | names) as gateway:
        site = Site(gateway, context.new_page())
        page = site.open("mqtt#try", until="#try-connect")
        expect(page.locator("#try-state")).to_contain_text(words)
        expect(page.get_by_role("button", name="Connect", exact=True)).to_be_disabled()
        site.check()


def test_credentials_are_asked_for_and_typed(tmp_path: Path, context: BrowserContext) -> None:
    settings = {
        "adapters.mqtt.bind": f"127.0.0.1:{free_port()}",
        "adapters.mqtt.websocket.bind": f"127.0.0.1:{free_port()}",
        "auth.sha256_iterations": 4_096,
        "auth.sha512_iterations": 4_096,
    }
    with Gateway(tmp_path / "data", settings) as gateway:
        site = Site(gateway, context.new_page())
        site.rest("PUT", "users/ada", {"password": "ada-secret", "administrator": True})
        page = site.page
        page.goto(f"{site.url}/console/login?next=/console/mqtt")
        page.locator("input[name=user]").fill("ada")
        page.locator("input[name=password]").fill("ada-secret")
        page.keyboard.press("Enter")
        page.get_by_role("tab", name="Try it").click()
        page.get_by_role("button", name="Connect", exact=True).click()
        expect(page.locator("#try-state")).to_contain_text("The node refused CONNECT")
        page.get_by_label("User", exact=True).fill("ada")
        page.get_by_label("Password").fill("ada-secret")
        page.get_by_role("button", name="Connect", exact=True).click()
        expect(page.locator("#try-state")).to_contain_text("Connected to ws://127.0.0.1:")
