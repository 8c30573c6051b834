"""R1: ready after kill -9 with 10 GiB and 100,000 partitions, and the memory then. One run."""

import time
from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.sides import OURS, Options, client, temporary_folder
from tests.support.gateway import Gateway
from tests.support.kafka_wire import answers
from tests.support.process_usage import resident_bytes
from tests.support.waiting import wait_until

TOPICS = 100
PARTITIONS_EACH = 1_000
RECORDS = 10 << 20
CREATED_S_MAX = 600
READY_S_MAX = 600
READY_BAR_S = 5.0
MEMORY_BAR_MB = 200.0
FILLED = "many-0"
MB = 1e6


def run(options: Options) -> Report:
    """Fill, kill, start again."""
    topics = options.scaled(TOPICS)
    records = options.scaled(RECORDS)
    seconds, grown_mb = recovered(topics, records)
    rows = [
        Row("ready after kill -9", OURS, "flush=never", "s", [Sample(seconds)]),
        Row("memory above idle", OURS, "flush=never", "MB", [Sample(grown_mb)]),
    ]
    return Report(
        "r1",
        "Ready after kill -9 with 10 GiB and 100,000 partitions",
        rows,
        [
            Ratio("seconds to ready", seconds, READY_BAR_S, at_most=True),
            Ratio("MB above idle", grown_mb, MEMORY_BAR_MB, at_most=True),
        ],
        [f"{topics * PARTITIONS_EACH:,} partitions, {records / 2**20:.0f} GiB; one run"],
    )


def recovered(
    topics: int, records: int, settings: Mapping[str, object] | None = None
) -> tuple[float, float]:
    """Fill a node, kill and start it; return seconds to ready, and MB above an idle one."""
    always = {"storage.flush": "never", "log.level": "warning"}
    with (
        temporary_folder() as folder,
        Gateway(folder / "data", {**always, **(settings or {})}) as gateway,
    ):
        idle_bytes = resident_bytes(gateway.pid)
        create(gateway, topics)
        touch_all(gateway, topics)
        client("produce", gateway.bootstrap, FILLED, "--records", records)
        gateway.kill()
        started = time.monotonic()
        gateway.launch()
        wait_until(
            lambda: answers(gateway.kafka_port), within_s=READY_S_MAX, what="it is up again"
        )
        seconds = time.monotonic() - started
        gateway.wait_ready()
        return seconds, (resident_bytes(gateway.pid) - idle_bytes) / MB


def create(gateway: Gateway, topics: int) -> None:
    """Make the topics."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    for number in range(topics):
        new = NewTopic(f"many-{number}", PARTITIONS_EACH, 1)
        admin.create_topics([new], request_timeout=CREATED_S_MAX)[new.topic].result(
            CREATED_S_MAX
        )


def touch_all(gateway: Gateway, topics: int) -> None:
    """Write a batch to every partition."""
    place = ["--port", gateway.kafka_port, "--topics", topics, "--partitions", PARTITIONS_EACH]
    client("many_partitions", *place, "--per-request", 100, "--seconds", 0)
