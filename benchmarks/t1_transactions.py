"""T1: transactions of ten records in six partitions, with a sync before each answer."""

from functools import partial

from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.sides import OURS, PEER, Options, Side, client, interleaved, sides
from tests.support.topics import create_topic

PARTITIONS = 6
RECORDS = 10
TRANSACTIONS = 400
PRODUCERS = (1, 8)
BAR = 3.0


def run(options: Options) -> Report:
    """Measure one producer, and several at once."""
    rows: list[Row] = []
    with sides("group", peer_syncs=True) as found:
        for producers in PRODUCERS:
            samples = interleaved(
                found,
                partial(rate, transactions=options.scaled(TRANSACTIONS), producers=producers),
                runs=options.runs,
            )
            case = f"{producers} producers" if producers > 1 else "1 producer"
            for side in found:
                own = samples[side.name]
                rows.append(Row(case, side.name, side.policy, "transactions/s", own))
                p99 = [Sample(sample.extra["p99 ms"]) for sample in own]
                rows.append(Row(f"{case}: p99", side.name, side.policy, "ms", p99))
    by_place = {(row.case, row.side): row.median for row in rows}
    cases = [row.case for row in rows if row.side == OURS and "p99" not in row.case]
    return Report(
        "t1",
        "Transactions: 10 records of 100 bytes, 6 partitions, confluent-kafka",
        rows,
        [
            Ratio(
                f"{case}: headgate / kafka",
                by_place[case, OURS] / by_place[case, PEER],
                BAR,
            )
            for case in cases
        ],
        ["each producer commits one transaction after the other"],
    )


def rate(side: Side, *, transactions: int, producers: int) -> Sample:
    """Return transactions per second of all producers, with latencies."""
    topic = create_topic(side.bootstrap, partitions=PARTITIONS)
    found = client(
        "transactions", side.bootstrap, topic, "--producers", producers,
        "--transactions", transactions, "--records", RECORDS, "--partitions", PARTITIONS,
    )  # fmt: skip
    return Sample(found["rate"], {"p50 ms": found["p50"], "p99 ms": found["p99"]})
