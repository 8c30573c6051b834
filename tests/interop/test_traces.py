"""One trace through all protocols: from an MQTT publish through Kafka to an SQS receive."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import paho.mqtt.client as paho
import pytest
from confluent_kafka import Consumer, Producer
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.otlp_receiver import ReceivedSpan, Receiver, receiving
from tests.support.sqs_gateway import SqsGateway
from tests.support.waiting import wait_until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
FIRST, SECOND = "00f067aa0ba902b7", "53995c3f42cd8ad8"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


def publish(gateway: SqsGateway, text: bytes, traceparent: str) -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    assert connected.wait(30)
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("traceparent", traceparent)]
    client.publish("sensors/1", text, qos=1, properties=properties).wait_for_publish(30)
    client.disconnect()
    client.loop_stop()


def forward(gateway: SqsGateway) -> None:
    """Read a record of MQTT's topic, and produce it to the queue's, in the same trace."""
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": "forwarder",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["mqtt"])
    (message,) = consumer.consume(1, timeout=60)
    headers = dict(message.headers() or [])
    assert headers["traceparent"] == f"00-{TRACE}-{FIRST}-01".encode()
    consumer.close()
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "compression.type": "lz4"})
    value = message.value()
    assert value is not None
    traceparent = f"00-{TRACE}-{SECOND}-01".encode()
    producer.produce("jobs", value * 20, headers=[("traceparent", traceparent)])
    assert producer.flush(30) == 0


def receive(gateway: SqsGateway) -> dict[str, Any]:
    sqs = boto3.client(
        "sqs",
        endpoint_url=gateway.endpoint.url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    url = sqs.get_queue_url(QueueName="jobs")["QueueUrl"]
    answer = sqs.receive_message(
        QueueUrl=url, WaitTimeSeconds=20, MessageAttributeNames=["All"]
    )
    (message,) = answer["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    sqs.close()
    return dict(message)


def test_one_trace_id_from_mqtt_through_kafka_to_sqs(
    tmp_path: Path, receiver: Receiver
) -> None:
    settings = {"otel.endpoint": receiver.url, "otel.service_name": "broker"}
    with SqsGateway(tmp_path / "data", settings) as gateway:
        gateway.run_command(
            "queues", "create", "jobs", f"--set=node.data_dir={gateway.data_dir}"
        )
        publish(gateway, b"warm", f"00-{TRACE}-{FIRST}-01")
        publish(gateway, b"not sampled", f"00-{'1' * 32}-{FIRST}-00")
        forward(gateway)
        message = receive(gateway)
        traceparent = message["MessageAttributes"]["traceparent"]["StringValue"]
        assert traceparent == f"00-{TRACE}-{SECOND}-01"
        expected = {
            ("publish mqtt", FIRST), ("receive mqtt", FIRST), ("publish jobs", SECOND),
            ("receive jobs", SECOND), ("settle jobs", SECOND),
        }  # fmt: skip
        wait_until(
            lambda: expected <= {(one.name, one.parent_id) for one in receiver.spans},
            within_s=60,
            what="all spans have arrived",
        )
        assert gateway.metric("headgate_spans_dropped_total") == 0

    assert {one.trace_id for one in receiver.spans} == {TRACE}
    assert {one.service for one in receiver.spans} == {"broker"}
    assert all(one.begun_unix_ns <= one.ended_unix_ns for one in receiver.spans)
    check_order(receiver.spans)


def check_order(spans: list[ReceivedSpan]) -> None:
    """Check that no span ends before what it follows has begun."""
    begun = {one.name: one.begun_unix_ns for one in spans}
    assert begun["publish mqtt"] <= begun["receive mqtt"] <= begun["publish jobs"]
    assert begun["publish jobs"] <= begun["receive jobs"]


def test_a_dead_receiver_delays_nothing_and_drops_are_counted(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.may_answer.clear()
    settings = {"otel.endpoint": receiver.url, "otel.spans_queued_max": 5}
    with SqsGateway(tmp_path / "data", settings) as gateway:
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 0})
        header = [("traceparent", f"00-{TRACE}-{FIRST}-01".encode())]
        for _ in range(20):
            producer.produce("orders", b"v", headers=header)
            assert producer.flush(30) == 0
        assert gateway.metric("headgate_spans_dropped_total") > 0
        assert gateway.metric("headgate_topic_records_in_total") == 20


def test_without_an_endpoint_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    with SqsGateway(tmp_path / "data") as gateway:
        text = gateway.http("/metrics")[1]
        maps = Path(f"/proc/{gateway.pid}/maps").read_text()
    assert "headgate_spans" not in text
    assert "protobuf" not in maps
