"""K6: 1,000 partitions over 200 topics, small batches, one in flight per partition, fsync."""

from functools import partial

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.report import Ratio, Report, Row, Sample, number
from benchmarks.sides import OURS, PEER, Options, Side, client, interleaved, sides

TOPICS = 200
PARTITIONS_EACH = 5
SECONDS = 5
BAR = 3.0
CREATED_S_MAX = 120
PER_REQUEST = {"1 partition a request": 1, "50 partitions a request": 50}


def run(options: Options) -> Report:
    """Measure with one and with many partitions in a request."""
    rows: list[Row] = []
    with sides("group", peer_syncs=True) as found:
        for side in found:
            create(side)
        for case, count in PER_REQUEST.items():
            samples = interleaved(found, partial(batches, per_request=count), runs=options.runs)
            rows += [Row(case, s.name, s.policy, "batches/s", samples[s.name]) for s in found]
    by_place = {(row.case, row.side): row.median for row in rows}
    top = client("many_partitions", "--ceiling", "--seconds", 2)
    return Report(
        "k6",
        "1,000 partitions over 200 topics, batches of one 100-byte record, one in flight each",
        rows,
        [
            Ratio(f"{case}: headgate / kafka", by_place[case, OURS] / by_place[case, PEER], BAR)
            for case in PER_REQUEST
        ],
        [f"a thin asyncio client on 20 connections; ceiling {number(top['rate'])} batches/s"],
    )


def create(side: Side) -> None:
    """Make the 200 topics."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    topics = [NewTopic(f"many-{n}", PARTITIONS_EACH, 1) for n in range(TOPICS)]
    for future in admin.create_topics(topics, request_timeout=CREATED_S_MAX).values():
        future.result(CREATED_S_MAX)


def batches(side: Side, *, per_request: int) -> Sample:
    """Return acknowledged batches per second."""
    found = client(
        "many_partitions", "--port", side.server.kafka_port, "--per-request", per_request,
        "--seconds", SECONDS,
    )  # fmt: skip
    return Sample(found["rate"])
