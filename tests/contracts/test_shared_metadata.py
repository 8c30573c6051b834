"""Two nodes over one PostgreSQL: clients of either see what clients of the other have made."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from sqlalchemy import create_engine, text

from gateway.metadata import follower
from gateway.model import TopicName
from tests.support.sqs_raw import JsonClient, Refused
from tests.support.two_nodes import HOSTS, TwoNodes
from tests.support.waiting import wait_until

WITHIN_S: Final = 60.0
EXISTS: Final = "TOPIC_ALREADY_EXISTS"

pytestmark = pytest.mark.postgres


class Clients(NamedTuple):
    """Clients of both nodes, by the node's index."""

    nodes: TwoNodes
    kafka: tuple[AdminClient, AdminClient]
    sqs: tuple[JsonClient, JsonClient]
    url: str

    def create(self, node: int, name: str) -> "Future[None]":
        """Begin to create a topic at a node."""
        return self.kafka[node].create_topics([NewTopic(name, 2)])[name]

    def topics(self, node: int) -> set[str]:
        """Return the topics that a node lists."""
        return set(self.kafka[node].list_topics(timeout=WITHIN_S).topics)

    def listeners(self) -> list[int]:
        """Return the processes of PostgreSQL's sessions that listen."""
        found = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        return execute(self.url, found)


def execute(url: str, statement: str) -> list[int]:
    """Return the first column of a statement's rows."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = [row[0] for row in connection.execute(text(statement))]
    engine.dispose()
    return found


@pytest.fixture
def clients(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Clients]:
    monkeypatch.setattr(follower, "NODES_WAIT_S_MAX", WITHIN_S)
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    with ExitStack() as stack:
        nodes = TwoNodes(tmp_path, ["kafka", "sqs"], "", metadata_url=postgres_url)
        stack.enter_context(nodes)
        kafka, sqs = [], []
        for host in HOSTS:
            bootstrap = f"{host}:{nodes.ports['kafka']}"
            kafka.append(AdminClient({"bootstrap.servers": bootstrap}))
            sqs.append(stack.enter_context(JsonClient(nodes.ports["sqs"], host=host)))
        yield Clients(nodes, (kafka[0], kafka[1]), (sqs[0], sqs[1]), postgres_url)


def test_what_clients_make_at_one_node_clients_of_the_other_find(clients: Clients) -> None:
    clients.create(0, "orders").result(WITHIN_S)
    assert "orders" in clients.topics(1)
    url = clients.sqs[0].made("jobs", VisibilityTimeout="7")
    assert clients.sqs[1].call("GetQueueUrl", QueueName="jobs")["QueueUrl"].endswith("/jobs")
    clients.sqs[0].call("DeleteQueue", QueueUrl=url)
    with pytest.raises(Refused, match=r"NonExistentQueue|QueueDoesNotExist"):
        clients.sqs[1].call("GetQueueUrl", QueueName="jobs")

    # Of two clients that create a topic at the same time, one is told that it exists.
    answers = [clients.create(node, "both").exception(WITHIN_S) for node in (0, 1)]
    racing = [[clients.create(node, f"race-{n}") for node in (0, 1)] for n in range(5)]
    for pair in racing:
        errors = [one.exception(WITHIN_S) for one in pair]
        answers += errors
        assert errors.count(None) == 1
    for error in answers:
        assert error is None or name_of(error) == EXISTS
    assert clients.topics(0) == clients.topics(1) >= {"orders", "both", "race-4"}

    # A deletion whose notification is lost with its connection is seen all the same.
    wait_until(lambda: len(clients.listeners()) == 2, within_s=WITHIN_S, what="both listen")
    for process in clients.listeners():
        execute(clients.url, f"SELECT pg_terminate_backend({process})::int")
    clients.kafka[0].delete_topics(["orders"])["orders"].result(WITHIN_S)
    wait_until(
        lambda: "orders" not in clients.topics(1), within_s=WITHIN_S, what="the topic is gone"
    )
    orders = TopicName("default", "orders")
    assert [one.topics.find(orders) for one in clients.nodes.kernels] == [None, None]
    assert clients.nodes.faults == []


def name_of(error: BaseException) -> str:
    """Return the name of a Kafka error."""
    assert isinstance(error, KafkaException)
    return str(error.args[0].name())
