"""MQTT's page in a real browser, which the adapter brings itself."""

from collections.abc import Iterator

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from playwright.sync_api import expect

from tests.console.pages.conftest import Site
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console")]


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    """A client that has subscribed to plant/+/temp, and retains a message of another topic."""
    client = Client(
        CallbackAPIVersion.VERSION2, client_id="meter-7", protocol=MQTTProtocolVersion.MQTTv5
    )
    host, _, port = str(site.gateway.settings["adapters.mqtt.bind"]).rpartition(":")
    client.connect(host, int(port))
    client.loop_start()
    client.subscribe("plant/+/temp", qos=1)
    client.publish("plant/1/name", b"\xff\x00", qos=1, retain=True).wait_for_publish(20)
    yield client
    client.disconnect()
    client.loop_stop()


@pytest.mark.usefixtures("client")
def test_sessions_and_subscriptions_are_listed(site: Site) -> None:
    page = site.open("mqtt", until="#sessions tbody th")
    row = page.locator("#sessions tbody tr", has_text="meter-7")
    expect(row).to_contain_text("connected, 5.0")
    site.check()
    page.get_by_role("tab", name="Subscriptions").click()
    expect(page.locator("#subscriptions tbody")).to_contain_text("plant/+/temp")


@pytest.mark.usefixtures("client")
def test_retained_bytes_are_shown_as_hex(site: Site) -> None:
    page = site.open("mqtt#retained", until="#retained-rows tr")
    page.get_by_label("Topic filter").fill("plant/#")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#retained-rows")).to_contain_text("plant/1/name")
    expect(page.locator("#retained-rows")).to_contain_text("hex ff 00")
    site.check()


@pytest.mark.usefixtures("client")
def test_receivers_of_a_topic_are_named(site: Site) -> None:
    page = site.open("mqtt#who", until="#ask")
    page.get_by_label("Topic name").fill("plant/9/temp")
    page.get_by_role("button", name="Who would get it?").click()
    expect(page.locator("#answer")).to_contain_text("1 would get plant/9/temp")
    expect(page.locator("#answer")).to_contain_text("meter-7")
    site.check()


def test_a_client_is_disconnected_after_a_question(site: Site, client: Client) -> None:
    reasons: list[str] = []
    client.on_disconnect = lambda *given: reasons.append(str(given[3]))
    page = site.open("mqtt", until="#sessions tbody th")
    page.get_by_role("button", name="Disconnect meter-7").click()
    expect(page.locator("#confirm")).to_contain_text("Ends the connection of meter-7")
    page.locator("#confirm-yes").click()
    wait_until(lambda: bool(reasons), within_s=60, what="the client is disconnected")
    assert reasons[0] == "Administrative action"
