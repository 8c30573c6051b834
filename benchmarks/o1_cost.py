"""O1: what the storage in S3 asks of bucket and database, at 1, 100 and 1,000 busy partitions."""

import shutil
from collections.abc import Mapping
from typing import Final

from benchmarks.report import Ratio, Row, Sample
from benchmarks.s3.sides import POSTGRES, S3Report, S3Side, s3_side
from benchmarks.sides import OURS, Options, client
from tests.support.topics import create_topic

PARTITIONS: Final = (1, 100, 1_000)
RATE: Final = 5_000
SECONDS: Final = 20
FLUSH_MS: Final = 250
BAR: Final = 1.2  # objects a second at 1,000 partitions by those at one
_MILLION: Final = 1e6
_COUNTERS: Final[Mapping[str, tuple[str, Mapping[str, str], float]]] = {
    "PUTs": ("headgate_s3_requests_total", {"kind": "put"}, 1),
    "GETs": ("headgate_s3_requests_total", {"kind": "get"}, 1),
    "MB put": ("headgate_s3_bytes_total", {"kind": "put"}, 1e6),
    "transactions": ("headgate_s3_transactions_total", {}, 1),
}


def run(options: Options) -> S3Report:
    """Write at a steady rate, then read all of it, from a node that has cached nothing."""
    seconds = options.scaled(SECONDS)
    rows: list[Row] = []
    puts_a_second: dict[int, float] = {}
    for partitions in PARTITIONS:
        case = f"{partitions} partition{'s' * (partitions > 1)}"
        with s3_side(POSTGRES, settings={"storage.flush_interval_ms": FLUSH_MS}) as side:
            topic = create_topic(side.gateway.bootstrap, partitions=partitions)
            written = write(side, topic, partitions, seconds=seconds)
            messages = int(written["messages"])
            read = read_cold(side, topic, partitions, messages)
        puts_a_second[partitions] = written["PUTs"] / seconds
        rows += [
            _row(case, "writing", "PUTs/s", puts_a_second[partitions]),
            _row(case, "writing", "transactions/s", written["transactions"] / seconds),
            *(
                _row(case, "writing", f"{name} a million", value)
                for name, value in _a_million(written, messages).items()
            ),
            _row(case, "reading, cold", "GETs a million", _a_million(read, messages)["GETs"]),
        ]
    return S3Report(
        "o1",
        f"Storage in S3: requests and transactions at {RATE:,} msg/s of 1 KB",
        rows,
        [
            Ratio(
                "PUTs/s: 1,000 partitions / 1",
                puts_a_second[PARTITIONS[-1]] / puts_a_second[PARTITIONS[0]],
                BAR,
                at_most=True,
            )
        ],
        [
            f"{seconds} s at each; objects close after {FLUSH_MS} ms or 8 MiB",
            "merging is included; a million: for a million messages",
        ],
    )


def _row(case: str, phase: str, unit: str, value: float) -> Row:
    return Row(case, OURS, phase, unit, [Sample(value)])


def write(side: S3Side, topic: str, partitions: int, *, seconds: float) -> dict[str, float]:
    """Return what writing cost; "messages": how many were acknowledged."""
    before = _counts(side)
    found = client(
        "steady_rate", side.gateway.bootstrap, topic, "--seconds", seconds, "--rate", RATE,
        "--partitions", partitions, "--window-s", seconds, "--sample", 100,
    )  # fmt: skip
    after = _counts(side)
    cost = {name: after[name] - before[name] for name in after}
    return {**cost, "messages": found["rate"] * seconds}


def read_cold(side: S3Side, topic: str, partitions: int, messages: int) -> dict[str, float]:
    """Return what reading cost a node that was started anew, on an empty disk."""
    side.gateway.stop()
    shutil.rmtree(side.gateway.data_dir / "cache", ignore_errors=True)
    side.gateway.start()
    before = _counts(side)
    client(
        "consume", side.gateway.bootstrap, topic,
        "--records", messages, "--partitions", partitions,
    )  # fmt: skip
    after = _counts(side)
    return {name: after[name] - before[name] for name in after}


def _counts(side: S3Side) -> dict[str, float]:
    return {
        name: side.counted(metric, **labels) / unit
        for name, (metric, labels, unit) in _COUNTERS.items()
    }


def _a_million(cost: dict[str, float], messages: float) -> dict[str, float]:
    return {name: cost[name] / messages * _MILLION for name in _COUNTERS}
