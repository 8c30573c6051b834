"""R5: compaction: how fast a topic of updates of few keys becomes small. One run a side."""

import time

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.server_watch import disk_bytes, wait_quiet
from benchmarks.sides import OURS, PEER, Options, Side, client, cpu_per_gb, sides
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

GIB = 1.0
KEYS = 10_000
RECORD_BYTES = 1024
SEGMENT_BYTES = 32 << 20
BAR = 0.5
LEFT_SHARE = 0.4  # of the disk before: the last segments are not compacted on either side
COMPACTED_S_MAX = 900
QUIET_S = 8
ANSWER_S_MAX = 30
NEVER = {"min.cleanable.dirty.ratio": "1", "min.compaction.lag.ms": str(1 << 40)}
NOW = {"min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0"}
MB = 1e6
UNBOUNDED_BYTES_PER_S = 4 << 30


def run(options: Options) -> Report:
    """Fill a topic that may not be compacted, allow it, and wait for the disk."""
    records = options.records(GIB, RECORD_BYTES)
    ours = {
        "storage.segment_bytes": SEGMENT_BYTES,
        "storage.reserve_bytes": SEGMENT_BYTES // 4,
        "storage.settle_after_bytes": 0,
        "storage.settle_bytes_per_s_max": UNBOUNDED_BYTES_PER_S,
        "broker.producer_snapshot_bytes": SEGMENT_BYTES,
        "compaction.interval_ms": 100,
        "compaction.bytes_per_s_max": UNBOUNDED_BYTES_PER_S,
    }
    kafka = {"log.cleaner.backoff.ms": 100, "log.segment.bytes": SEGMENT_BYTES}
    with sides("never", peer_syncs=False, peer_settings=kafka, settings=ours) as found:
        rows = [
            Row("compaction", s.name, s.policy, "MB/s", [compact(s, records)]) for s in found
        ]
    by_side = {row.side: row.median for row in rows}
    return Report(
        "r5",
        "Compaction of a topic of updates: bytes by the time until the disk is free",
        rows,
        [Ratio("headgate / kafka", by_side[OURS] / by_side[PEER], BAR)],
        [f"{records:,} records of 1 KB, {KEYS:,} keys, one partition; no bound on either side"],
    )


def compact(side: Side, records: int) -> Sample:
    """Return how many MB of the topic were compacted in a second."""
    configs = {"cleanup.policy": "compact", "file.delete.delay.ms": "100", **NEVER}
    topic = create_topic(side.bootstrap, configs=configs)
    client("produce", side.bootstrap, topic, "--records", records, "--keys", KEYS)
    folder = side.server.data_dir
    before = wait_quiet(lambda: disk_bytes(folder), quiet_s=QUIET_S, within_s=COMPACTED_S_MAX)
    extra: dict[str, float] = {}
    with cpu_per_gb(side, records * RECORD_BYTES, extra):
        started = time.monotonic()
        alter(side, topic, NOW)
        wait_until(
            lambda: disk_bytes(folder) < before * LEFT_SHARE,
            within_s=COMPACTED_S_MAX,
            what=f"{side.name} has compacted {before / MB:,.0f} MB",
        )
        seconds = time.monotonic() - started
    left = wait_quiet(lambda: disk_bytes(folder), quiet_s=QUIET_S, within_s=COMPACTED_S_MAX)
    return Sample(before / MB / seconds, {**extra, "MB before": before / MB, "left": left / MB})


def alter(side: Side, topic: str, configs: dict[str, str]) -> None:
    """Set configs of a topic."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource("topic", topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(ANSWER_S_MAX)
