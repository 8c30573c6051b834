"""R2: a producer's p99 beside a reader that is GiBs behind, and reads from the disk."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.k3_consume import drop_from_page_cache
from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.sides import OURS, PEER, Options, Side, client, sides
from tests.support.topics import create_topic

GIB = 8.0
PARTITIONS = 6
RECORD_BYTES = 1024
RATE = 5_000
MINUTES = 0.5
BAR = 1.0
BEHIND = "behind"
MB = 1e6


def run(options: Options) -> Report:
    """Fill both sides, then measure the producer alone and beside the reader, in turn."""
    records = options.records(GIB, RECORD_BYTES)
    seconds = options.seconds(MINUTES)
    samples: dict[tuple[str, str], list[Sample]] = {}
    with sides("never", peer_syncs=False) as found:
        for side in found:
            create_topic(side.bootstrap, partitions=PARTITIONS, name=BEHIND)
            client("produce", side.bootstrap, BEHIND, "--records", records)
        for _ in range(options.runs):
            for side in found:
                alone = steady(side, seconds)
                samples.setdefault(("alone", side.name), []).append(alone)
                beside = beside_reader(side, records, seconds)
                samples.setdefault(("beside", side.name), []).append(beside)
        policies = {side.name: side.policy for side in found}
    rows = [
        Row(title, name, policies[name], "ms", samples[case, name])
        for case, title in (("alone", "p99 alone"), ("beside", "p99 beside a cold reader"))
        for name in (OURS, PEER)
    ]
    size = f"{records * RECORD_BYTES / 2**30:.2f} GiB behind, dropped from the page cache"
    return Report(
        "r2",
        "A producer's p99 at 5,000 msg/s of 1 KB beside a reader far behind",
        rows,
        [Ratio("beside: headgate / kafka", rows[2].median / rows[3].median, BAR, at_most=True)],
        [f"{size}; the reader starts over until {seconds:.0f} s are over"],
    )


def steady(side: Side, seconds: float) -> Sample:
    """Return the p99 of a producer at a steady rate."""
    topic = create_topic(side.bootstrap, partitions=PARTITIONS)
    found = client("steady_rate", side.bootstrap, topic, "--seconds", seconds, "--rate", RATE)
    return Sample(found["p99"], {"p50 ms": found["p50"], "kept msg/s": found["rate"]})


def beside_reader(side: Side, records: int, seconds: float) -> Sample:
    """Return the same while a reader reads everything from the disk."""
    rates: list[float] = []
    with reading(side, records, rates):
        sample = steady(side, seconds)
    read_mb_s = sum(rates) / len(rates) * RECORD_BYTES / MB
    return Sample(sample.value, {**sample.extra, "reader MB/s": read_mb_s})


@contextmanager
def reading(side: Side, records: int, rates: list[float]) -> Iterator[None]:
    """Read all of it, again and again, while the block runs; at least once."""
    over = threading.Event()
    begun = threading.Event()

    def read() -> None:
        while True:
            drop_from_page_cache(side)
            begun.set()
            what = ("--records", records, "--partitions", PARTITIONS)
            rates.append(client("consume", side.bootstrap, BEHIND, *what)["rate"])
            if over.is_set():
                return

    thread = threading.Thread(target=read)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()
