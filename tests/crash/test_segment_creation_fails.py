"""A log whose next segment cannot be made: clients may try again elsewhere, the node stops."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_adapters.segment_log.segments import list_segments, segment_path
from tests.crash.load import read_all
from tests.support import kafka_wire as kafka
from tests.support import mqtt_wire as mqtt
from tests.support import s3_gateway
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import Kind
from tests.support.sqs_gateway import SqsGateway
from tests.support.sqs_raw import Gone, JsonClient, Refused
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(s3_gateway.IS_ON, reason="a bucket has no segments"),
]

MIB = 1024 * 1024
VALUE = bytes(range(256)) * 200
TEXT = "0123456789abcdef" * 3_200
COUNT = 2 * MIB // len(VALUE)  # more than a segment takes
STORAGE_ERROR = 56  # KAFKA_STORAGE_ERROR, which clients retry
TAKEN = {0, 0x10}  # of PUBACK; the latter: nobody subscribes to it
IMPLEMENTATION_SPECIFIC_ERROR = 0x83
FAULT = 1


@pytest.fixture(params=["group", "never"])
def gateway(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SqsGateway]:
    settings = {
        "storage.segment_bytes": MIB,
        "storage.reserve_bytes": MIB // 4,
        "storage.flush": request.param,
        "node.drain_s_max": 5,
    }
    with SqsGateway(tmp_path / "data", settings) as running:
        yield running


def block(gateway: SqsGateway) -> Path:
    """Block the path of the next segment with another file; return the path."""
    last = max(number for number, _ in list_segments(gateway.data_dir))
    path = segment_path(gateway.data_dir, last + 1)
    path.mkdir()
    return path


def check_stopped(gateway: SqsGateway) -> None:
    """The node ends with an error status, and what it logs is the disk's error alone."""
    program = gateway.program
    assert program is not None
    wait_until(lambda: not program.is_running, within_s=60, what="the node stops")
    assert program.process.returncode == FAULT
    text = "\n".join(program.lines)
    assert "storage failed, the node stops" in text
    assert "File exists" in text
    assert "Traceback" not in text
    assert "IndexError" not in text
    gateway.kill()


def produce_two(connection: kafka.Connection, topic: str, first: int) -> list[int]:
    """Produce two batches in one write, numbered from ``first``; return the error codes.

    The node closes its connections once it has answered with an error: a client that
    went on writing would lose answers that it has not read.
    """
    requests = bytearray()
    for number in (first, first + 1):
        body = kafka.produce_body([(topic, 0, kafka.batch([b"%d " % number + VALUE]))])
        requests += kafka.request(kafka.PRODUCE, 3, number, body)
    connection.socket.sendall(requests)
    answers = [connection.read()[4:] for _ in range(2)]
    return [code for answer in answers for code, _ in kafka.produce_errors(answer)]


def test_kafka_clients_get_a_retriable_error(gateway: SqsGateway) -> None:
    topic = create_topic(gateway.bootstrap)
    blocker = block(gateway)
    codes: list[int] = []
    with kafka.Connection(gateway.kafka_port) as connection:
        while STORAGE_ERROR not in codes and len(codes) < COUNT:
            codes += produce_two(connection, topic, len(codes))

    taken = codes.count(0)
    assert codes[:taken] == [0] * taken
    assert set(codes[taken:]) == {STORAGE_ERROR}
    check_stopped(gateway)
    blocker.rmdir()
    gateway.restart()
    stored = read_all(gateway.bootstrap, topic, 1)
    numbers = [int(value.split(b" ", 1)[0]) for _place, value in sorted(stored.items())]
    assert numbers[:taken] == list(range(taken))  # and perhaps some that were not acknowledged


def test_mqtt_clients_get_an_error_and_are_let_go(gateway: SqsGateway) -> None:
    with RawClient(gateway.mqtt_port) as publisher:
        publisher.connect()
        block(gateway)
        for number in range(1, COUNT + 1):
            publisher.send(mqtt.publish("t", VALUE, qos=1, packet_id=number))
        codes = [
            packet.code for packet in publisher.until_closed() if packet.kind is Kind.PUBACK
        ]

    assert set(codes) <= TAKEN | {IMPLEMENTATION_SPECIFIC_ERROR}
    assert IMPLEMENTATION_SPECIFIC_ERROR in codes
    check_stopped(gateway)


def test_sqs_clients_get_a_retriable_error(gateway: SqsGateway) -> None:
    with JsonClient(gateway.sqs_port) as client:
        url = client.made("q")
        block(gateway)
        refusals: list[Refused] = []
        try:
            for _ in range(COUNT):
                try:
                    client.call("SendMessage", QueueUrl=url, MessageBody=TEXT)
                except Refused as error:
                    refusals.append(error)
        except Gone:
            pass  # the node has stopped: a client tries again, too

    assert {(error.code, error.status) for error in refusals} == {("ServiceUnavailable", 503)}
    check_stopped(gateway)
