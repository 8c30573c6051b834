"""S1: SendMessage, one at a time on each of 16 connections, every signature checked by ours."""

from functools import partial
from typing import Final

from benchmarks.report import Ratio, Sample
from benchmarks.rounds import measured, ratio_to_peer, rows_of
from benchmarks.sides import Options
from benchmarks.sqs.report import SqsReport
from benchmarks.sqs.sides import (
    ELASTICMQ,
    GROUP,
    NEVER,
    SqsSide,
    all_sides,
    client_sample,
)

CONNECTIONS: Final = 16
SECONDS: Final = 4
MESSAGE_BYTES: Final = 256
BAR: Final = 3.0


def run(options: Options) -> SqsReport:
    """Measure all sides in turn."""
    seconds = options.scaled(SECONDS)
    with all_sides() as found:
        samples = measured(found, partial(send, seconds=seconds), runs=options.runs)
    rows = rows_of(f"{CONNECTIONS} connections", "msg/s", samples)
    return SqsReport(
        "s1",
        f"SQS SendMessage of {MESSAGE_BYTES} B, {CONNECTIONS} connections, one at a time",
        rows,
        [
            Ratio(
                f"headgate ({policy}) / elasticmq",
                ratio_to_peer(rows, policy, peer=ELASTICMQ),
                BAR,
            )
            for policy in (GROUP, NEVER)
        ],
        [f"{seconds} s a run; requests are signed before it", "ours keeps them on disk"],
    )


def send(side: SqsSide, *, seconds: float) -> Sample:
    """Return acknowledged messages per second."""
    place = ["--url", side.new_queue(), "--connections", CONNECTIONS]
    more = ["--seconds", seconds, "--message-bytes", MESSAGE_BYTES]
    return client_sample(side, "sqs_send", *place, *more)
