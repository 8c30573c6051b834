"""A queue that refuses its publishers when it is full, as clients of each protocol see it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.support import mqtt_wire as wire
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import Kind
from tests.support.sqs_gateway import ACCOUNT, SqsGateway
from tests.support.sqs_raw import JsonClient, Refused

WITHIN_S = 30
POLICY_VIOLATION = 44
QUOTA_EXCEEDED = 0x97


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsGateway]:
    folder: Path = tmp_path_factory.mktemp("full")
    with SqsGateway(folder / "data") as running:
        yield running


@pytest.fixture
def queue(gateway: SqsGateway) -> Iterator[str]:
    """The queue of MQTT's topic, with room for one message."""
    name = "mqtt"
    place = ["--set", f"node.data_dir={gateway.data_dir}"]
    made = ["length_max=1", "overflow=reject-publish"]
    gateway.run_command("queues", "create", name, *made, *place)
    yield name
    gateway.run_command("queues", "rm", name, "--yes", *place)


def produce(gateway: SqsGateway, topic: str) -> KafkaError | None:
    """Produce one record; return what the broker said."""
    answers: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": gateway.bootstrap})

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        answers.append(error)

    producer.produce(topic, b"v", on_delivery=on_delivery)
    assert producer.flush(WITHIN_S) == 0
    return answers[0]


def test_a_kafka_producer_gets_policy_violation(gateway: SqsGateway, queue: str) -> None:
    assert produce(gateway, queue) is None
    error = produce(gateway, queue)
    assert error is not None
    assert error.code() == POLICY_VIOLATION


def test_a_sender_of_sqs_gets_a_fault_of_its_own(gateway: SqsGateway, queue: str) -> None:
    url = f"http://127.0.0.1:{gateway.sqs_port}/{ACCOUNT}/{queue}"
    with JsonClient(gateway.sqs_port) as client:
        client.call("SendMessage", QueueUrl=url, MessageBody="1")
        with pytest.raises(Refused) as raised:
            client.call("SendMessage", QueueUrl=url, MessageBody="2")
    assert (raised.value.code, raised.value.status) == ("OverLimit", 403)


@pytest.mark.parametrize(("qos", "answer"), [(1, Kind.PUBACK), (2, Kind.PUBREC)])
def test_a_publisher_of_mqtt_is_over_its_quota(
    gateway: SqsGateway, queue: str, qos: int, answer: Kind
) -> None:
    assert queue == "mqtt"
    with RawClient(gateway.mqtt_port) as client:
        client.connect(f"full-{qos}")
        client.publish("a/b", b"1", qos=1)
        client.send(wire.publish("a/b", b"2", qos=qos, packet_id=9))
        found = client.receive(answer)
        assert (found.packet_id, found.code) == (9, QUOTA_EXCEEDED)
