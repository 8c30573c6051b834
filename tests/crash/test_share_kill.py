"""kill -9 of a node under share consumers of Apache Kafka's Java client.

What a consumer was told is acknowledged is delivered no more; all the rest is delivered again.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from gateway.testing.process import Program
from tests.crash.kill_schedule import how_often
from tests.support.gateway import Gateway
from tests.support.toolchain import java_classpath
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.java]

MESSAGES: Final = 3_000
LOOK_AGAIN_S: Final = 0.2
DONE_S_MAX: Final = 300
TOOL: Final = "org.apache.kafka.tools.VerifiableShareConsumer"


class Consumer:
    """A consumer that says what it gets, and what is acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        options = ["java", "-XX:TieredStopAtLevel=1", "-cp", java_classpath(), TOOL]
        self.program = Program(
            [*options, "--bootstrap-server", bootstrap, "--topic", topic, "--group-id", "g",
             "--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest",
             "--verbose"],
            merge_errors=False,
        )  # fmt: skip

    def events(self) -> list[dict[str, Any]]:
        lines = list(self.program.lines)
        return [json.loads(line) for line in lines if line.startswith("{")]


def received(events: Sequence[dict[str, Any]]) -> list[int]:
    return [one["offset"] for one in events if one["name"] == "record_data"]


def acknowledged(events: Sequence[dict[str, Any]]) -> set[int]:
    return {
        offset
        for one in events
        if one["name"] == "offsets_acknowledged" and one["success"]
        for part in one["partitions"]
        for offset in part["offsets"]
    }


@how_often(1, 20)
def test_acknowledged_records_do_not_come_again_after_kills(tmp_path: Path, kills: int) -> None:
    with Gateway(tmp_path / "data") as gateway:
        topic = create_topic(gateway.bootstrap, partitions=1)
        consumer = Consumer(gateway.bootstrap, topic)
        try:
            _run(gateway, consumer, topic, kills)
        finally:
            consumer.program.kill()


def _run(gateway: Gateway, consumer: Consumer, topic: str, kills: int) -> None:
    for kill in range(kills):
        _produce(gateway.bootstrap, topic, MESSAGES)
        # Locks of what it has not acknowledged yet are lost with the node.
        _wait_for_acknowledged(consumer, kill * MESSAGES + MESSAGES // 3)
        gateway.kill()
        events = consumer.events()
        done = acknowledged(events)
        gateway.start()
        _wait_for_acknowledged(consumer, (kill + 1) * MESSAGES)
        again = set(received(consumer.events()[len(events) :]))
        assert not again & done
    assert set(received(consumer.events())) == set(range(kills * MESSAGES))


def _wait_for_acknowledged(consumer: Consumer, count: int) -> None:
    wait_until(
        lambda: len(acknowledged(consumer.events())) >= count,
        within_s=DONE_S_MAX,
        every_s=LOOK_AGAIN_S,
        what=f"{count} records are acknowledged",
    )


def _produce(bootstrap: str, topic: str, count: int) -> None:
    # Small batches, so that a fetch gets some of the messages and not all.
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 20})
    for number in range(count):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0
