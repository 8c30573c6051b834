"""A5: calls by direct reply-to: 50 clients with one call at a time each, one service."""

from functools import partial
from typing import Final

from benchmarks.amqp.report import AmqpReport
from benchmarks.amqp.sides import client_sample, ratio, started
from benchmarks.report import Row, Sample
from benchmarks.rounds import measured, rows_of
from benchmarks.sides import Options

SECONDS: Final = 4
CLIENTS: Final = 50
BYTES: Final = 64
RATE_BAR: Final = 2.0
P99_BAR: Final = 0.5


def run(options: Options) -> AmqpReport:
    """Measure both sides in turn."""
    seconds = options.scaled(SECONDS)
    arguments = ["--clients", CLIENTS, "--bytes", BYTES, "--seconds", seconds]
    work = partial(client_sample, module="amqp_rpc", arguments=arguments)
    with started() as found:
        samples = measured(found, work, runs=options.runs)
    calls = rows_of(f"{CLIENTS} clients", "calls/s", samples)
    slowest = [p99_of(row) for row in calls]
    return AmqpReport(
        "a5",
        f"AMQP direct reply-to, {BYTES} B, {CLIENTS} clients, one call at a time each",
        [*calls, *slowest],
        [
            ratio(calls, RATE_BAR, case="calls"),
            ratio(slowest, P99_BAR, case="p99", at_most=True),
        ],
        [
            f"{seconds} s a run; requests through a queue that is not durable, acknowledged by none"
        ],
    )


def p99_of(row: Row) -> Row:
    """Return the 99th percentiles of the calls' time beside their rates."""
    samples = [Sample(one.extra["p99 ms"]) for one in row.samples]
    return Row("p99 of a call", row.side, row.policy, "ms", samples)
