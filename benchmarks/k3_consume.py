"""K3: consume 1 GiB from the start, warm and cold."""

import os
from functools import partial

from benchmarks.k1_produce import PARTITIONS, RECORD_BYTES
from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.sides import OURS, PEER, Options, Side, client, cpu_per_gb, interleaved, sides
from tests.support.topics import create_topic

RECORDS = (1 << 30) // RECORD_BYTES
BAR = 1.0
TOPIC = "a-gibibyte"


def run(options: Options) -> Report:
    """Fill both sides once, then read in turn."""
    records = options.scaled(RECORDS)
    rows: list[Row] = []
    with sides("never", peer_syncs=False) as found:
        for side in found:
            create_topic(side.bootstrap, partitions=PARTITIONS, name=TOPIC)
            client("produce", side.bootstrap, TOPIC, "--records", records)
        for case, cold in (("warm", False), ("cold", True)):
            one = partial(consume, records=records, cold=cold)
            samples = interleaved(found, one, runs=options.runs)
            rows += [Row(case, s.name, s.policy, "msg/s", samples[s.name]) for s in found]
    by_place = {(row.case, row.side): row.median for row in rows}
    return Report(
        "k3",
        "Kafka consume of 1 GiB in 1 KB records from the start, warm and cold",
        rows,
        [
            Ratio(f"{case}: headgate / kafka", by_place[case, OURS] / by_place[case, PEER], BAR)
            for case in ("warm", "cold")
        ],
        [f"{records:,} records; cold: every file dropped from the page cache by posix_fadvise"],
    )


def consume(side: Side, *, records: int, cold: bool) -> Sample:
    """Read everything; the rate in msg/s."""
    if cold:
        drop_from_page_cache(side)
    extra: dict[str, float] = {}
    with cpu_per_gb(side, records * RECORD_BYTES, extra):
        found = client(
            "consume", side.bootstrap, TOPIC, "--records", records, "--partitions", PARTITIONS
        )
    return Sample(found["rate"], extra)


def drop_from_page_cache(side: Side) -> None:
    """Let the next read of every file of the server's come from the disk."""
    os.sync()
    for path in side.server.data_dir.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
