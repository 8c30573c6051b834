"""Kafka Connect in distributed mode: its three compacted topics, killed and resumed.

Its source is exactly once (KIP-618): records and the offset behind them are one transaction.
"""

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from gateway.testing.ports import free_port
from gateway.testing.process import Program
from tests.support.gateway import Gateway
from tests.support.toolchain import CONNECT_POM, jars
from tests.support.topics import create_topic, fresh_name
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.xdist_group("connect"),
]

# Small files, settled and compacted as soon as they can be: Connect's topics too.
SETTINGS: Final = {
    "storage.segment_bytes": 1 << 20,
    "storage.reserve_bytes": 1 << 19,
    "storage.settle_after_bytes": 0,
    "storage.settle_after_ms": 0,
    "broker.producer_snapshot_bytes": 1 << 20,
    "compaction.interval_ms": 100,
    'topic_defaults.configs."min.cleanable.dirty.ratio"': '"0"',
}
STATE_TOPICS: Final = {"config": 1, "offset": 4, "status": 2}  # and how many partitions
FILE: Final = "org.apache.kafka.connect.file.FileStream"
LINES: Final = 50
STARTED_S_MAX: Final = 300
COPIED_S_MAX: Final = 180


class Worker:
    """A Connect worker in a process of its own; restarts keep its group and its files."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.name = fresh_name("connect")
        self._folder = folder
        self._port = free_port()
        self._program: Program | None = None
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": self.name,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.flush.interval.ms": 200,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "consumer.session.timeout.ms": 6000,  # else a killed sink is waited for
            "scheduled.rebalance.max.delay.ms": 0,
            "listeners": f"http://127.0.0.1:{self._port}",
            "plugin.discovery": "service_load",
            "exactly.once.source.support": "enabled",
            "consumer.isolation.level": "read_committed",
        }
        for topic, partitions in STATE_TOPICS.items():
            settings[f"{topic}.storage.topic"] = self.state_topic(topic)
            settings[f"{topic}.storage.replication.factor"] = 1
            if topic != "config":
                settings[f"{topic}.storage.partitions"] = partitions
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (folder / "worker.properties").write_text(text)

    def state_topic(self, kind: str) -> str:
        """Return the name of one of its three topics."""
        return f"{self.name}-{kind}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.kill()

    def start(self) -> Self:
        """Start the worker and return when it serves requests."""
        self._program = Program(
            ["java", "-XX:TieredStopAtLevel=1", "-Xmx384m", "-cp", f"{jars(CONNECT_POM)}/*",
             "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
             "org.apache.kafka.connect.cli.ConnectDistributed",
             str(self._folder / "worker.properties")],
            cwd=self._folder,
        )  # fmt: skip
        wait_until(
            lambda: not self._running().is_running or self.ask("GET", "/connectors")[0] == 200,
            within_s=STARTED_S_MAX,
            what="Connect serves requests",
        )
        assert self._running().is_running, self._running().tail()
        return self

    def kill(self) -> None:
        """Kill the worker."""
        if self._program is not None:
            self._program.kill()
            self._program = None

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return status and body of a REST call; status 0 without a server."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(
                method, path, json.dumps(body), {"Content-Type": "application/json"}
            )
            response = connection.getresponse()
            text = response.read().decode()
        except OSError:
            return 0, None
        finally:
            connection.close()
        is_answer = response.status in {200, 201} and text  # a page in HTML while it starts
        return response.status, json.loads(text) if is_answer else text

    def connect(self, name: str, **config: str) -> None:
        """Create a connector; retry while the worker rebalances (409)."""
        body = {"tasks.max": "1", **{key.replace("_", "."): v for key, v in config.items()}}
        answers: list[tuple[int, Any]] = []

        def is_done() -> bool:
            answers.append(self.ask("PUT", f"/connectors/{name}/config", body))
            return answers[-1][0] in {200, 201}

        wait_until(is_done, within_s=COPIED_S_MAX, what=f"{name} is there: {answers[-1:]}")

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """Return a connector's offsets as Connect reads them from its compacted topic."""
        status, answer = self.ask("GET", f"/connectors/{name}/offsets")
        found: list[dict[str, Any]] = answer["offsets"] if status == 200 else []
        return found

    def states(self, name: str) -> list[str]:
        """Return the states of a connector and its tasks, from the status topic."""
        status, answer = self.ask("GET", f"/connectors/{name}/status")
        if status != 200:
            return []
        return [part["state"] for part in [answer["connector"], *answer["tasks"]]]

    def _running(self) -> Program:
        assert self._program is not None
        return self._program


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "data", SETTINGS) as started:
        yield started


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    """Return the values of a topic of one partition, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": fresh_name("g"),
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    deadline = time.monotonic() + COPIED_S_MAX
    while time.monotonic() < deadline:
        record = consumer.poll(1)
        if record is not None and record.error():
            break
        if record is not None:
            found.append(record.value())
    consumer.close()
    return found


def committed(bootstrap: str, group: str) -> int:
    """Return the sum of a group's committed offsets."""
    request = [ConsumerGroupTopicPartitions(group)]
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it must outlive its answers
    answer = admin.list_consumer_group_offsets(request)
    return sum(place.offset for place in answer[group].result(30).topic_partitions)


def policies(bootstrap: str, topics: list[str]) -> list[str]:
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it must outlive its answers
    answers = admin.describe_configs(resources)
    return [answer.result(30)["cleanup.policy"].value for answer in answers.values()]


def close_segments(bootstrap: str) -> None:
    """Fill the log's files through another topic, so that earlier files are complete."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(64):
        producer.produce("ballast", value=bytes(60_000))
        producer.poll(0)
    assert producer.flush(30) == 0


def append_lines(path: Path, numbers: range) -> list[bytes]:
    lines = [b"line %d" % number for number in numbers]
    with path.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in lines))
    return lines


def test_a_killed_worker_resumes_from_its_compacted_topics(
    gateway: Gateway, tmp_path: Path
) -> None:
    bootstrap = gateway.bootstrap
    create_topic(bootstrap, name="ballast")
    source, sink, topic = tmp_path / "source.txt", tmp_path / "sink.txt", fresh_name("lines")
    lines = append_lines(source, range(LINES))

    def is_copied(worker: Worker) -> bool:
        """Return whether the sink has all lines, and both connectors have stored their offsets."""
        if not sink.exists() or sink.read_bytes().splitlines() != lines:
            return False
        size_bytes = source.stat().st_size
        read = [entry["offset"]["position"] for entry in worker.offsets("source")]
        # Markers of transactions have offsets too.
        return read == [size_bytes] and committed(bootstrap, "connect-sink") >= len(lines)

    with Worker(bootstrap, tmp_path) as worker:
        worker.connect("source", connector_class=f"{FILE}SourceConnector",
                       exactly_once_support="required", transaction_boundary="poll",
                       file=str(source), topic=topic)  # fmt: skip
        worker.connect("sink", connector_class=f"{FILE}SinkConnector",
                       file=str(sink), topics=topic)  # fmt: skip
        wait_until(lambda: is_copied(worker), within_s=COPIED_S_MAX, what="all is copied")
        state_topics = [worker.state_topic(kind) for kind in STATE_TOPICS]
        assert policies(bootstrap, state_topics) == ["compact"] * 3

        for number in range(1, 6):  # many offsets, of which one counts
            lines += append_lines(source, range(number * LINES, (number + 1) * LINES))
            wait_until(lambda: is_copied(worker), within_s=COPIED_S_MAX, what="more is copied")
        worker.kill()

        before = gateway.metric("headgate_compaction_removed_records_total")
        close_segments(bootstrap)
        wait_until(
            lambda: gateway.metric("headgate_compaction_removed_records_total") > before + 4,
            within_s=COPIED_S_MAX,
            what="Connect's topics are compacted",
        )
        lines += append_lines(source, range(6 * LINES, 7 * LINES))
        worker.start()

        wait_until(lambda: is_copied(worker), within_s=COPIED_S_MAX, what="the rest is copied")
        assert values_of(bootstrap, topic) == lines  # from the stored offset on, none twice
        for name in ("source", "sink"):
            assert worker.states(name) == ["RUNNING", "RUNNING"]
