"""Stock clients of every protocol on a gateway whose disk is a bucket, before and after a kill.

``make test-s3`` runs the whole suites so.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import paho.mqtt.client as paho
import pytest
from confluent_kafka import Consumer, Producer
from paho.mqtt.enums import CallbackAPIVersion

from gateway.testing.ports import free_port
from tests.gateway import postgres
from tests.support.gateway import Gateway
from tests.support.s3_servers import S3Server, moto
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

_WAIT_S = 30


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with moto(tmp_path) as running:
        for name, value in running.env.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def metadata_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/metadata.sqlite"
        return
    reason = postgres.missing()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running_postgres() as url:
        yield url


class All:
    """A gateway with every protocol, and a stock client of each."""

    def __init__(self, server: S3Server, folder: Path, metadata_url: str) -> None:
        self.mqtt_port, self.sqs_port = free_port(), free_port()
        self.gateway = Gateway(
            folder / "data",
            {
                **server.settings(),
                "storage.flush_interval_ms": 20,
                "metadata.url": metadata_url,
                "adapters.mqtt.bind": f"127.0.0.1:{self.mqtt_port}",
                "adapters.mqtt.websocket.enabled": "false",
                "adapters.sqs.bind": f"127.0.0.1:{self.sqs_port}",
            },
        )

    def sqs(self) -> Any:
        return boto3.client(
            "sqs",
            endpoint_url=f"http://127.0.0.1:{self.sqs_port}",
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )

    def mqtt(self, client_id: str) -> paho.Client:
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5)
        client.connect("127.0.0.1", self.mqtt_port)
        client.loop_start()
        return client

    def consumed(self, topic: str, count: int) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.gateway.bootstrap,
                "group.id": f"g-{topic}",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        found: list[bytes] = []

        def came() -> bool:
            for message in consumer.consume(count, 0.5):
                assert message.error() is None
                found.append(message.value() or b"")
            return len(found) >= count

        with contextlib.closing(consumer):
            wait_until(came, within_s=_WAIT_S, what=f"{count} records of {topic}")
            consumer.commit(asynchronous=False)
        return found


def test_one_log_in_a_bucket(server: S3Server, tmp_path: Path, metadata_url: str) -> None:
    node = All(server, tmp_path, metadata_url)
    with node.gateway as gateway:
        sqs = node.sqs()
        url = sqs.create_queue(QueueName="work")["QueueUrl"]
        for body in ("one", "two"):
            sqs.send_message(QueueUrl=url, MessageBody=body)
        (taken,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=10)["Messages"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=taken["ReceiptHandle"])
        publisher = node.mqtt("publisher")
        publisher.publish("a/b", b"kept", qos=1, retain=True).wait_for_publish(_WAIT_S)
        publisher.disconnect()
        publisher.loop_stop()
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "acks": "all"})
        producer.produce("mqtt", b"from kafka", key=b"c/d")
        assert producer.flush(_WAIT_S) == 0

        assert node.consumed("mqtt", 2) == [b"kept", b"from kafka"]
        gateway.kill()
        shutil.rmtree(gateway.data_dir)
        gateway.start()

        left = [b"one", b"two"]
        left.remove(taken["Body"].encode())
        assert sorted(node.consumed("work", 2)) == [b"one", b"two"]
        (again,) = node.sqs().receive_message(QueueUrl=url, WaitTimeSeconds=10)["Messages"]
        assert again["Body"].encode() == left[0]
        seen: list[tuple[str, bytes, bool]] = []
        subscriber = node.mqtt("subscriber")
        subscriber.on_message = lambda _client, _data, message: seen.append(
            (message.topic, bytes(message.payload), message.retain)
        )
        subscriber.subscribe("#", qos=1)
        wait_until(lambda: bool(seen), within_s=_WAIT_S, what="the retained message")
        subscriber.disconnect()
        subscriber.loop_stop()
    assert seen == [("a/b", b"kept", True)]
