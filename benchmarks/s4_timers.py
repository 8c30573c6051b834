"""S4: messages with a time of delivery: how late they come, what they cost while they wait."""

from typing import Any, Final

from benchmarks.report import Ratio, Row, Sample
from benchmarks.sides import OURS, Options, client, temporary_folder
from benchmarks.sqs.report import SqsReport
from benchmarks.sqs.sides import GROUP
from tests.support.gateway import Gateway

MESSAGES: Final = 1_000_000
OVER_S: Final = 10.0
LEAD_S: Final = 25.0
PLAIN_LEAD_S: Final = 8.0  # the batches are encoded, nothing is put
PLAIN: Final = "headgate, not delayed"
BAR_MS: Final = 10.0
_CLIENT_S_MAX: Final = 80.0
_NOTES: Final = (
    "appended: the log's stamp less deliver-at: the block alone, without the sync, in whole ms",
    "seen: a Kafka client's poll returns it, less deliver-at: sync, fetch and client are in it",
    f"{PLAIN}: plain batches of 2 ms, sent when due, to the same consumer: its floor",
)

Found = dict[str, Any]


def run(options: Options) -> SqsReport:
    """Measure ours: no peer has a delay of milliseconds.

    Beside it what the same consumer sees of the same messages, sent as plain batches when they
    are due: the log's sync, the fetch and the client are in both.
    """
    count = options.part(MESSAGES)
    runs: list[Found] = []
    plain: list[Found] = []
    for _ in range(options.runs):
        plain.append(_measure(count, PLAIN_LEAD_S, "--plain"))
        runs.append(_measure(count, LEAD_S))
    seen = _lateness("seen by a consumer", "seen", OURS, runs)
    appended = _lateness("appended", "appended", OURS, runs)
    floor = _lateness("seen by a consumer", "seen", PLAIN, plain)
    rows = [
        *seen,
        *appended,
        *floor,
        *_lateness("appended", "appended", PLAIN, plain),
        _row("processor, from when due", OURS, "us each", "due_us", runs),
        _row("processor, from when due", PLAIN, "us each", "due_us", plain),
        _row("processor, put", OURS, "us each", "put_us", runs),
        _row("taken", OURS, "msg/s", "put_rate", runs),
        _row("waiting", OURS, "bytes each", "each_bytes", runs),
        Row("too early", OURS, GROUP, "messages", [Sample(_early(one)) for one in runs]),
    ]
    return SqsReport(
        "s4",
        f"Delay: {count:,} messages due within {OVER_S:g} s ({count / OVER_S:,.0f} per second)",
        rows,
        [
            _bar("p99 of lateness as a consumer sees it, ms", seen[1]),
            _bar("p99 of lateness as appended, ms", appended[1]),
            _bar("p99 of what is not delayed, same consumer, ms", floor[1]),
        ],
        _NOTES,
    )


def _measure(count: int, lead_s: float, *more: str) -> Found:
    with temporary_folder() as folder, Gateway(folder / "data", {"log.level": "error"}) as one:
        place = ["--bootstrap", one.bootstrap, "--pid", one.pid]
        sizes = ["--messages", count, "--over-s", OVER_S, "--lead-s", lead_s]
        return client("delay_precision", *place, *sizes, *more, within_s=_CLIENT_S_MAX)


def _lateness(case: str, moment: str, side: str, runs: list[Found]) -> list[Row]:
    found = [one[moment] for one in runs]
    histograms = [
        {f"{part} ms": value for part, value in one.items() if part != "early"} for one in found
    ]
    median = [Sample(one["p50"], rest) for one, rest in zip(found, histograms, strict=True)]
    return [
        Row(f"late, {case}, median", side, GROUP, "ms", median),
        Row(f"late, {case}, p99", side, GROUP, "ms", [Sample(one["p99"]) for one in found]),
    ]


def _bar(case: str, row: Row) -> Ratio:
    return Ratio(case, row.median, BAR_MS, at_most=True)


def _row(case: str, side: str, unit: str, name: str, runs: list[Found]) -> Row:
    return Row(case, side, GROUP, unit, [Sample(one[name]) for one in runs])


def _early(found: Found) -> float:
    """Return how many came before their time, by either clock."""
    return float(max(found["seen"]["early"], found["appended"]["early"]))
