"""K2: as K1 with an fsync before each acknowledgement on both sides, and a raw loop beside."""

import os
import time
from pathlib import Path

from benchmarks import k1_produce
from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.sides import OURS, PEER, Options, Side, interleaved, sides
from tests.support.gateway import Gateway

RECORDS = 500_000
BAR = 2.0
RAW_BAR = 0.7
RAW = "raw loop"
SEGMENT_BYTES = 128 << 20


def run(options: Options) -> Report:
    """Measure both sides in turn, and the raw loop at our group size."""
    records = options.scaled(RECORDS)
    raw: list[Sample] = []

    def one(side: Side) -> Sample:
        if side.name != OURS:
            return k1_produce.produce(side, records)
        assert isinstance(side.server, Gateway)
        before = syncs(side.server)
        sample = k1_produce.produce(side, records)
        group_bytes = int(records * k1_produce.RECORD_BYTES / (syncs(side.server) - before))
        rate = raw_rate(side.server.data_dir.parent, group_bytes, records)
        raw.append(Sample(rate, {"group KB": group_bytes / 1e3}))
        return Sample(sample.value, {**sample.extra, "group KB": group_bytes / 1e3})

    with sides("group", peer_syncs=True) as found:
        samples = interleaved(found, one, runs=options.runs)
        policies = {side.name: side.policy for side in found}
    samples[RAW] = raw[-options.runs :]
    policies[RAW] = "writev + fdatasync"
    rows = [
        Row("produce", name, policies[name], "msg/s", samples[name])
        for name in (OURS, PEER, RAW)
    ]
    return Report(
        "k2",
        "Kafka produce, 1 KB, acks=all, 6 partitions, fsync before the ack on both sides",
        rows,
        [
            Ratio("headgate / kafka", rows[0].median / rows[1].median, BAR),
            Ratio("headgate / raw loop", rows[0].median / rows[2].median, RAW_BAR),
        ],
        [f"{records:,} records a run; the raw loop writes groups of headgate's mean size"],
    )


def syncs(gateway: Gateway) -> float:
    """Return how often the storage has synced so far."""
    return gateway.metric("headgate_wal_syncs_total")


def raw_rate(folder: Path, group_bytes: int, records: int) -> float:
    """Return records/s of nothing but writev and fdatasync in groups, into reserved space."""
    path = folder / "raw"
    buffers = [os.urandom(group_bytes // 2), os.urandom(group_bytes - group_bytes // 2)]
    left = records * k1_produce.RECORD_BYTES
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    try:
        os.posix_fallocate(descriptor, 0, max(left, SEGMENT_BYTES))
        os.fsync(descriptor)
        started = time.monotonic()
        while left > 0:
            left -= os.writev(descriptor, buffers)
            os.fdatasync(descriptor)
        seconds = time.monotonic() - started
    finally:
        os.close(descriptor)
        path.unlink()
    return records / seconds
