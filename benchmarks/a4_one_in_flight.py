"""A4: 200 connections that publish one persistent message at a time each, with confirms."""

from functools import partial
from typing import Final

from benchmarks.amqp.report import AmqpReport
from benchmarks.amqp.sides import client_sample, ratio, started
from benchmarks.rounds import measured, rows_of
from benchmarks.sides import Options

SECONDS: Final = 4
CONNECTIONS: Final = 200
BYTES: Final = 64
BAR: Final = 1.5


def run(options: Options) -> AmqpReport:
    """Measure both sides in turn."""
    seconds = options.scaled(SECONDS)
    arguments = ["--connections", CONNECTIONS, "--bytes", BYTES, "--seconds", seconds]
    work = partial(client_sample, module="amqp_one_in_flight", arguments=arguments)
    with started() as found:
        samples = measured(found, work, runs=options.runs)
    rows = rows_of(f"{CONNECTIONS} connections", "msg/s", samples)
    return AmqpReport(
        "a4",
        f"AMQP persistent, {BYTES} B, {CONNECTIONS} connections, each waits for its confirm",
        rows,
        [ratio(rows, BAR)],
        [f"{seconds} s a run; all publish to one durable queue, nobody consumes"],
    )
