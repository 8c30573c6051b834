"""K4: end-to-end latency at 5,000 msg/s, linger 0, acks=all, at matched durability."""

from benchmarks.k1_produce import PARTITIONS
from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.sides import OURS, PEER, Options, Side, client, interleaved, sides
from tests.support.topics import create_topic

RATE = 5_000
SECONDS = 10
BAR = 1.0


def run(options: Options) -> Report:
    """Measure without syncs on both sides, then with a sync before each acknowledgement."""
    records = options.scaled(RATE * SECONDS)
    rows: list[Row] = []
    for case, flush, peer_syncs in (("no fsync", "never", False), ("fsync", "group", True)):
        with sides(flush, peer_syncs=peer_syncs) as found:
            samples = interleaved(found, lambda side: latency(side, records), runs=options.runs)
            for side in found:
                rows.append(
                    Row(f"{case}: p50", side.name, side.policy, "ms", samples[side.name])
                )
                p99 = [Sample(s.extra["p99 ms"]) for s in samples[side.name]]
                rows.append(Row(f"{case}: p99", side.name, side.policy, "ms", p99))
    by_place = {(row.case, row.side): row.median for row in rows}
    cases = list(dict.fromkeys(row.case for row in rows))
    return Report(
        "k4",
        "End-to-end latency at 5,000 msg/s, 1 KB, linger 0, acks=all, 6 partitions",
        rows,
        [
            Ratio(
                f"{case}: headgate / kafka",
                by_place[case, OURS] / by_place[case, PEER],
                BAR,
                at_most=True,
            )
            for case in cases
        ],
        [f"{records:,} records a run, the first tenth not counted"],
    )


def latency(side: Side, records: int) -> Sample:
    """Return p50 in ms, with p99 and the rate that the sender kept."""
    topic = create_topic(side.bootstrap, partitions=PARTITIONS)
    found = client(
        "latency", side.bootstrap, topic, "--partitions", PARTITIONS, "--rate", RATE,
        "--records", records,
    )  # fmt: skip
    return Sample(
        found["p50"],
        {"p99 ms": found["p99"], "p99.9 ms": found["p999"], "kept msg/s": found["rate"]},
    )
