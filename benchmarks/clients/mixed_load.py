"""A day's load of a small team's node, in minutes: four kinds of clients at once.

Kafka records at a rate, consumed as they come; MQTT clients that come, subscribe, publish at QoS 1
with and without RETAIN, and go; SQS messages in batches, received and deleted; topics made and
deleted.
"""

import argparse
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import Kind, disconnect, publish
from tests.support.sqs_raw import JsonClient
from tests.support.topics import create_topic, fresh_name

KAFKA_PER_S: Final = 4_000
KAFKA_STEP: Final = 200
MQTT_CLIENTS_PER_S: Final = 20
MQTT_TOPICS: Final = 1_000
SQS_PER_S: Final = 500
SQS_BATCH: Final = 10
TOPICS_PER_S: Final = 1.0
MESSAGE_BYTES: Final = 256
ANSWER_S_MAX: Final = 30.0


class Load:
    """``counts`` what was done; each part runs in a thread until the time is over."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self._arguments = arguments
        self._bootstrap = f"127.0.0.1:{arguments.kafka_port}"
        self._until_s = 0.0

    def run(self) -> None:
        """Do all of it for as long as was asked."""
        self._until_s = time.monotonic() + self._arguments.seconds
        parts = (self._produce, self._consume, self._publish, self._send, self._make_topics)
        self._topic = create_topic(self._bootstrap, partitions=4)
        threads = [threading.Thread(target=self._guarded, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _guarded(self, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:  # noqa: BLE001 - the figure says which part ended early
            self.errors.append(f"{part.__name__}: {error!r}")

    def _paced(self, per_s: float) -> "itertools.takewhile[int]":
        """Return numbers, each when it is due, until the time is over."""
        started_s = time.monotonic()

        def is_due(number: int) -> bool:
            time.sleep(max(0.0, started_s + number / per_s - time.monotonic()))
            return time.monotonic() < self._until_s

        return itertools.takewhile(is_due, itertools.count())

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 5})
        value = b"x" * MESSAGE_BYTES
        for _ in self._paced(KAFKA_PER_S / KAFKA_STEP):
            for number in range(KAFKA_STEP):
                producer.produce(self._topic, value, key=b"%d" % number)
            producer.poll(0)
            self.counts["kafka sent"] += KAFKA_STEP
        producer.flush(ANSWER_S_MAX)

    def _consume(self) -> None:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": fresh_name("g"),
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        consumer.subscribe([self._topic])
        while time.monotonic() < self._until_s:
            self.counts["kafka received"] += len(consumer.consume(1_000, timeout=0.2))
        consumer.close()

    def _publish(self) -> None:
        for number in self._paced(MQTT_CLIENTS_PER_S):
            topic = f"devices/{number % MQTT_TOPICS}/state"
            with RawClient(self._arguments.mqtt_port) as client:
                client.connect(f"device-{number}")
                client.subscribe(("commands/#", 1), (f"devices/{number % 10}/+", 1))
                self._publish_some(client, topic)
                client.send(disconnect())
            self.counts["mqtt clients"] += 1

    def _publish_some(self, client: RawClient, topic: str) -> None:
        for at in range(5):
            packet_id = client.next_id()
            client.send(
                publish(topic, b"y" * MESSAGE_BYTES, qos=1, packet_id=packet_id, retain=at == 0)
            )
            while (found := client.receive()).kind is not Kind.PUBACK:
                client.accept(found)
        self.counts["mqtt sent"] += 5

    def _send(self) -> None:
        with JsonClient(self._arguments.sqs_port) as client:
            url = client.made(fresh_name("q"))
            body = "z" * MESSAGE_BYTES
            for number in self._paced(SQS_PER_S / SQS_BATCH):
                entries = [{"Id": str(at), "MessageBody": body} for at in range(SQS_BATCH)]
                client.call("SendMessageBatch", QueueUrl=url, Entries=entries)
                if number % 2:
                    self._drain(client, url)

    def _drain(self, client: JsonClient, url: str) -> None:
        while True:
            found = client.call("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=SQS_BATCH)
            handles = [one["ReceiptHandle"] for one in found.get("Messages", ())]
            if not handles:
                return
            entries = [{"Id": str(at), "ReceiptHandle": one} for at, one in enumerate(handles)]
            client.call("DeleteMessageBatch", QueueUrl=url, Entries=entries)
            self.counts["sqs deleted"] += len(handles)

    def _make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for _ in self._paced(TOPICS_PER_S):
            name = fresh_name("made")
            admin.create_topics([NewTopic(name, 4, 1)])[name].result(ANSWER_S_MAX)
            admin.delete_topics([name])[name].result(ANSWER_S_MAX)
            self.counts["topics made"] += 1


def main() -> None:
    """Do the load, and print what was done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka-port", type=int, required=True)
    parser.add_argument("--mqtt-port", type=int, required=True)
    parser.add_argument("--sqs-port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    load = Load(parser.parse_args())
    load.run()
    found: dict[str, Any] = {"counts": dict(load.counts), "errors": load.errors}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
