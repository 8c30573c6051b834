"""A3: one publisher through a fanout exchange to 100 durable queues, persistent."""

from functools import partial
from typing import Final

from benchmarks.amqp.report import AmqpReport
from benchmarks.amqp.sides import client_sample, ratio, started
from benchmarks.rounds import measured, rows_of
from benchmarks.sides import Options

SECONDS: Final = 4
QUEUES: Final = 100
CONNECTIONS: Final = 10
BYTES: Final = 100
WINDOW: Final = 192
AHEAD: Final = 1_000
PREFETCH: Final = 200
ACK_EVERY: Final = 500  # of a connection, which has ten consumers
BAR: Final = 10.0


def run(options: Options) -> AmqpReport:
    """Measure both sides in turn."""
    seconds = options.scaled(SECONDS)
    arguments = ["--queues", QUEUES, "--consumers", CONNECTIONS, "--bytes", BYTES]
    arguments += ["--window", WINDOW, "--ahead", AHEAD, "--prefetch", PREFETCH]
    arguments += ["--ack-every", ACK_EVERY]
    work = partial(
        client_sample, module="amqp_flow", arguments=[*arguments, "--seconds", seconds]
    )
    with started() as found:
        samples = measured(found, work, runs=options.runs)
    rows = rows_of(f"1 to {QUEUES} queues", "msg/s", samples)
    return AmqpReport(
        "a3",
        f"AMQP fan-out, persistent, {BYTES} B, 1 publisher to {QUEUES} durable queues",
        rows,
        [ratio(rows, BAR)],
        [
            f"{seconds} s a run; deliveries per second; none was lost",
            f"a consumer of each queue, prefetch {PREFETCH}, on {CONNECTIONS} connections",
            f"confirms with window {WINDOW}; at most {AHEAD:,} messages not received yet",
        ],
    )
