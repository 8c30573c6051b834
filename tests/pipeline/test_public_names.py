"""Import paths that the documentation names stay."""

import subprocess
import sys
from pathlib import Path

import pyspark_headgate
from pipeline import parquet_lake
from pipeline.lake import parquet
from tests.support.toolchain import ROOT


def test_documented_import_of_parquet_files_stays() -> None:
    page = (ROOT / "docs/pipeline.md").read_text()

    assert "from pipeline.parquet_lake import files" in page
    assert parquet_lake.files is parquet.files


def test_spark_finds_the_format_by_its_package() -> None:
    assert pyspark_headgate.DefaultSource.name() == "headgate"


def test_script_for_spark_submit_stays_where_submit_lines_name_it() -> None:
    script = Path("pipeline/submit.py")

    done = subprocess.run(
        [sys.executable, script, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert "archive" in done.stdout
