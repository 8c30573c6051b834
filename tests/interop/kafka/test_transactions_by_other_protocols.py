"""Transactions of a stock producer, read by MQTT, SQS and Spark's reader, and after a kill."""

from pathlib import Path
from typing import Any

import boto3
import paho.mqtt.client as paho
import pytest
from confluent_kafka import Producer
from paho.mqtt.enums import CallbackAPIVersion

from gateway.testing.ports import free_port
from pipeline.log.options import parse_options
from tests.gateway.transaction_walk import rows_of
from tests.support.gateway import Gateway
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

WAIT_S = 30
QUEUE, TOPIC = "work", "mqtt"


def test_no_other_reader_gets_what_is_not_committed(tmp_path: Path) -> None:
    mqtt_port, sqs_port = free_port(), free_port()
    settings = {
        "adapters.mqtt.bind": f"127.0.0.1:{mqtt_port}",
        "adapters.mqtt.websocket.enabled": "false",
        "adapters.sqs.bind": f"127.0.0.1:{sqs_port}",
    }
    with Gateway(tmp_path / "data", settings) as gateway:
        sqs = boto3.client(
            "sqs",
            endpoint_url=f"http://127.0.0.1:{sqs_port}",
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )
        url = sqs.create_queue(QueueName=QUEUE)["QueueUrl"]
        seen: list[bytes] = []
        subscriber = subscribed(mqtt_port, seen)

        for number, is_commit in enumerate((False, True, False, True)):
            write(gateway.bootstrap, f"{number}", is_commit=is_commit)
        wait_until(lambda: len(seen) >= 2, within_s=WAIT_S, what="the committed messages")
        bodies = received(sqs, url)
        gateway.kill()
        gateway.start()
        write(gateway.bootstrap, "4", is_commit=False)
        write(gateway.bootstrap, "5", is_commit=True)
        bodies += received(sqs, url)
        rows = {
            topic: [value for _, value in rows_of(options_of(tmp_path / "data", topic))]
            for topic in (QUEUE, TOPIC)
        }
        counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        subscriber.disconnect()
        subscriber.loop_stop()

    assert seen[:2] == [b"1", b"3"]
    assert sorted(bodies) == ["1", "3", "5"]
    assert rows == {QUEUE: [b"1", b"3", b"5"], TOPIC: [b"1", b"3", b"5"]}
    assert counts["ApproximateNumberOfMessages"] == "0"


def write(bootstrap: str, value: str, *, is_commit: bool) -> None:
    """Write a record to both topics in one transaction, and end it."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": f"id-{value}"}
    producer = Producer(settings)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(QUEUE, value)
    producer.produce(TOPIC, value, key="a/b")
    assert producer.flush(WAIT_S) == 0
    if is_commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)


def subscribed(port: int, seen: list[bytes]) -> paho.Client:
    client = paho.Client(CallbackAPIVersion.VERSION2, "reader", protocol=paho.MQTTv5)
    client.on_message = lambda _client, _data, message: seen.append(bytes(message.payload))
    ready: list[Any] = []
    client.on_subscribe = lambda *_args: ready.append(True)
    client.connect("127.0.0.1", port)
    client.loop_start()
    client.subscribe("a/#", qos=1)
    wait_until(lambda: bool(ready), within_s=WAIT_S, what="the subscription")
    return client


def received(sqs: Any, url: str) -> list[str]:
    """Receive and delete all messages."""
    found: list[str] = []
    while messages := sqs.receive_message(
        QueueUrl=url, WaitTimeSeconds=1, MaxNumberOfMessages=10
    ).get("Messages"):
        found += [message["Body"] for message in messages]
        for message in messages:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found


def options_of(data_dir: Path, topic: str) -> Any:
    return parse_options({"path": str(data_dir), "topics": topic})
