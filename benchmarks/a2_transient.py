"""A2: transient messages of 16 B without confirms or acknowledgements, 1 to 1."""

from functools import partial
from typing import Final

from benchmarks.amqp.report import AmqpReport
from benchmarks.amqp.sides import client_sample, ratio, started
from benchmarks.rounds import measured, rows_of
from benchmarks.sides import Options

SECONDS: Final = 4
BYTES: Final = 16
AHEAD: Final = 10_000
BAR: Final = 5.0


def run(options: Options) -> AmqpReport:
    """Measure both sides in turn."""
    seconds = options.scaled(SECONDS)
    arguments = ["--transient", "--bytes", BYTES, "--ahead", AHEAD, "--seconds", seconds]
    work = partial(client_sample, module="amqp_flow", arguments=arguments)
    with started() as found:
        rows = rows_of("1 to 1", "msg/s", measured(found, work, runs=options.runs))
    return AmqpReport(
        "a2",
        f"AMQP transient, {BYTES} B, automatic acknowledgement, no confirms, 1 to 1",
        rows,
        [ratio(rows, BAR)],
        [
            f"{seconds} s a run; a queue that is not durable; none was lost",
            f"at most {AHEAD:,} messages not received yet",
        ],
    )
