"""Make the pictures of the console in docs/pictures: ``python -m scripts.console_pictures``.

It runs a node with some traffic and takes pictures of its pages in Chromium, in the light theme
and reduced to 64 colors. It takes a minute: the charts of the overview need samples.
"""

import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from gateway.cli.admin_client import AdminClient
from gateway.testing.ports import free_port
from tests.support.gateway import ROOT, Gateway

FOLDER: Final = ROOT / "docs" / "pictures"
SIZE: Final = {"width": 1_120, "height": 700}
SAMPLES: Final = 22  # every two seconds
COLORS: Final = 64
PICTURES: Final = {
    "overview": ("overview", "#charts svg"),
    "messages": ("topics/orders?from=newest", "#messages tbody tr"),
    "queue": ("queues/work-dead#dead", "#dead table"),
    "mqtt": ("mqtt", "#sessions tbody tr"),
    "amqp": ("amqp?exchange=events&key=order.created#route", "#route-answer li"),
}


def main() -> None:
    """Make all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder)) as node,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport=SIZE, color_scheme="light", timezone_id="UTC")
        client = AdminClient(
            f"http://127.0.0.1:{node.admin_port}",
            (node.data_dir / "admin.token").read_text().strip(),
        )
        fill(client)
        meters = connect_meters(node)
        page.goto(f"{client.url}/console/overview")
        for step in range(SAMPLES):
            send(client, round(120 + 90 * math.sin(step / 3)))
            page.wait_for_timeout(2_000)
        for name, (path, until) in PICTURES.items():
            take(page, f"{client.url}/console/{path}", until, name)
        for meter in meters:
            meter.loop_stop()
        browser.close()


@contextmanager
def running(folder: Path) -> Iterator[Gateway]:
    """Run a node with all protocols."""
    settings = {
        "adapters.amqp.bind": f"127.0.0.1:{free_port()}",
        "adapters.mqtt.bind": f"127.0.0.1:{free_port()}",
        "adapters.sqs.bind": f"127.0.0.1:{free_port()}",
    }
    with Gateway(folder / "data", settings) as gateway:
        yield gateway


def fill(client: AdminClient) -> None:
    """Make topics, queues and a group that lags."""
    client.send("POST", "topics", body={"name": "orders", "partitions": 3})
    client.send("POST", "topics", body={"name": "billing-events"})
    client.send("POST", "queues", body={"name": "work-dead"})
    settings = {"dead_letter_topic": "work-dead", "attempts_max": 5}
    client.send("POST", "queues", body={"name": "work", "settings": settings})
    for number, reason in enumerate(("attempts", "attempts", "expired")):
        headers = [
            {"name": "dlq.reason", "value": reason},
            {"name": "dlq.source.topic", "value": "work"},
            {"name": "dlq.attempts", "value": "5"},
        ]
        body = {"key": f"job-{number}", "value": '{"job": "resize"}', "headers": headers}
        client.send("POST", "topics", "work-dead", "records", body=body)
    fill_exchanges(client)
    offsets = {"topic": "orders", "to": "earliest"}
    client.send("POST", "groups", "billing", "offsets", body=offsets)


def fill_exchanges(client: AdminClient) -> None:
    """Make exchanges that lead to queues."""
    for name in ("invoices", "shipping", "returns"):
        client.send("POST", "queues", body={"name": name})
    client.send("POST", "exchanges", body={"name": "audit", "type": "fanout"})
    arguments = {"alternate-exchange": "amq.fanout"}
    events = {"name": "events", "type": "topic", "arguments": arguments}
    client.send("POST", "exchanges", body=events)
    for end, key in (
        ({"topic": "invoices"}, "order.created"),
        ({"topic": "shipping"}, "order.*"),
        ({"topic": "returns"}, "return.#"),
        ({"exchange": "audit"}, "#"),
    ):
        client.send("POST", "bindings", body={"source": "events", "routing_key": key, **end})
    client.send("POST", "bindings", body={"source": "audit", "topic": "billing-events"})


def connect_meters(node: Gateway) -> list[paho.Client]:
    """Connect some MQTT clients that subscribe."""
    port = int(str(node.settings["adapters.mqtt.bind"]).rpartition(":")[2])
    found = []
    for number in range(6):
        client = paho.Client(CallbackAPIVersion.VERSION2, f"meter-{number}")
        client.connect("127.0.0.1", port)
        client.loop_start()
        client.subscribe(f"plant/{number}/#", 1)
        client.publish(f"plant/{number}/temp", b'{"celsius": 21.5}', qos=1, retain=True)
        found.append(client)
    return found


def send(client: AdminClient, count: int) -> None:
    """Send so many orders, and some work."""
    records = [
        {"key": f"user-{n % 40}", "value": f'{{"order": {n}, "total": {n % 90}.50}}'}
        for n in range(count)
    ]
    client.send("POST", "topics", "orders", "record-batch", body={"records": records})
    work = [{"value": f'{{"resize": "image-{n}.png"}}'} for n in range(count // 20)]
    client.send("POST", "topics", "work", "record-batch", body={"records": work})


def take(page: Page, url: str, until: str, name: str) -> None:
    """Take a picture of a page, and keep it with few colors."""
    page.goto(url)
    page.wait_for_selector(until, state="attached")
    page.wait_for_timeout(1_500)
    picture = Image.open(BytesIO(page.screenshot()))
    file = FOLDER / f"console-{name}.png"
    picture.convert("RGB").quantize(COLORS).save(file, optimize=True)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")  # noqa: T201 - a script


if __name__ == "__main__":
    main()
