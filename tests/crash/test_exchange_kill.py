"""kill -9 of a node under publishes through an exchange: each message is in all topics or in none.

A message that was answered is in both; the exchanges and bindings are there again, too.
"""

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from gateway.cli.admin_client import AdminClient, NodeUnreachable, Refused
from gateway.cli.settings import client_of as admin_of
from gateway.cli.settings import settings_of
from tests.crash.kill_schedule import how_often
from tests.support.gateway import Gateway
from tests.support.waiting import wait_until

PUBLISHERS = 4
ANSWERS_BETWEEN_KILLS_MAX = 60

pytestmark = pytest.mark.crash


def client_of(gateway: Gateway) -> AdminClient:
    return admin_of(settings_of(None, [f"node.data_dir={gateway.data_dir}"]))


def declare(gateway: Gateway) -> None:
    client = client_of(gateway)
    for topic in ("first", "second"):
        client.send("POST", "topics", body={"name": topic, "partitions": 1})
        body = {"source": "amq.topic", "topic": topic, "routing_key": "#"}
        client.send("POST", "bindings", body=body)


class Publishers:
    """Threads that publish numbered messages until the node is gone."""

    def __init__(self, client: AdminClient, numbers: "list[int]") -> None:
        self.answered: list[int] = []
        self._client = client
        self._numbers = numbers
        self._threads = [threading.Thread(target=self._publish) for _ in range(PUBLISHERS)]
        for thread in self._threads:
            thread.start()

    def _publish(self) -> None:
        while self._numbers:
            number = self._numbers.pop()
            body = {"routing_key": f"k.{number}", "value": str(number)}
            try:
                found = self._client.send(
                    "POST", "exchanges", "amq.topic", "publish", body=body
                )
            except (NodeUnreachable, Refused):
                return
            assert found["topics"] == ["first", "second"]
            self.answered.append(number)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def values_of(gateway: Gateway, topic: str) -> list[int]:
    """Return the numbers in a topic, in order."""
    consumer: Any = KafkaConsumer(
        bootstrap_servers=gateway.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[int] = []
        while consumer.position(partition) < end:
            for records in consumer.poll(timeout_ms=1_000).values():
                found += [int(record.value) for record in records]
        return found
    finally:
        consumer.close()


@how_often(3, 20)
@pytest.mark.parametrize("flush", ["group", "never"])
def test_a_message_is_in_all_topics_or_in_none_after_kills(
    tmp_path: Path, flush: str, kills: int
) -> None:
    chooser = random.Random(flush)
    numbers = list(range(100_000))
    answered: list[int] = []
    with Gateway(tmp_path / "data", {"storage.flush": flush}) as gateway:
        declare(gateway)
        for _ in range(kills):
            publishers = Publishers(client_of(gateway), numbers)
            enough = chooser.randrange(1, ANSWERS_BETWEEN_KILLS_MAX)
            wait_until(
                lambda: len(publishers.answered) >= enough,  # noqa: B023 - it ends in this round
                within_s=60,
                what=f"{enough} answers",
            )
            gateway.kill()
            publishers.join()
            answered += publishers.answered
            gateway.restart()
        first, second = values_of(gateway, "first"), values_of(gateway, "second")

    assert first == second
    assert len(first) == len(set(first)), "a message is there twice"
    assert set(answered) <= set(first)


def publish_later(client: AdminClient, numbers: "list[int]", answered: "list[int]") -> None:
    """Publish numbered messages that wait a while, until the node is gone."""
    chooser = random.Random(len(numbers))
    while numbers:
        number = numbers.pop()
        body = {
            "routing_key": "k",
            "value": str(number),
            "headers": {"x-delay": chooser.randrange(50, 1_500)},
        }
        try:
            found = client.send("POST", "exchanges", "later", "publish", body=body)
        except (NodeUnreachable, Refused):
            return
        assert found == {"routed": True, "topics": []}
        answered.append(number)


@how_often(3, 20)
def test_a_delayed_message_is_routed_once_after_kills(tmp_path: Path, kills: int) -> None:
    chooser = random.Random(7)
    numbers = list(range(100_000))
    answered: list[int] = []
    with Gateway(tmp_path / "data", {"storage.flush": "group"}) as gateway:
        client = client_of(gateway)
        arguments = {"x-delayed-type": "fanout"}
        body = {"name": "later", "type": "x-delayed-message", "arguments": arguments}
        client.send("POST", "exchanges", body=body)
        for topic in ("first", "second"):
            client.send("POST", "topics", body={"name": topic, "partitions": 1})
            client.send("POST", "bindings", body={"source": "later", "topic": topic})
        for _ in range(kills):
            threads = [
                threading.Thread(
                    target=publish_later, args=(client_of(gateway), numbers, answered)
                )
                for _ in range(PUBLISHERS)
            ]
            for thread in threads:
                thread.start()
            enough = len(answered) + chooser.randrange(40, 160)
            wait_until(
                lambda: len(answered) >= enough,  # noqa: B023 - it ends in this round
                within_s=60,
                what=f"{enough} answers",
            )
            gateway.kill()
            for thread in threads:
                thread.join()
            gateway.restart()
        wait_until(
            lambda: set(answered) <= set(values_of(gateway, "first")),
            within_s=60,
            what="all delayed messages",
        )
        first, second = values_of(gateway, "first"), values_of(gateway, "second")

    assert sorted(first) == sorted(second)
    assert len(first) == len(set(first)), "a message is there twice"
    assert set(answered) <= set(first)
