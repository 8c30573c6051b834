"""S4: messages with a time of delivery: how late they come, what they cost while they wait."""

from typing import Final

from benchmarks.report import Ratio, Row, Sample
from benchmarks.sides import OURS, Options, client, temporary_folder
from benchmarks.sqs.report import SqsReport
from benchmarks.sqs.sides import GROUP
from tests.support.gateway import Gateway

MESSAGES: Final = 500_000
OVER_S: Final = 5.0
LEAD_S: Final = 30.0
PLAIN: Final = "headgate, not delayed"
BAR_MS: Final = 10.0
_PARTS: Final = ("p1", "p50", "p90", "p99", "p99.9", "p100")


def run(options: Options) -> SqsReport:
    """Measure ours: no peer has a delay of milliseconds.

    Beside it what the same consumer sees of the same messages, sent as plain batches when they
    are due: the log's sync, the fetch and the client are in both.
    """
    count = options.part(MESSAGES)
    runs, plain = [], []
    for _ in range(options.runs):
        with (
            temporary_folder() as folder,
            Gateway(folder / "data", {"log.level": "error"}) as one,
        ):
            place = ["--bootstrap", one.bootstrap, "--pid", one.pid]
            sizes = ["--messages", count, "--over-s", OVER_S, "--lead-s", LEAD_S]
            plain.append(client("delay_precision", *place, *sizes, "--plain"))
            runs.append(client("delay_precision", *place, *sizes))
    rows = [
        Row("late, median", OURS, GROUP, "ms", [Sample(r["p50"], _histogram(r)) for r in runs]),
        Row("late, p99", OURS, GROUP, "ms", [Sample(r["p99"]) for r in runs]),
        Row(
            "late, median", PLAIN, GROUP, "ms", [Sample(r["p50"], _histogram(r)) for r in plain]
        ),
        Row("late, p99", PLAIN, GROUP, "ms", [Sample(r["p99"]) for r in plain]),
        Row("taken", OURS, GROUP, "msg/s", [Sample(r["put_rate"]) for r in runs]),
        Row("waiting", OURS, GROUP, "octets each", [Sample(r["each_bytes"]) for r in runs]),
        Row("too early", OURS, GROUP, "messages", [Sample(r["early"]) for r in runs]),
    ]
    return SqsReport(
        "s4",
        f"Delay: {count:,} messages due within {OVER_S:g} s ({count / OVER_S:,.0f} per second)",
        rows,
        [Ratio("p99 of lateness, ms", rows[1].median, BAR_MS, at_most=True)],
        [
            "Kafka's header deliver-at, seen by a consumer: the sync and the fetch are part of it",
            f"{PLAIN}: the same messages in plain batches of 2 ms, sent when they are due",
        ],
    )


def _histogram(found: dict[str, float]) -> dict[str, float]:
    return {f"{part} ms": found[part] for part in _PARTS}
