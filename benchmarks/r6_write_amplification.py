"""R6: what reaches the disk for each byte produced, over a day's mix of topics."""

from benchmarks.clients.daily_mix import RECORD_BYTES
from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.server_watch import disk_bytes, wait_quiet, written_bytes
from benchmarks.sides import OURS, PEER, Options, Side, client, sides

GIB = 4.0
BAR = 2.5
QUIET_S = 20
QUIET_S_MAX = 300
NOISE_BITS = 22  # 4 MiB
MB = 1e6
MIX = (
    "70 % in 2 topics of 6 partitions, 20 % in 100 small topics, 10 % updates of 10,000 keys "
    "in a compacted one"
)


def run(options: Options) -> Report:
    """Write the mix to each side and wait until the background has nothing left to do."""
    records = options.records(GIB, RECORD_BYTES)
    ours = {
        "storage.settle_after_ms": 5_000,
        "compaction.interval_ms": 5_000,
    }
    with sides("group", peer_syncs=False, settings=ours) as found:
        rows = [Row("a day's mix", s.name, s.policy, "x", [write(s, records)]) for s in found]
    by_side = {row.side: row.median for row in rows}
    return Report(
        "r6",
        "Write amplification: bytes written to the disk by bytes produced",
        rows,
        [Ratio("headgate", by_side[OURS], BAR, at_most=True)],
        [
            f"{records:,} records of {RECORD_BYTES} bytes, one run a side; {MIX}",
            f"for comparison, {PEER}: {by_side[PEER]:.2f}",
        ],
    )


def write(side: Side, records: int) -> Sample:
    """Return bytes written by bytes produced."""
    pid = side.server.pid
    before = written_bytes(pid)
    found = client("daily_mix", side.bootstrap, "--records", records)
    during = written_bytes(pid) - before
    # Checkpoints are written for ever; the background is quiet when nothing but those is.
    wait_quiet(lambda: written_bytes(pid) >> NOISE_BITS, quiet_s=QUIET_S, within_s=QUIET_S_MAX)
    after = written_bytes(pid)
    kept = disk_bytes(side.server.data_dir)
    return Sample(
        (after - before) / found["bytes"],
        {
            "while producing": during / found["bytes"],
            "MB/s": found["bytes"] / MB / found["seconds"],
            "disk MB": kept / MB,
        },
    )
