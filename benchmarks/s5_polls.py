"""S5: 10,000 long polls on a queue that nothing comes to: memory of each, CPU of all."""

from functools import partial
from typing import Final

from benchmarks.report import Ratio, Sample
from benchmarks.rounds import measured, rows_of
from benchmarks.sides import OURS, Options, client
from benchmarks.sqs.report import SqsReport
from benchmarks.sqs.sides import SqsSide, all_sides

POLLS: Final = 10_000
PEER_POLLS: Final = 1_000  # it opens about 100 a second: more would be over before the last one
BAR_KB: Final = 20.0
_KB: Final = 1_024


def run(options: Options) -> SqsReport:
    """Measure ours and ElasticMQ."""
    count = options.part(POLLS)
    with all_sides(policies=("group",), with_moto=False) as found:
        samples = measured(found, partial(polls, count=count), runs=options.runs)
    rows = rows_of("memory", "KB each", samples)
    cpu = {
        key: [Sample(one.extra["CPU share"]) for one in some] for key, some in samples.items()
    }
    return SqsReport(
        "s5",
        f"SQS: {count:,} long polls that wait ({PEER_POLLS:,} at the peer)",
        [*rows, *rows_of("CPU while they wait", "of a CPU", cpu)],
        [Ratio("KB for each poll", rows[0].median, BAR_KB, at_most=True)],
        ["each on a connection of its own, WaitTimeSeconds=20"],
    )


def polls(side: SqsSide, *, count: int) -> Sample:
    """Return KB for each poll, with the server's share of a CPU beside."""
    found = client(
        "sqs_polls",
        "--port", side.port,
        "--pid", side.server.pid,
        "--key", side.key,
        "--url", side.new_queue(),
        "--connections", count if side.name == OURS else min(count, PEER_POLLS),
    )  # fmt: skip
    return Sample(
        found["each_bytes"] / _KB, {"CPU share": found["cpu_share"], "polls/s": found["rate"]}
    )
