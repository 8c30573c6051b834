"""K1: produce, 1 KB, acks=all, 6 partitions, librdkafka, no fsync on either side."""

from benchmarks.report import Ratio, Report, Row, Sample, number
from benchmarks.sides import OURS, PEER, Options, Side, client, cpu_per_gb, interleaved, sides
from tests.support.topics import create_topic

PARTITIONS = 6
RECORDS = 500_000
RECORD_BYTES = 1024
BAR = 1.0


def run(options: Options) -> Report:
    """Measure both sides in turn."""
    records = options.scaled(RECORDS)
    with sides("never", peer_syncs=False) as found:
        samples = interleaved(found, lambda side: produce(side, records), runs=options.runs)
        policies = {side.name: side.policy for side in found}
    rows = [
        Row("produce", name, policies[name], "msg/s", samples[name]) for name in (OURS, PEER)
    ]
    return Report(
        "k1",
        "Kafka produce, 1 KB, acks=all, 6 partitions, no fsync on either side",
        rows,
        [Ratio("headgate / kafka", rows[0].median / rows[1].median, BAR)],
        [f"{records:,} records a run; {ceiling(records)}"],
    )


def produce(side: Side, records: int) -> Sample:
    """Produce to a fresh topic; the rate in msg/s."""
    topic = create_topic(side.bootstrap, partitions=PARTITIONS)
    extra: dict[str, float] = {}
    with cpu_per_gb(side, records * RECORD_BYTES, extra):
        found = client("produce", side.bootstrap, topic, "--records", records)
    return Sample(found["rate"], extra)


def ceiling(records: int) -> str:
    """Return what the client's loop reaches against a broker that only says yes."""
    found = client("produce", "mock", "ceiling", "--records", records, "--mock")
    return f"the client's ceiling (librdkafka's own mock broker): {number(found['rate'])} msg/s"
