"""RocketMQ's Java client, unmodified, with Kafka on the other side of the log."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from gateway.testing.process import Program
from tests.support import rocketmq_toolchain
from tests.support.gateway import Gateway
from tests.support.mqtt_target import port_of

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.xdist_group("rocketmq-interop"),
]

WITHIN_S = 180
JAVA = ("java", "-XX:TieredStopAtLevel=1", "-cp")
QUEUES = 4


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Return a gateway with a name server."""
    settings = {
        "adapters.rocketmq.bind": "127.0.0.1:0",
        "adapters.rocketmq.nameserver.bind": "127.0.0.1:0",
    }
    with Gateway(tmp_path_factory.mktemp("rocketmq-interop") / "data", settings) as running:
        program = running.program
        assert program is not None
        program.wait_for_line("headgate ready", within_s=WITHIN_S)
        yield running


def steps_of(lines: list[str]) -> dict[str, str]:
    """Return the steps that the program has printed."""
    return dict(line[2:].split(" ", 1) for line in lines if line.startswith("> "))


def kafka_messages(gateway: Gateway, topic: str, count: int) -> dict[bytes, dict[str, bytes]]:
    """Return the headers of so many messages of a topic by their values, as Kafka reads them."""
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(QUEUES)])
    found: dict[bytes, dict[str, bytes]] = {}
    try:
        while len(found) < count:
            message = consumer.poll(WITHIN_S)
            assert message is not None, f"{len(found)} of {count} messages"
            assert message.error() is None
            found[message.value() or b""] = dict(message.headers() or [])
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("version", ["5.5", "4.9"])
def test_the_java_client_produces_and_consumes(gateway: Gateway, version: str) -> None:
    stem = f"java-{version.replace('.', '-')}"
    nameserver = f"127.0.0.1:{port_of(gateway.lines, 'rocketmq-nameserver')}"
    classpath = rocketmq_toolchain.java_classpath(version)
    command = (*JAVA, classpath, "RocketMqInterop", nameserver, stem)
    program = Program(command, merge_errors=False)
    try:
        program.wait_for_line("> ready", within_s=WITHIN_S)
        producer = Producer({"bootstrap.servers": gateway.bootstrap})
        headers = [("rocketmq.tags", b"TagA"), ("plain", b"text")]
        producer.produce(stem, b"from kafka", headers=headers)
        assert producer.flush(WITHIN_S) == 0
        steps = steps_of(program.finish(within_s=WITHIN_S))
    finally:
        program.kill()

    id_chars = steps["first"].rpartition("|")[2]
    assert id_chars in {"32", "56"}
    assert steps == {
        "sent": "SEND_OK 0",
        "batch": "SEND_OK",
        "delayed": "SEND_OK",
        "half": "16",
        "first": f"TagA|k1 k2|red|{id_chars}",
        "consumed": "batch 0,batch 1,batch 2,hello,large 20000,later",
        "ready": "for others",
        "other": "from kafka|text",
        "ordered": "024,135",
    }
    stored = kafka_messages(gateway, stem, 8)
    first = stored[b"hello"]
    assert len(first["message-id"]) == int(id_chars)
    assert (first["rocketmq.tags"], first["rocketmq.keys"]) == (b"TagA", b"k1 k2")
    assert first["colour"] == b"red"
    assert stored[bytes(20_000)]["rocketmq.tags"] == b"TagA"
