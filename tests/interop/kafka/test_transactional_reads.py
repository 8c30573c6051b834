"""Reads among transactions, answered as Apache Kafka's: the same requests to both."""

import importlib
import io
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

from tests.support.fetch_sessions import BY_NAME, FINAL, call
from tests.support.gateway import Gateway
from tests.support.kafka_server import KafkaServer
from tests.support.kafka_wire import Connection, batches_of
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.java]

LIST_OFFSETS: Final = 2
DESCRIBE_PRODUCERS: Final = 61
LEVELS: Final = (0, 1)
WITHIN_S: Final = 60.0
# Near the time of the markers: Kafka begins a segment, and ends a fetch, where times are far apart.
START_UNIX_MS: Final = int(time.time() * 1_000) - 600_000
RECORDS_MS: Final = 1_000


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Gateway | KafkaServer]]:
    """Headgate and Apache Kafka."""
    folder = tmp_path_factory.mktemp("brokers")
    with Gateway(folder / "headgate") as gateway, KafkaServer(folder / "kafka") as kafka:
        yield [gateway, kafka]


def test_reads_are_answered_as_by_apache_kafka(brokers: list[Gateway | KafkaServer]) -> None:
    ours, theirs = (Script(broker).run() for broker in brokers)
    assert ours == theirs


class Script:
    """Transactions of three producers in one partition; ``seen`` are the answers in between."""

    def __init__(self, broker: Gateway | KafkaServer) -> None:
        self.bootstrap = broker.bootstrap
        self.port = broker.kafka_port
        self.topic = create_topic(self.bootstrap, partitions=1)
        self.seen: list[Any] = []
        self.names: dict[int, int] = {}  # producer ids by their first occurrence
        self.time_unix_ms = START_UNIX_MS
        self.offset_count = 0

    def run(self) -> list[Any]:
        plain = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": False})
        first, second, third = (self.producer(n) for n in range(3))
        self.write(plain)
        for producer in (first, second):
            producer.begin_transaction()
            self.write(producer)
        self.write(plain)
        self.look()
        self.write(second)
        self.end(second, is_commit=False)
        self.look()
        self.end(first, is_commit=True)
        self.look()
        for producer in (third, second, first):
            producer.begin_transaction()
            self.write(producer)
        self.end(first, is_commit=False)
        self.write(plain)
        self.look()
        self.end(third, is_commit=False)
        self.look()
        self.end(second, is_commit=True)
        self.write(plain)
        self.look()
        return self.seen

    def producer(self, number: int) -> Producer:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "transactional.id": f"{self.topic}-{number}",
            "linger.ms": 0,
        }
        producer = Producer(settings)
        producer.init_transactions(WITHIN_S)
        return producer

    def write(self, producer: Producer) -> None:
        self.time_unix_ms += 10
        producer.produce(self.topic, b"value", timestamp=self.time_unix_ms, partition=0)
        assert producer.flush(WITHIN_S) == 0
        self.offset_count += 1

    def end(self, producer: Producer, *, is_commit: bool) -> None:
        """End a transaction, and wait for the marker: Kafka answers before it is written."""
        if is_commit:
            producer.commit_transaction(WITHIN_S)
        else:
            producer.abort_transaction(WITHIN_S)
        self.offset_count += 1
        with Connection(self.port) as connection:
            wait_until(
                lambda: self._listed(connection, 0, -1)[0] == self.offset_count,
                within_s=WITHIN_S,
                what="the marker is there",
            )

    def look(self) -> None:
        """Read from each offset and list all offsets, at both levels; describe producers."""
        with Connection(self.port) as connection:
            end = self._listed(connection, 0, -1)[0]
            for level in LEVELS:
                self.seen += [self._fetched(connection, level, at) for at in range(end + 1)]
                times = (-1, -2, -3, START_UNIX_MS, self.time_unix_ms - 20, self.time_unix_ms)
                self.seen += [self._listed(connection, level, time) for time in times]
            self.seen.append(self._producers(connection))

    def _fetched(self, connection: Connection, level: int, offset: int) -> Any:
        wanted: dict[Any, int] = {(self.topic, 0): offset}
        answer = call(connection, BY_NAME, 0, FINAL, wanted, isolation_level=level)
        [one] = answer.partitions.values()
        batches = [
            (header.base_offset, header.attributes, self._name(header.producer_id))
            for header in batches_of(one.records)
        ]
        aborted = one.aborted
        if aborted is not None:
            # Kafka lists by its index, which may reach beyond what it returns.
            end = max((base for base, _, _ in batches), default=-1)
            found = [(self._name(producer), first) for producer, first in aborted]
            aborted = tuple(one for one in found if one[1] <= end)
        bounds = one.high_watermark, one.stable_end, one.log_start_offset
        return "fetch", level, offset, one.error_code, bounds, batches, aborted

    def _name(self, producer_id: int) -> int:
        return -1 if producer_id < 0 else self.names.setdefault(producer_id, len(self.names))

    def _listed(self, connection: Connection, level: int, time_unix_ms: int) -> Any:
        m = importlib.import_module("kio.schema.list_offsets.v7.request")
        partition = m.ListOffsetsPartition(partition_index=0, timestamp=time_unix_ms)
        topic = m.ListOffsetsTopic(name=self.topic, partitions=(partition,))
        request = m.ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=(topic,))
        body = self._ask(connection, LIST_OFFSETS, 7, request)
        [one] = body.topics[0].partitions
        at = one.timestamp if time_unix_ms != -3 else 0
        return one.offset, int(one.error_code), _known_time(at)

    def _producers(self, connection: Connection) -> Any:
        m = importlib.import_module("kio.schema.describe_producers.v0.request")
        topic = m.TopicRequest(name=self.topic, partition_indexes=(0,))
        request = m.DescribeProducersRequest(topics=(topic,))
        body = self._ask(connection, DESCRIBE_PRODUCERS, 0, request)
        [one] = body.topics[0].partitions
        return sorted(
            (
                self._name(state.producer_id),
                state.producer_epoch,
                state.last_sequence,
                state.current_txn_start_offset,
            )
            for state in one.active_producers
        )

    def _ask(self, connection: Connection, api_key: int, version: int, request: Any) -> Any:
        out = io.BytesIO(b"\0")  # the header's tagged fields
        out.seek(0, io.SEEK_END)
        entity_writer(type(request))(out, request)
        answer = connection.call(api_key, version, out.getvalue())
        kind = load_response_schema(api_key, version)
        found, _ = entity_reader(kind)(answer[1:], 0)
        return found


def _known_time(found: Any) -> Any:
    """Return a record's time; that of a marker differs by broker."""
    value = int(found.timestamp() * 1_000) if hasattr(found, "timestamp") else found
    return value if value is None or value < START_UNIX_MS + RECORDS_MS else "now"
