"""The commands about exchanges and bindings, a config that declares them, and stock clients."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from kafka import KafkaConsumer

from gateway.cli.settings import client_of, settings_of
from tests.cli.conftest import Run
from tests.support.sqs_gateway import SqsGateway
from tests.support.waiting import wait_until

DECLARED = """
[[queues]]
name = "work"
[[topics]]
name = "audit"
[[exchanges]]
name = "events"
type = "topic"
alternate = "unroutable"
[[exchanges]]
name = "unroutable"
type = "fanout"
[[bindings]]
source = "events"
topic = "work"
routing_key = "order.*"
[[bindings]]
source = "events"
topic = "audit"
routing_key = "#.created"
[[bindings]]
source = "amq.headers"
exchange = "events"
arguments = { x-match = "any", vip = true }
"""


class DeclaringGateway(SqsGateway):
    """A gateway whose config file declares exchanges."""

    def _config(self) -> Path:
        file = super()._config()
        file.write_text(file.read_text() + DECLARED)
        return file


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsGateway]:
    with DeclaringGateway(tmp_path_factory.mktemp("data")) as gateway:
        yield gateway


@pytest.fixture(autouse=True)
def _of_the_node(node: SqsGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADGATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADGATE_NODE__DATA_DIR", str(node.data_dir))


def sqs_bodies(node: SqsGateway, queue: str) -> list[str]:
    """Receive and delete what a queue has, with boto3."""
    client: Any = boto3.client(
        "sqs",
        endpoint_url=node.endpoint.url,
        region_name="eu-central-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    url = client.get_queue_url(QueueName=queue)["QueueUrl"]
    bodies = []
    for message in client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
        "Messages", []
    ):
        bodies.append(message["Body"])
        client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return bodies


def publish(node: SqsGateway, exchange: str, **body: Any) -> dict[str, Any]:
    client = client_of(settings_of(None, [f"node.data_dir={node.data_dir}"]))
    return client.send("POST", "exchanges", exchange, "publish", body=body)


def test_stock_clients_read_what_was_published_through_an_exchange(node: SqsGateway) -> None:
    consumer = KafkaConsumer(
        "audit", bootstrap_servers=node.bootstrap, auto_offset_reset="earliest", group_id=None
    )
    try:
        found = publish(
            node, "events", routing_key="order.created", value="one", headers={"n": "1"}
        )
        assert found == {"routed": True, "topics": ["audit", "work"]}
        publish(node, "events", routing_key="order.paid", value="two")

        record = next(iter(consumer))
        assert (record.key, record.value) == (b"order.created", b"one")
        assert list(record.headers) == [("n", b"1")]
        bodies: list[str] = []

        def has_both() -> bool:
            bodies.extend(sqs_bodies(node, "work"))
            return len(bodies) == 2

        wait_until(has_both, within_s=30, what="two messages")
        assert sorted(bodies) == ["one", "two"]
    finally:
        consumer.close()


def test_a_restart_makes_nothing_twice(node: SqsGateway, run: Run) -> None:
    before = run("bindings", "ls", "--json").json
    assert len(before) == 3
    node.stop()
    node.start()

    assert run("bindings", "ls", "--json").json == before


def test_the_life_of_an_exchange(run: Run) -> None:
    made = run("exchanges", "create", "logs", "--type", "headers", "--alternate", "events")
    assert (made.status, made.out) == (0, "exchange logs of type headers is there\n")
    bound = run("bindings", "create", "logs", "audit", "-a", "x-match=any", "-a", "n=5")
    assert (bound.status, bound.out) == (0, "logs leads to audit\n")
    assert run("bindings", "create", "logs", "events", "--to-exchange", "-a", "m=x").status == 0
    table = run("exchanges", "list").out.splitlines()
    assert table[-2].split()[:3] == ["logs", "headers", "2"]
    assert "alternate-exchange=events" in table[-2]

    assert run("exchanges", "route", "logs", "-H", "n=5").out == "audit\n"
    assert run("exchanges", "route", "logs", "-k", "order.x", "-H", "m=x").out == "work\n"
    assert run("exchanges", "route", "logs", "-k", "order.x", "-H", "n=6").out == "work\n"
    assert (
        run("exchanges", "route", "amq.default", "-k", "no").out
        == "nowhere: no binding matches\n"
    )
    assert run("exchanges", "route", "amq.default", "-k", "work", "--json").json == ["work"]

    explained = run("exchanges", "route", "logs", "-H", "n=6", "--explain").out.splitlines()
    assert explained[0] == (
        "logs, headers: no binding matches: its alternate exchange gets the message"
    )
    assert "x-match=any: no header is met" in explained[2]
    assert explained[-1] == "nowhere: no binding matches"

    gone = run("bindings", "rm", "logs", "audit", "-a", "x-match=any", "-a", "n=5")
    assert (gone.status, gone.out) == (0, "removed\n")
    rows = run("bindings", "ls", "--source", "logs").out.splitlines()
    assert rows[1].split() == ["logs", "-", "events", "m=x"]
    assert run("exchanges", "delete", "logs", "--yes").out == "deleted logs\n"
    assert "ExchangeNotFound" in run("exchanges", "delete", "logs").err


def test_check_config_finds_what_a_start_would_refuse(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "headgate.toml"
    for text, words in (
        (
            '[[exchanges]]\nname = "x"\ntype = "other"',
            "exchanges.x: unknown exchange type 'other'",
        ),
        ('[[exchanges]]\nname = "amq.x"', "exchanges[0].name: "),
        (
            """[[exchanges]]
            name = "x"
            type = "x-consistent-hash"
            [[bindings]]
            source = "x"
            topic = "t"
            routing_key = "a"
            """,
            "bindings[0]: The binding key must be an integer",
        ),
        ('[[bindings]]\nsource = "amq.topic"', "bindings[0]: a binding has either"),
    ):
        file.write_text(text)
        found = run("check-config", "--config", str(file))
        assert (found.status, words in found.err) == (2, True), found.err
    file.write_text(DECLARED)
    assert run("check-config", "--config", str(file)).status == 0
