"""S2: SendMessageBatch of 10; ReceiveMessage of 10 with DeleteMessageBatch of what came."""

from functools import partial
from typing import Final

from benchmarks.report import Ratio, Row, Sample
from benchmarks.rounds import measured, ratio_to_peer, rows_of
from benchmarks.sides import Options
from benchmarks.sqs.report import SqsReport
from benchmarks.sqs.sides import (
    ELASTICMQ,
    GROUP,
    MOTO,
    NEVER,
    SqsSide,
    all_sides,
    client_sample,
)

CONNECTIONS: Final = 16
SECONDS: Final = 4
MESSAGES: Final = 40_000
MOTO_MESSAGES: Final = 400  # it would take minutes
BATCH: Final = 10
BAR: Final = 5.0


def run(options: Options) -> SqsReport:
    """Measure all sides in turn."""
    seconds = options.scaled(SECONDS)
    rows: list[Row] = []
    ratios: list[Ratio] = []
    works = {
        "send": partial(send, seconds=seconds),
        "receive + delete": partial(drain, messages=options.scaled(MESSAGES)),
    }
    with all_sides() as found:
        for case, work in works.items():
            some = rows_of(case, "msg/s", measured(found, work, runs=options.runs))
            rows += some
            for policy in (GROUP, NEVER):
                ratio = ratio_to_peer(some, policy, peer=ELASTICMQ)
                ratios.append(Ratio(f"{case}: headgate ({policy}) / elasticmq", ratio, BAR))
    return SqsReport(
        "s2",
        f"SQS in batches of {BATCH}, {CONNECTIONS} connections",
        rows,
        ratios,
        [f"sending for {seconds} s; received until the queue is empty"],
    )


def send(side: SqsSide, *, seconds: float) -> Sample:
    """Return acknowledged messages per second."""
    place = ["--url", side.new_queue(), "--connections", CONNECTIONS]
    return client_sample(side, "sqs_send", *place, "--seconds", seconds, "--batch", BATCH)


def drain(side: SqsSide, *, messages: int) -> Sample:
    """Return received and deleted messages per second."""
    url = side.new_queue()
    count = MOTO_MESSAGES if side.name == MOTO else messages
    place = ["--url", url, "--connections", CONNECTIONS]
    client_sample(side, "sqs_send", *place, "--messages", count, "--batch", BATCH)
    return client_sample(side, "sqs_drain", *place, "--seconds", 60)
