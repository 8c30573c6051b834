"""AMQP's page in a real browser: exchanges, bindings, the routing tester, connections."""

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ConnectionClosedByBroker
from playwright.sync_api import expect

from tests.console.pages.conftest import Site
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console")]


@pytest.fixture
def channel(site: Site) -> Iterator[BlockingChannel]:
    """A channel with an exchange ``events``, and two messages in flight of a queue of its own."""
    _, _, port = str(site.gateway.settings["adapters.amqp.bind"]).rpartition(":")
    parameters = pika.ConnectionParameters(
        port=int(port), client_properties={"connection_name": "shop-7"}
    )
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.exchange_declare("lost", "fanout")
    channel.exchange_declare("events", "topic", arguments={"alternate-exchange": "lost"})
    channel.queue_declare("parcels", exclusive=True)
    channel.queue_bind("parcels", "events", "order.*")
    channel.confirm_delivery()
    for _ in range(2):
        channel.basic_publish("", "parcels", b"m")
    channel.basic_qos(prefetch_count=5)
    received: list[object] = []
    channel.basic_consume("parcels", lambda *message: received.append(message))

    def has_both() -> bool:
        connection.process_data_events(time_limit=0.1)
        return len(received) == 2

    wait_until(has_both, within_s=60, what="two messages are in flight")
    yield channel
    if connection.is_open:
        connection.close()


@pytest.mark.usefixtures("channel")
def test_exchanges_lead_to_their_bindings(site: Site) -> None:
    page = site.open("amqp?exchanges-contains=events", until="#exchanges tbody a")
    row = page.locator("#exchanges tbody tr")
    expect(row).to_contain_text("topic")
    expect(row).to_contain_text("lost")
    site.check()
    page.get_by_role("link", name="events", exact=True).click()
    expect(page.locator("#bindings-from-list tbody")).to_contain_text("queue parcels")
    expect(page.locator("#bindings-from-list tbody")).to_contain_text("order.*")
    expect(page.locator("#bindings-to-list tbody")).to_contain_text("No binding leads to it.")
    site.check()
    page.locator("#bindings-from-list").get_by_role("link", name="parcels").click()
    expect(page.locator("#bindings-to-list tbody")).to_contain_text("amq.default")


@pytest.mark.usefixtures("channel")
def test_the_tester_says_where_a_message_would_go_and_why(site: Site) -> None:
    page = site.open("amqp?exchange=events&key=order.created#route", until="#route-answer li")
    answer = page.locator("#route-answer")
    expect(answer).to_contain_text("The message goes to 1 queue.")
    expect(answer.get_by_role("link", name="parcels")).to_be_visible()
    expect(answer).to_contain_text("its pattern matches the routing key")
    site.check()
    page.get_by_label("Routing key").fill("other")
    page.keyboard.press("Enter")
    expect(answer).to_contain_text("Unroutable: the message goes nowhere.")
    expect(answer).to_contain_text(
        "no binding matches: its alternate exchange gets the message"
    )
    expect(answer).to_contain_text("alternate exchange of events")
    site.check()
    page.locator("#route-exchange").fill("missing")
    page.keyboard.press("Enter")
    expect(answer).to_contain_text("no exchange 'missing'")
    assert site.rest("GET", "queues/parcels")["counts"]["ready"] == 0


def test_a_connection_is_closed_after_a_question(site: Site, channel: BlockingChannel) -> None:
    page = site.open("amqp#channels", until="#channels tbody th")
    row = page.locator("#channels tbody tr", has_text="parcels")
    expect(row.locator("td").nth(3)).to_have_text("5")
    site.check()
    page.get_by_role("tab", name="Connections").click()
    row = page.locator("#connections tbody tr", has_text="shop-7")
    expect(row).to_contain_text("running")
    site.check()
    row.get_by_role("button", name="Close").click()
    expect(page.locator("#confirm")).to_contain_text("2 messages without an acknowledgement")
    page.locator("#confirm-yes").click()
    expect(page.locator("#status")).to_have_text("The connection is closed")
    with pytest.raises(ConnectionClosedByBroker, match="closed by an administrator"):
        channel.connection.process_data_events(time_limit=30)
