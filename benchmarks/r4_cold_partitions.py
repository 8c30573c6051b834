"""R4: a cold reader of 1,000 partitions: all from the start, nothing in the page cache."""

from benchmarks.k3_consume import drop_from_page_cache
from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.server_watch import wait_quiet
from benchmarks.sides import OURS, PEER, Options, Side, client, cpu_per_gb, interleaved, sides
from tests.support.gateway import Gateway
from tests.support.topics import create_topic

GIB = 1.0
PARTITIONS = 1_000
RECORD_BYTES = 1024
BAR = 1.0
TOPIC = "a-thousand"
SETTLED_S_MAX = 300


def run(options: Options) -> Report:
    """Fill both sides once, then read in turn."""
    records = options.records(GIB, RECORD_BYTES)
    ours = {"storage.settle_after_ms": 1_000}
    with sides("never", peer_syncs=False, settings=ours) as found:
        for side in found:
            create_topic(side.bootstrap, partitions=PARTITIONS, name=TOPIC)
            client("produce", side.bootstrap, TOPIC, "--records", records)
            settle(side)
        samples = interleaved(found, lambda side: consume(side, records), runs=options.runs)
        rows = [Row("cold", s.name, s.policy, "msg/s", samples[s.name]) for s in found]
    by_side = {row.side: row.median for row in rows}
    return Report(
        "r4",
        "A cold reader of 1,000 partitions, 1 KB records",
        rows,
        [Ratio("headgate / kafka", by_side[OURS] / by_side[PEER], BAR)],
        [f"{records:,} records; every file dropped from the page cache by posix_fadvise"],
    )


def settle(side: Side) -> None:
    """Wait until ours has put away what it is going to put away."""
    if isinstance(side.server, Gateway):
        folder = side.server.data_dir / "settled"
        wait_quiet(
            lambda: sum(path.stat().st_size for path in folder.glob("*.seg")),
            quiet_s=5,
            within_s=SETTLED_S_MAX,
        )


def consume(side: Side, records: int) -> Sample:
    """Read everything; the rate in msg/s."""
    drop_from_page_cache(side)
    extra: dict[str, float] = {}
    with cpu_per_gb(side, records * RECORD_BYTES, extra):
        found = client(
            "consume", side.bootstrap, TOPIC, "--records", records, "--partitions", PARTITIONS
        )
    return Sample(found["rate"], extra)
