"""P1: how fast Spark reads a topic where the log keeps it: 4.5 million records of 100 B."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.report import Ratio, Report, Row, Sample, kafka_versions
from benchmarks.sides import OURS, Options, client, temporary_folder
from gateway.errors import GatewayError
from tests.support.gateway import Gateway
from tests.support.topics import create_topic

if TYPE_CHECKING:  # where Spark is missing, its absence is said in one line
    from pyspark.sql import SparkSession

RECORDS: Final = 4_500_000
RECORD_BYTES: Final = 100
PARTITIONS: Final = 8
SEGMENT_BYTES: Final = 64 << 20
MASTER: Final = "local[2]"
BAR: Final = 2_000_000
_PACKAGES: Final = ("pyspark", "pyarrow", "numpy", "deltalake", "pyiceberg")


@dataclass(frozen=True)
class Log:
    """A log that a node has left behind, whole and synced."""

    data_dir: Path
    topic: str
    records: int


@dataclass(frozen=True)
class PipelineReport(Report):
    """A benchmark's outcome, with the versions of what takes part."""

    def versions(self) -> dict[str, str]:
        """Return the versions of everything that takes part."""
        found = kafka_versions()
        ours = {name: found[name] for name in ("headgate", "python", "java")}
        return ours | {name: version(name) for name in _PACKAGES}


def run(options: Options) -> PipelineReport:
    """Read all columns of all records, several times in one session."""
    with made_log(options) as log, session() as spark:
        samples = [
            scan(spark, log, columns="partition,offset,timestamp,key,value")
            for _ in range(1 + options.runs)
        ][1:]
        values = [scan(spark, log, columns="offset,value") for _ in range(1 + options.runs)][1:]
    rows = [
        Row("all but headers", OURS, MASTER, "rows/s", samples),
        Row("offset and value", OURS, MASTER, "rows/s", values),
    ]
    return PipelineReport(
        "p1",
        f"Spark reads {log.records:,} records of {RECORD_BYTES} B through format('headgate')",
        rows,
        [Ratio("million rows/s", rows[0].median / 1e6, BAR / 1e6)],
        [
            f"{PARTITIONS} partitions in segments of {SEGMENT_BYTES >> 20} MiB",
            "every column is summed up in Spark; the first read of a session does not count",
        ],
    )


def scan(spark: "SparkSession", log: Log, *, columns: str) -> Sample:
    """Return rows a second. Spark looks at every value that it gets."""
    from pyspark.sql import functions as sf

    frame = spark.read.format("headgate").options(topics=log.topic, columns=columns)
    loaded = frame.load(str(log.data_dir))
    sums = [
        sf.sum(sf.length(name)) if name in {"key", "value"} else sf.max(name)
        for name in loaded.columns
    ]
    started = time.monotonic()
    (row,) = loaded.agg(sf.count("*").alias("rows"), *sums).collect()
    seconds = time.monotonic() - started
    assert row.rows == log.records, f"{row.rows} of {log.records} rows"
    rate = log.records / seconds
    sys.stderr.write(f"  scan {columns} {rate:,.0f}\n")
    return Sample(rate, {"MB/s": log.records * RECORD_BYTES / seconds / 1e6})


@contextmanager
def made_log(options: Options, *values: str) -> Iterator[Log]:
    """Fill a topic, and stop the node: all of it is synced then. ``values``: see the client."""
    records = options.scaled(options.part(RECORDS))
    settings = {
        "storage.flush": "never",
        "storage.segment_bytes": SEGMENT_BYTES,
        "storage.reserve_bytes": SEGMENT_BYTES // 8,
        "log.level": "error",
    }
    with temporary_folder() as folder, Gateway(folder / "data", settings) as gateway:
        topic = create_topic(gateway.bootstrap, partitions=PARTITIONS)
        sizes = ["--records", records, "--bytes", RECORD_BYTES]
        client("produce", gateway.bootstrap, topic, *sizes, *values)
        gateway.stop()
        yield Log(gateway.data_dir, topic, records)


@contextmanager
def session() -> "Iterator[SparkSession]":
    """Spark as the jobs start it; where it is missing the script ends, and says what to do."""
    from pipeline.spark_session import check_installed, start_spark

    try:
        check_installed("pyspark", "deltalake", "pyiceberg")
        spark = start_spark("headgate-benchmark", master=MASTER)
    except GatewayError as error:
        sys.exit(f"{error}; no figure without it")
    try:
        yield spark
    finally:
        spark.stop()
