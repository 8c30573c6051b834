"""T3: consumption of a share group (KIP-932), beside Apache Kafka 4.2.

``python -m benchmarks t3 --scale 0.1`` reads a tenth of the records. Kafka's own
ShareConsumerPerformance reads from both; it acknowledges all that it gets with the next fetch.
"""

import time
from functools import partial
from typing import Final

from confluent_kafka import Producer

from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.sides import OURS, PEER, Options, Side, interleaved, sides
from gateway.testing.process import Program
from tests.support.toolchain import KAFKA_4_2_POM, jars
from tests.support.topics import create_topic, fresh_name

KAFKA: Final = "4.2.0"
RECORDS: Final = 500_000
RECORD_BYTES: Final = 1_024
PARTITIONS: Final = 6
BAR: Final = 1.0
RUN_S_MAX: Final = 600
FLUSH_S_MAX: Final = 120
IDLE_MS_MAX: Final = 30_000
RATE_COLUMN: Final = 4  # start, end, MB, MB/s, records/s, records, ms of fetching
COLUMNS: Final = 7
PEER_SETTINGS: Final = {
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}


class ShareReport(Report):
    """Report on a peer of another version than that of other benchmarks."""

    def versions(self) -> dict[str, str]:
        """Return the versions of everything that takes part."""
        return {**super().versions(), "kafka": KAFKA}


def run(options: Options) -> Report:
    """Measure one consumer that reads a topic from its start."""
    records = options.part(options.scaled(RECORDS))
    with sides(
        "group", peer_syncs=True, peer_settings=PEER_SETTINGS, peer_pom=KAFKA_4_2_POM
    ) as found:
        topics = {side.name: filled_topic(side, records) for side in found}
        samples = interleaved(
            found, partial(rate, topics=topics, records=records), runs=options.runs
        )
    rows = [
        Row("1 consumer", side.name, side.policy, "records/s", samples[side.name])
        for side in found
    ]
    medians = {row.side: row.median for row in rows}
    return ShareReport(
        "t3",
        f"A share group reads {records:,} records of {RECORD_BYTES} bytes",
        rows,
        [Ratio("1 consumer: headgate / kafka", medians[OURS] / medians[PEER], BAR)],
        [f"{PARTITIONS} partitions; a new group each time, whose join counts"],
    )


def filled_topic(side: Side, records: int) -> str:
    """Return a new topic with records."""
    topic = create_topic(side.bootstrap, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 20})
    value = bytes(RECORD_BYTES)
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(1)
    assert producer.flush(FLUSH_S_MAX) == 0
    return topic


def rate(side: Side, *, topics: dict[str, str], records: int) -> Sample:
    """Return the records per second of one consumer of a new group."""
    group = fresh_name("t3")
    java(
        "kafka.admin.ConfigCommand", "--bootstrap-server", side.bootstrap, "--alter",
        "--entity-type", "groups", "--entity-name", group,
        "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip
    started_s = time.monotonic()
    lines = java(
        "org.apache.kafka.tools.ShareConsumerPerformance",
        "--bootstrap-server", side.bootstrap, "--topic", topics[side.name], "--group", group,
        "--num-records", records, "--timeout", IDLE_MS_MAX, "--hide-header",
    )  # fmt: skip
    [columns] = [line.split(", ") for line in lines if line.count(", ") == COLUMNS - 1]
    return Sample(float(columns[RATE_COLUMN]), {"s with the JVM": time.monotonic() - started_s})


def java(*arguments: object) -> list[str]:
    """Run one of Kafka's programs and return what it prints."""
    class_path = f"{jars(KAFKA_4_2_POM)}/*"
    program = Program(["java", "-cp", class_path, *map(str, arguments)], merge_errors=False)
    return program.finish(within_s=RUN_S_MAX)
