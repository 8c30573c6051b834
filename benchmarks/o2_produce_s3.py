"""O2: Kafka produce into S3, 1 KB, acks=all, beside raw PUTs of 8 MiB to the same server."""

import os
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.report import Ratio, Row, Sample
from benchmarks.s3.sides import POSTGRES, SQLITE, S3Report, S3Side, s3_side
from benchmarks.sides import OURS, Options, client, wait_until_idle
from tests.support.process_usage import cpu_s
from tests.support.topics import create_topic

PARTITIONS: Final = 6
MESSAGE_BYTES: Final = 1_024
RECORDS: Final = 1_500_000
SECONDS: Final = 10
PACED_RATE: Final = 10_000  # msg/s, well below the most: a queue's delay is not the storage's
RAW_OBJECTS: Final = 128
RAW_BYTES: Final = 8 << 20
UPLOADS: Final = 4
FLUSH_MS: Final = 250
SETTINGS: Final = {"storage.uploads_max": UPLOADS}  # its default, and the raw side's
RATE_BAR: Final = 0.7
ROOM_MS: Final = 50.0
_MB: Final = 1e6
_GB: Final = 1e9
RAW: Final = "raw PUTs"
_MS: Final = 1_000


def run(options: Options) -> S3Report:
    """Measure the most, then how long an acknowledgement takes below it."""
    seconds, records = options.scaled(SECONDS), options.scaled(RECORDS)
    rows: list[Row] = []
    ratios: list[Ratio] = []
    for index in (SQLITE, POSTGRES):
        with s3_side(index, settings=SETTINGS) as side:
            found = _measure(side, records, seconds=seconds, runs=options.runs)
        rows += _rows(index, found)
        ratios += _ratios(index, found)
    return S3Report(
        "o2",
        "Storage in S3: Kafka produce, 1 KB, acks=all, 6 partitions",
        rows,
        ratios,
        [
            f"{records:,} messages a run; {UPLOADS} uploads at once on both sides",
            "all share the processors: CPU s/GB of the producer and of the S3 server beside ours",
            f"objects close after {FLUSH_MS} ms or 8 MiB; all settings are the defaults",
            f"latency at {PACED_RATE:,} msg/s: from produce to the delivery report",
            "p99 is held against flush interval + the p99 of raw PUTs + 50 ms",
        ],
    )


_Found = Mapping[str, list[Sample]]


def _measure(side: S3Side, records: int, *, seconds: float, runs: int) -> _Found:
    topic = create_topic(side.gateway.bootstrap, partitions=PARTITIONS)
    found: dict[str, list[Sample]] = {"rate": [], "p50": [], "p99": [], RAW: [], "raw p99": []}
    found |= {"commit": []}
    for turn in range(1 + runs):
        raw = _raw(side)
        most = _most(side, topic, records)
        paced = _paced(side, topic, seconds=seconds)
        if turn:  # the first round is a warm-up
            found[RAW].append(Sample(raw["rate"], _per_gb(raw, RAW_OBJECTS * RAW_BYTES)))
            found["raw p99"].append(Sample(raw["p99"]))
            cpu = _per_gb(most, records * MESSAGE_BYTES)
            found["rate"].append(Sample(most["rate"] * MESSAGE_BYTES / _MB, cpu))
            found["p50"].append(Sample(paced["p50"]))
            found["p99"].append(Sample(paced["p99"]))
            found["commit"].append(Sample(paced["commit_ms"]))
    return found


def _raw(side: S3Side) -> dict[str, Any]:
    wait_until_idle([side.gateway.pid, side.server.program.pid])
    bucket = side.server.new_bucket()
    with _cpu(side) as used:
        found = client(
            "raw_puts", side.server.endpoint_url, bucket,
            "--bytes", RAW_BYTES, "--objects", RAW_OBJECTS, "--at-once", UPLOADS,
        )  # fmt: skip
    return found | used


@contextmanager
def _cpu(side: S3Side) -> Iterator[dict[str, float]]:
    """Yield what will be the processor seconds of each party that share the machine."""
    used: dict[str, float] = {}
    before = _cpu_now(side)
    yield used
    used |= {
        name: now - then
        for (name, now), then in zip(_cpu_now(side).items(), before.values(), strict=True)
    }


def _cpu_now(side: S3Side) -> dict[str, float]:
    ended = os.times()  # children that were waited for: clients, nothing else
    return {
        "server CPU s/GB": cpu_s(side.gateway.pid),
        "S3 server CPU s/GB": cpu_s(side.server.program.pid),
        "client CPU s/GB": ended.children_user + ended.children_system,
    }


def _per_gb(used: Mapping[str, float], sent_bytes: float) -> dict[str, float]:
    names = [name for name in used if name.endswith("s/GB")]
    return {name: used[name] / (sent_bytes / _GB) for name in names}


def _most(side: S3Side, topic: str, records: int) -> dict[str, float]:
    """Produce as fast as it goes, with K1's client: no callback a message."""
    wait_until_idle([side.gateway.pid, side.server.program.pid])
    with _cpu(side) as used:
        found = client(
            "produce", side.gateway.bootstrap, topic,
            "--records", records, "--bytes", MESSAGE_BYTES,
        )  # fmt: skip
    return found | used


def _paced(side: S3Side, topic: str, *, seconds: float) -> dict[str, float]:
    wait_until_idle([side.gateway.pid, side.server.program.pid])
    commits = _commits(side)
    found = client(
        "steady_rate", side.gateway.bootstrap, topic, "--seconds", seconds, "--rate", PACED_RATE,
        "--bytes", MESSAGE_BYTES, "--window-s", seconds, "--sample", 10,
    )  # fmt: skip
    taken_s, count = (now - then for now, then in zip(_commits(side), commits, strict=True))
    return {
        "p50": found["p50"],
        "p99": found["p99"],
        "commit_ms": taken_s / max(count, 1) * _MS,
    }


def _commits(side: S3Side) -> list[float]:
    return [side.counted(f"headgate_s3_commit_seconds_{one}") for one in ("sum", "count")]


def _rows(index: str, found: _Found) -> list[Row]:
    words = {
        "rate": ("produce", OURS, "MB/s"),
        RAW: ("8 MiB objects", RAW, "MB/s"),
        "p50": ("acknowledged, p50", OURS, "ms"),
        "p99": ("acknowledged, p99", OURS, "ms"),
        "raw p99": ("8 MiB objects, p99", RAW, "ms"),
        "commit": ("commit, mean", OURS, "ms"),
    }
    return [
        Row(case, side, index, unit, found[name]) for name, (case, side, unit) in words.items()
    ]


def _ratios(index: str, found: _Found) -> list[Ratio]:
    median = {
        name: statistics.median(one.value for one in some) for name, some in found.items()
    }
    bound_ms = FLUSH_MS + median["raw p99"] + ROOM_MS
    return [
        Ratio(f"rate: headgate / {RAW}, {index}", median["rate"] / median[RAW], RATE_BAR),
        Ratio(f"p99 / its bound, {index}", median["p99"] / bound_ms, 1.0, at_most=True),
    ]
