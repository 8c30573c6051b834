"""A1: publishing with confirms, persistent, to a consumer that acknowledges."""

from functools import partial
from typing import Final

from benchmarks.amqp.report import AmqpReport
from benchmarks.amqp.sides import client_sample, ratio, started
from benchmarks.report import Row
from benchmarks.rounds import measured, rows_of
from benchmarks.sides import Options

SECONDS: Final = 4
WINDOW: Final = 192
PREFETCH: Final = 200
ACK_EVERY: Final = 50
CASES: Final = {"12 B": 12, "1 KB": 1_024}
BAR: Final = 5.0


def run(options: Options) -> AmqpReport:
    """Measure both sides in turn with each size."""
    seconds = options.scaled(SECONDS)
    place = ["--window", WINDOW, "--prefetch", PREFETCH, "--ack-every", ACK_EVERY]
    rows: list[Row] = []
    ratios = []
    with started() as found:
        for case, size in CASES.items():
            work = partial(
                client_sample,
                module="amqp_flow",
                arguments=[*place, "--seconds", seconds, "--bytes", size],
            )
            some = rows_of(case, "msg/s", measured(found, work, runs=options.runs))
            ratios.append(ratio(some, BAR, case=case))
            rows += some
    return AmqpReport(
        "a1",
        f"AMQP confirms, persistent, window {WINDOW}, consumer with prefetch {PREFETCH}",
        rows,
        ratios,
        [
            f"{seconds} s a run, 1 publisher to 1 durable queue with 1 consumer; none was lost",
            f"acknowledged {ACK_EVERY} or more at once; at most 10,000 not received yet",
        ],
    )
