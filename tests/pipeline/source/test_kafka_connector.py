"""Spark's own Kafka source and sink, unmodified, against the gateway."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.pipeline.connector.job import (
    HEADER_ROWS,
    MORE_ROWS,
    PER_TRIGGER,
    SINK_ROWS,
)
from tests.pipeline.running import QUICK_JAVA, RUN_S_MAX
from tests.support.gateway import Gateway
from tests.support.toolchain import (
    ROOT,
    SPARK_CONNECTOR_JARS,
    SPARK_CONNECTOR_POM,
    jars,
    need,
)
from tests.support.topics import create_topic, fresh_name

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark-2")]

_SOURCE_ROWS = 2_000


class Outcome(NamedTuple):
    """Output of Spark, and the folder to which it wrote."""

    found: dict[str, Any]
    bootstrap: str
    sink: str
    names: list[str]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """One run of Spark for all tests: its start is most of the time."""
    need("java", "mvn")
    library = jars(SPARK_CONNECTOR_POM, name=SPARK_CONNECTOR_JARS)
    folder = tmp_path_factory.mktemp("connector")
    with Gateway(folder / "data") as gateway:
        prefix = fresh_name("pattern")
        names = [create_topic(gateway.bootstrap, name=f"{prefix}.{n}") for n in range(2)]
        source, sink, streamed = (
            create_topic(gateway.bootstrap, partitions=3) for _ in range(3)
        )
        _fill(gateway.bootstrap, source, names)
        done = subprocess.run(
            [
                sys.executable, "-m", "tests.pipeline.connector.job", gateway.bootstrap,
                str(library), str(folder), source, sink, streamed, rf"{prefix}\..*",
            ],
            cwd=ROOT,
            env={
                **os.environ,
                **QUICK_JAVA,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
            },
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-5_000:]
        yield Outcome(json.loads(done.stdout), gateway.bootstrap, sink, names)


def _fill(bootstrap: str, source: str, names: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(_SOURCE_ROWS):
        producer.produce(
            source,
            f"v{number}".encode(),
            key=None if number % 3 == 0 else f"k{number % 7}".encode(),
            headers=[("a", b"1"), ("a", b"2")] if number % 5 == 0 else None,
            timestamp=1_700_000_000_000 + number,
            partition=number % 3,
        )
    for count, name in enumerate(names, start=1):
        for number in range(count * 10):
            producer.produce(name, f"{number}".encode())
    assert producer.flush(30) == 0


def test_a_batch_read_has_every_record_with_key_time_and_headers(outcome: Outcome) -> None:
    rows = outcome.found["batch"]

    expected: list[Mapping[str, Any]] = [
        {
            "partition": partition,
            "offset": offset,
            "key": None if number % 3 == 0 else f"k{number % 7}",
            "value": f"v{number}",
            "unix_ms": 1_700_000_000_000 + number,
            "headers": [["a", "1"], ["a", "2"]] if number % 5 == 0 else [],
        }
        for partition in range(3)
        for offset, number in enumerate(range(partition, _SOURCE_ROWS, 3))
    ]
    assert rows == expected


def test_offsets_times_and_patterns_choose_what_is_read(outcome: Outcome) -> None:
    assert outcome.found["between"] == 20
    assert outcome.found["by_time"] == _SOURCE_ROWS - 1_000
    assert outcome.found["pattern"] == dict(zip(outcome.names, (10, 20), strict=True))


def test_what_the_sink_writes_is_there_once_with_keys_and_headers(outcome: Outcome) -> None:
    messages = _consume(outcome.bootstrap, outcome.sink, SINK_ROWS + MORE_ROWS)

    numbers = sorted(int(value) for value, _, _ in messages)
    assert numbers == list(range(SINK_ROWS + MORE_ROWS))
    for value, key, headers in messages:
        number = int(value)
        assert key == f"k{number % 11}".encode()
        wanted = [("trace", f"t{number}".encode())] if number < HEADER_ROWS else None
        assert headers == wanted


def test_a_stream_goes_on_at_its_checkpoint_in_batches_of_the_size_asked_for(
    outcome: Outcome,
) -> None:
    first, second, third = outcome.found["batches"]

    assert outcome.found["streamed"] == list(range(SINK_ROWS + MORE_ROWS))
    assert first >= SINK_ROWS // PER_TRIGGER
    assert second >= 1
    assert third == 0


def _consume(bootstrap: str, topic: str, count: int) -> list[tuple[bytes, bytes, Any]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": fresh_name("g"),
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(3)])
    messages: list[tuple[bytes, bytes, Any]] = []
    try:
        while len(messages) < count:
            found = consumer.consume(500, timeout=10)
            assert found, f"{len(messages)} of {count} came"
            messages += [(one.value(), one.key(), one.headers()) for one in found]
        messages += [
            (one.value(), one.key(), one.headers()) for one in consumer.consume(1, 0.5)
        ]
    finally:
        consumer.close()
    return messages
