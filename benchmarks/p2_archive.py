"""P2: how fast `headgate pipeline archive` makes a lake table: 4.5 million readings of 100 B."""

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.p1_scan import (
    MASTER,
    PARTITIONS,
    RECORD_BYTES,
    Log,
    PipelineReport,
    made_log,
    session,
)
from benchmarks.report import Ratio, Row, Sample
from benchmarks.sides import OURS, Options

if TYPE_CHECKING:  # where Spark is missing, its absence is said in one line
    from pyspark.sql import SparkSession

BAR: Final = 500_000
FORMATS: Final = ("delta", "iceberg", "parquet")


def run(options: Options) -> PipelineReport:
    """Archive all of it into fresh tables, the formats taking turns."""
    samples: dict[str, list[Sample]] = {name: [] for name in FORMATS}
    with made_log(options, "--readings") as log, session() as spark:
        lake = log.data_dir.parent / "lake"
        for turn in range(1 + options.runs):
            for table_format, found in samples.items():
                sample = archive(spark, log, lake, table_format)
                if turn:
                    found.append(sample)
    rows = [Row("archive", OURS, name, "rows/s", some) for name, some in samples.items()]
    return PipelineReport(
        "p2",
        f"Archive of {log.records:,} records of {RECORD_BYTES} B into a lake table, {MASTER}",
        rows,
        [Ratio("delta: million rows/s", rows[0].median / 1e6, BAR / 1e6)],
        [
            f"{PARTITIONS} partitions, readings of meters like JSON; Parquet with zstd",
            "the first turn, a warm-up, does not count",
        ],
    )


def archive(spark: "SparkSession", log: Log, lake: Path, table_format: str) -> Sample:
    """Return rows a second, from the plan to the last commit."""
    from pipeline.archive.job import Archive, ArchiveRound
    from pipeline.lake.opening import open_lake
    from pipeline.log.options import parse_options

    shutil.rmtree(lake, ignore_errors=True)
    rounds: list[ArchiveRound] = []
    started = time.monotonic()
    chosen = parse_options({"path": str(log.data_dir), "topics": log.topic})
    job = Archive(chosen, open_lake(str(lake / table_format), table_format, "bench"))
    job.run(spark, rounds.append)
    seconds = time.monotonic() - started
    rows = sum(one.rows for one in rounds)
    assert rows == log.records, f"{rows} of {log.records} rows"
    rate = rows / seconds
    sys.stderr.write(f"  archive {table_format} {rate:,.0f}\n")
    written = sum(one.bytes_written for one in rounds)
    return Sample(
        rate, {"MB written": written / 1e6, "files": sum(one.files for one in rounds)}
    )
