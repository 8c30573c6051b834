"""R3: minutes of writing as fast as it goes, with settling and retention on. One run a side."""

import statistics

from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.server_watch import Seen, Watch
from benchmarks.sides import OURS, PEER, Options, Side, client, sides
from tests.support.topics import create_topic

MINUTES = 10.0
PARTITIONS = 6
RETENTION_BYTES = 256 << 20  # of each partition
SEGMENT_BYTES = 128 << 20
RETENTION_MS = 10_000
WINDOW_S = 10.0
CLIENT_S_MAX = 120.0  # for its start, and for what is still to be acknowledged
RATE_BAR = 1.0
FLAT_BAR = 0.9
GROWTH_BAR = 1.1
MB = 1e6
GB = 1e9


def run(options: Options) -> Report:
    """Write to one side, then to the other."""
    seconds = options.seconds(MINUTES)
    window_s = min(WINDOW_S, seconds / 9)
    kafka = {
        "log.retention.check.interval.ms": RETENTION_MS,
        "log.segment.bytes": SEGMENT_BYTES,
    }
    settings = {"retention.interval_ms": RETENTION_MS}
    rows: list[Row] = []
    series: dict[str, list[float]] = {}
    disks: dict[str, float] = {}
    for name in (OURS, PEER):
        with sides("never", peer_syncs=False, peer_settings=kafka, settings=settings) as found:
            side = next(side for side in found if side.name == name)
            windows, seen = write(side, seconds, window_s)
            rows += rows_of(side, windows, seen)
        series[name] = [window["rate"] for window in windows]
        disks[name] = growth([one.disk_bytes for one in seen[len(seen) // 3 :]])
    kept = f"{RETENTION_BYTES >> 20} MiB kept of each partition"
    medians = {row.side: row.median for row in rows if row.case == "rate"}
    return Report(
        "r3",
        "Sustained writing, 1 KB, acks=all, 6 partitions, retention by size, no fsync",
        rows,
        [
            Ratio("rate: headgate / kafka", medians[OURS] / medians[PEER], RATE_BAR),
            Ratio("rate: last third / first third", growth(series[OURS]), FLAT_BAR),
            Ratio("disk: end / middle", disks[OURS], GROWTH_BAR, at_most=True),
        ],
        [f"{seconds:.0f} s a side, one run; rows are windows of {window_s:.1f} s, {kept}"],
    )


def write(
    side: Side, seconds: float, window_s: float
) -> tuple[list[dict[str, float]], list[Seen]]:
    """Return what the producer saw in each window, and the server's memory and disk."""
    configs = {"retention.bytes": str(RETENTION_BYTES)}
    topic = create_topic(side.bootstrap, partitions=PARTITIONS, configs=configs)
    with Watch(side, interval_s=window_s) as watch:
        found = client(
            "steady_rate", side.bootstrap, topic, "--seconds", seconds, "--window-s", window_s,
            "--sample", 100, within_s=seconds + CLIENT_S_MAX,
        )  # fmt: skip
    return found["windows"], watch.seen


def rows_of(side: Side, windows: list[dict[str, float]], seen: list[Seen]) -> list[Row]:
    """Return the figures over time of one side."""
    p99 = [Sample(window["p99"]) for window in windows if "p99" in window]
    return [
        Row("rate", side.name, side.policy, "msg/s", [Sample(w["rate"]) for w in windows]),
        Row("p99", side.name, side.policy, "ms", p99),
        Row(
            "memory", side.name, side.policy, "MB", [Sample(s.memory_bytes / MB) for s in seen]
        ),
        Row("disk", side.name, side.policy, "GB", [Sample(s.disk_bytes / GB) for s in seen]),
    ]


def growth(values: list[float] | list[int]) -> float:
    """Return the median of the last third by that of the first."""
    third = max(1, len(values) // 3)
    return statistics.median(values[-third:]) / statistics.median(values[:third])
