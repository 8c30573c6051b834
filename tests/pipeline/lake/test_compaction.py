"""Small files of a table made into larger ones, per topic and day, for each format."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.lake import compaction, parquet
from pipeline.lake.compaction import KEPT_MS, Compacted, compact_files
from pipeline.lake.opening import open_lake
from pipeline.lake.place import open_place
from pipeline.lake.port import Overtaken
from tests.pipeline.archive import archives
from tests.pipeline.archive.archives import FORMATS
from tests.pipeline.lake.test_lakes import _file, _identity

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark-2")]

_LARGE_BYTES = 1 << 20


@pytest.mark.parametrize("table_format", FORMATS)
def test_small_files_of_a_topic_and_day_become_one_with_the_same_rows(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    to = tmp_path / "orders"
    lake = open_lake(str(to), table_format, "archive")
    for first in range(0, 12, 3):
        lake.commit([_file(lake, range(first, first + 3))], {_identity(): first + 3})
    lake.commit([_file(lake, range(12, 15), topic="other")], {_identity(1): 15})

    done = compact_files(spark, lake, file_bytes=_LARGE_BYTES)

    again = open_lake(str(to), table_format, "archive")
    assert done[:2] == (4, 1)
    assert 0 < done.bytes_after < done.bytes_before
    assert [row[1] for row in archives.rows(to, table_format)] == list(range(15))
    topics = archives.read(to, table_format, ["topic"])["topic"].to_pylist()
    assert sorted(topics) == ["orders"] * 12 + ["other"] * 3
    assert again.position(_identity()) == 12
    assert again.position(_identity(1)) == 15
    assert compact_files(spark, again, file_bytes=_LARGE_BYTES)[:2] == (0, 0)
    again.commit([_file(again, range(15, 18))], {_identity(): 15})
    assert [row[1] for row in archives.rows(to, table_format)] == list(range(18))


@pytest.mark.parametrize("table_format", FORMATS)
def test_rows_that_come_during_a_compaction_are_there_after(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    to = tmp_path / "orders"
    ours = open_lake(str(to), table_format, "archive")
    for first in range(0, 6, 3):
        ours.commit([_file(ours, range(first, first + 3))], {_identity(): first + 3})
    theirs = open_lake(str(to), table_format, "archive")
    theirs.commit([_file(theirs, range(6, 9))], {_identity(): 9})

    if table_format == "iceberg":  # which says no, and nothing has happened
        with pytest.raises(Overtaken):
            compact_files(spark, ours, file_bytes=_LARGE_BYTES)
    else:
        compact_files(spark, ours, file_bytes=_LARGE_BYTES)

    assert [row[1] for row in archives.rows(to, table_format)] == list(range(9))


def test_of_two_compactions_of_the_same_files_one_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    to = tmp_path / "orders"
    ours = open_lake(str(to), "parquet", "archive")
    for first in range(0, 6, 3):
        ours.commit([_file(ours, range(first, first + 3))], {_identity(): first + 3})
    theirs = open_lake(str(to), "parquet", "archive")
    compact_files(spark, theirs, file_bytes=_LARGE_BYTES)

    with pytest.raises(Overtaken):
        compact_files(spark, ours, file_bytes=_LARGE_BYTES)

    assert [row[1] for row in archives.rows(to, "parquet")] == list(range(6))


def test_what_was_replaced_stays_a_day_for_those_who_read_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "orders"
    lake = open_lake(str(to), "parquet", "archive")
    for first in range(0, 6, 3):
        lake.commit([_file(lake, range(first, first + 3))], {_identity(): first + 3})
    before = parquet.files(str(to))
    compact_files(spark, lake, file_bytes=_LARGE_BYTES)
    assert all(os.path.exists(path) for path in before)  # noqa: PTH110 - what `files` returns

    monkeypatch.setattr(compaction, "KEPT_MS", -KEPT_MS)  # as if a day had passed
    done = compact_files(
        spark, open_lake(str(to), "parquet", "archive"), file_bytes=_LARGE_BYTES
    )

    assert done == Compacted()
    assert not any(os.path.exists(path) for path in before)  # noqa: PTH110
    assert [row[1] for row in archives.rows(to, "parquet")] == list(range(6))
    content = parquet.read_content(open_place(str(to)))
    assert content.replaced == {}
