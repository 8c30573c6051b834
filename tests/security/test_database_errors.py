"""Error texts of a database reach the log, and no client."""

import sqlite3
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.sqs.programs.with_boto3 import Boto3
from tests.support.sqs_gateway import SqsGateway
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("security-database")]

WORDS = ("sqlite", "database", "locked", "metadata", "/")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsGateway]:
    folder = tmp_path_factory.mktemp("database")
    with SqsGateway(folder / "data") as running:
        yield running


@pytest.fixture
def _locked(gateway: SqsGateway) -> Iterator[None]:
    """Another process holds the database for longer than is waited."""
    connection = sqlite3.connect(gateway.data_dir / "metadata.sqlite", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


def assert_nothing_told(message: str) -> None:
    assert "the node's log says why" in message
    assert [word for word in WORDS if word in message.lower()] == []


@pytest.mark.usefixtures("_locked")
def test_a_kafka_client_is_not_told(gateway: SqsGateway) -> None:
    client = AdminClient({"bootstrap.servers": gateway.bootstrap, "log_level": 0})
    future = client.create_topics([NewTopic("orders", 1, 1)], request_timeout=60)["orders"]
    with pytest.raises(KafkaException) as caught:
        future.result(60)
    assert_nothing_told(caught.value.args[0].str())
    wait_until(
        lambda: any("database is locked" in line for line in gateway.lines),
        within_s=30,
        what="the log says why",
    )


@pytest.mark.usefixtures("_locked")
def test_an_sqs_client_is_not_told(gateway: SqsGateway) -> None:
    api = Boto3(gateway.endpoint)
    with pytest.raises(ClientError) as caught:
        api.client.create_queue(QueueName="orders")
    api.close()
    assert_nothing_told(caught.value.response["Error"]["Message"])
