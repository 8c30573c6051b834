"""A byte that has changed on the disk reaches no client: its batch is refused and counted."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import kafka_wire, mqtt_wire
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import Prop
from tests.support.sqs_gateway import SqsGateway
from tests.support.sqs_raw import JsonClient
from tests.support.toolchain import ROOT

WHOLE, FLIPPED = b"as it was written: 0", b"as it was written: 1"
BEHIND = 200  # batches: more than what is kept decoded beside the live end


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[SqsGateway]:
    with SqsGateway(tmp_path / "data") as running:
        yield running


def flip(gateway: SqsGateway) -> None:
    """Change the last byte of the one place where ``WHOLE`` is stored."""
    places = [
        (file, at)
        for file in gateway.data_dir.rglob("*")
        if file.is_file() and (at := file.read_bytes().find(WHOLE)) >= 0
    ]
    ((file, at),) = places
    with file.open("r+b") as stored:
        stored.seek(at)
        stored.write(FLIPPED)


def corrupt_batches(gateway: SqsGateway, topic: str) -> int:
    """Return what the metric says of a topic."""
    metrics = gateway.http("/metrics")[1]
    name = f'headgate_corrupt_batches_total{{topic="{topic}"}} '
    return sum(
        int(float(line.removeprefix(name))) for line in metrics.splitlines() if name in line
    )


def produce(gateway: SqsGateway, topic: str, values: list[bytes]) -> None:
    with kafka_wire.Connection(gateway.kafka_port) as producer:
        for value in values:
            assert producer.produce(topic, 0, kafka_wire.batch([value]))[0] == 0


def test_a_queue_moves_it_to_its_dead_letters(gateway: SqsGateway) -> None:
    with JsonClient(gateway.sqs_port) as client:
        dead = client.made("dead")
        arn = client.attribute(dead, "QueueArn")
        policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"3"}}'
        jobs = client.made("jobs", RedrivePolicy=policy)
        produce(gateway, "jobs", [WHOLE, b"behind"])

        flip(gateway)

        found = client.call("ReceiveMessage", QueueUrl=jobs, WaitTimeSeconds=20)
        assert [one["Body"] for one in found["Messages"]] == ["behind"]
        client.call("ReceiveMessage", QueueUrl=dead, WaitTimeSeconds=20)["Messages"]
    with kafka_wire.Connection(gateway.kafka_port) as consumer:
        _, _, letter = consumer.fetch("dead", 0, 0)
    assert b"corrupt" in letter
    assert FLIPPED not in letter
    assert corrupt_batches(gateway, "jobs") == 1


def test_a_fifo_queue_goes_on_behind_it(gateway: SqsGateway) -> None:
    with JsonClient(gateway.sqs_port) as client:
        jobs = client.made("jobs.fifo", FifoQueue="true")
        client.call(
            "SendMessage",
            QueueUrl=jobs,
            MessageBody="a",
            MessageGroupId="g",
            MessageDeduplicationId="1",
        )
    produce(gateway, "jobs.fifo", [WHOLE, b"behind"])

    flip(gateway)
    gateway.stop()
    gateway.restart()
    with JsonClient(gateway.sqs_port) as client:
        bodies: list[str] = []
        while "behind" not in bodies:
            found = client.call("ReceiveMessage", QueueUrl=jobs, WaitTimeSeconds=20)
            for one in found["Messages"]:
                bodies.append(one["Body"])
                client.call("DeleteMessage", QueueUrl=jobs, ReceiptHandle=one["ReceiptHandle"])

        assert sorted(bodies) == ["a", "behind"]
    assert corrupt_batches(gateway, "jobs.fifo") == 1


def test_a_session_that_was_away_goes_on_behind_it(gateway: SqsGateway) -> None:
    expiry = [(Prop.SESSION_EXPIRY, 3_600)]
    with RawClient(gateway.mqtt_port) as client:
        client.connect("away", clean=False, found=expiry)
        client.subscribe(("#", 1))
        client.send(mqtt_wire.disconnect())
        client.until_closed()
    values = [b"%d" % number for number in range(BEHIND)]
    with kafka_wire.Connection(gateway.kafka_port) as producer:
        for value in [WHOLE, *values]:
            batch = kafka_wire.batch([value], key=b"a/b")
            assert producer.produce("mqtt", 0, batch)[0] == 0

    flip(gateway)

    with RawClient(gateway.mqtt_port) as client:
        client.connect("away", clean=False, found=expiry)
        came = [message.payload for message in client.messages(BEHIND)]
    assert came == values
    assert corrupt_batches(gateway, "mqtt") == 1


def test_a_fetch_hands_it_on_to_a_client_that_checks(gateway: SqsGateway) -> None:
    with JsonClient(gateway.sqs_port) as client:
        client.made("jobs")
    produce(gateway, "jobs", [WHOLE])

    flip(gateway)

    with kafka_wire.Connection(gateway.kafka_port) as consumer:
        code, _, records = consumer.fetch("jobs", 0, 0)
    assert code == 0
    assert FLIPPED in records
    assert corrupt_batches(gateway, "jobs") == 0


def verify_live(gateway: SqsGateway) -> tuple[int, str]:
    """Run ``headgate log verify --live``; return its exit status and what it printed."""
    command = [sys.executable, "-m", "gateway", "log", "verify", "--live"]
    admin = f"--set=admin.bind=127.0.0.1:{gateway.admin_port}"
    done = subprocess.run(
        [*command, f"--set=node.data_dir={gateway.data_dir}", admin],
        cwd=ROOT,
        env={**os.environ, **gateway.env},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_running_node_verifies_its_log(gateway: SqsGateway) -> None:
    with JsonClient(gateway.sqs_port) as client:
        client.made("jobs")
    produce(gateway, "jobs", [b"before", WHOLE, b"behind"])
    assert verify_live(gateway)[0] == 0

    flip(gateway)
    status, said = verify_live(gateway)
    again, _ = verify_live(gateway)

    assert (status, again) == (1, 1)
    assert "DAMAGED  jobs-0 offset 1: the CRC of the batch does not match" in said
    assert said.count("DAMAGED") == 1
    assert corrupt_batches(gateway, "jobs") == 1
