"""A lake table against the log: rows that are planted into the table, or taken out, are found."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import SparkSession

from gateway.errors import RequestError
from gateway.model import stamp
from pipeline.archive.job import Archive
from pipeline.audit import findings as kinds
from pipeline.audit.job import Audit
from pipeline.audit.rows import NoTable, open_rows
from pipeline.lake.opening import open_lake
from pipeline.log.options import parse_options
from tests.pipeline.archive.archives import FORMATS
from tests.pipeline.audit.damaged_logs import TOPIC_UUID, batch, write_log
from tests.support.batches import sample_batch

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark")]

_JOB = "nightly"


def _rows_of(spark: SparkSession, data: Path) -> pa.Table:
    rows = (
        spark.read.format("headgate")
        .option("columns", "topic,partition,offset,timestamp,key,value,headers")
        .load(str(data))
        .toArrow()
    )
    return rows.append_column("day", rows["timestamp"].cast(pa.date32()))


def _write(to: Path, rows: pa.Table, *, position: int | None = None) -> None:
    name = f"headgate/{_JOB}/{TOPIC_UUID}/0"
    moved = [] if position is None else [Transaction(name, position)]
    write_deltalake(
        str(to),
        rows,
        mode="append",
        partition_by=["topic", "day"],
        commit_properties=CommitProperties(app_transactions=moved),
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log of offsets 0 to 99, in two files."""
    batches = [batch(base, base) for base in range(0, 100, 10)]
    return write_log(tmp_path / "data", batches[:6], batches[6:])


def _audited(spark: SparkSession, data: Path, to: Path, compacted: bool = False) -> Audit:  # noqa: FBT001, FBT002
    job = Audit(parse_options({"path": str(data)}), None)
    if compacted:
        job.compacted = frozenset({5})
    job.run(spark, lambda _: None)
    job.check_lake(spark, open_rows(str(to), _JOB))
    return job


def _found(job: Audit) -> list[tuple[str, int, int, int]]:
    return sorted((one.kind, *one[3:6]) for one in job.findings.listed())


def test_a_table_that_has_every_row_once_is_clean(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    rows = _rows_of(spark, data)
    _write(tmp_path / "lake", rows.slice(0, 37), position=37)
    _write(tmp_path / "lake", rows.slice(37), position=100)

    job = _audited(spark, data, tmp_path / "lake")

    assert _found(job) == []
    assert job.rows_compared == 100


def test_what_is_behind_the_position_is_not_missing_and_is_told(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    _write(tmp_path / "lake", _rows_of(spark, data).slice(0, 64), position=64)

    job = _audited(spark, data, tmp_path / "lake")

    assert _found(job) == [(kinds.NOT_IN_LAKE, 64, 99, 36)]
    assert job.findings.is_clean


def _without_some(rows: pa.Table) -> pa.Table:
    offsets = rows["offset"]
    gone = pc.or_(
        pc.and_(pc.greater_equal(offsets, 20), pc.less(offsets, 25)), pc.equal(offsets, 71)
    )
    return rows.filter(pc.invert(gone))


def _with_some_twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(40, 3)])


def _one_for_another(rows: pa.Table) -> pa.Table:
    """One row gone and another one twice: the count is right."""
    return pa.concat_tables([rows.slice(0, 50), rows.slice(49, 1), rows.slice(51)])


def _with_another_value(rows: pa.Table) -> pa.Table:
    values = rows["value"].to_pylist()
    values[33] = b"forged"
    return rows.set_column(rows.schema.get_field_index("value"), "value", pa.array(values))


def _with_key_and_value_swapped(rows: pa.Table) -> pa.Table:
    keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
    keys[12], values[12] = None, keys[12]
    rows = rows.set_column(rows.schema.get_field_index("key"), "key", pa.array(keys))
    return rows.set_column(rows.schema.get_field_index("value"), "value", pa.array(values))


def _with_a_header(rows: pa.Table) -> pa.Table:
    headers = rows["headers"].to_pylist()
    headers[90] = [{"key": "trace", "value": None}]
    column = pa.array(headers, rows.schema.field("headers").type)
    return rows.set_column(rows.schema.get_field_index("headers"), "headers", column)


def _with_unknown_rows(rows: pa.Table) -> pa.Table:
    more = rows.slice(0, 2)
    offsets = pa.array([500, 501], pa.int64())
    more = more.set_column(rows.schema.get_field_index("offset"), "offset", offsets)
    return pa.concat_tables([rows, more])


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (_without_some, [(kinds.LAKE_MISSING, 20, 24, 5), (kinds.LAKE_MISSING, 71, 71, 1)]),
        (_with_some_twice, [(kinds.LAKE_DUPLICATE, 40, 42, 3)]),
        (
            _one_for_another,
            [(kinds.LAKE_DUPLICATE, 49, 49, 1), (kinds.LAKE_MISSING, 50, 50, 1)],
        ),
        (_with_another_value, [(kinds.LAKE_DIFFERENT, 33, 33, 1)]),
        (_with_key_and_value_swapped, [(kinds.LAKE_DIFFERENT, 12, 12, 1)]),
        (_with_a_header, [(kinds.LAKE_DIFFERENT, 90, 90, 1)]),
        (_with_unknown_rows, [(kinds.LAKE_AHEAD, 500, 501, 2)]),
    ],
)
def test_what_was_planted_in_the_table_is_found(
    spark: SparkSession,
    data: Path,
    tmp_path: Path,
    plant: Callable[[pa.Table], pa.Table],
    expected: list[tuple[str, int, int, int]],
) -> None:
    _write(tmp_path / "lake", plant(_rows_of(spark, data)), position=100)

    job = _audited(spark, data, tmp_path / "lake")

    assert _found(job) == expected
    assert not job.findings.is_clean


def test_rows_that_the_log_has_not_are_wrong_unless_compaction_took_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = write_log(tmp_path / "whole", [batch(base) for base in range(0, 50, 10)])
    holed = write_log(tmp_path / "holed", [batch(base) for base in (0, 10, 30, 40)])
    _write(tmp_path / "lake", _rows_of(spark, whole), position=50)

    strict = _audited(spark, holed, tmp_path / "lake")
    lenient = _audited(spark, holed, tmp_path / "lake", compacted=True)

    assert (kinds.LAKE_UNKNOWN, 20, 29, 10) in _found(strict)
    assert (kinds.COMPACTED_SINCE, 20, 29, 10) in _found(lenient)
    assert kinds.LAKE_UNKNOWN not in lenient.findings.totals


def test_of_what_retention_removed_only_rows_that_are_there_twice_are_wrong(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    rows = _rows_of(spark, data)
    _write(tmp_path / "lake", pa.concat_tables([rows, rows.slice(7, 2)]), position=100)
    job = Audit(parse_options({"path": str(data)}), None)
    ((place, view),) = job.found.items()
    extents = [one._replace(first=max(one.first, 20)) for one in view.extents]
    job.found = {place: view._replace(start=20, extents=extents)}

    job.check_lake(spark, open_rows(str(tmp_path / "lake"), _JOB))

    assert _found(job) == [(kinds.LAKE_DUPLICATE, 7, 8, 2)]
    assert job.rows_compared == 80


def test_a_log_that_ends_before_the_tables_position_has_lost_something(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    _write(tmp_path / "lake", _rows_of(spark, data), position=130)

    assert (kinds.LAKE_AHEAD, 100, 129, 30) in _found(_audited(spark, data, tmp_path / "lake"))


def test_a_batch_that_cannot_be_decoded_is_damage_and_its_rows_are_not_unknown(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    rows = _rows_of(spark, data)
    _write(tmp_path / "lake", rows, position=100)
    segment = max(data.rglob("*.seg"))
    raw = bytearray(segment.read_bytes())
    raw[raw.index(b"value of 70") + 3] ^= 1
    segment.write_bytes(raw)

    assert _found(_audited(spark, data, tmp_path / "lake")) == [(kinds.DAMAGED, 70, 79, 1)]


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_table_of_each_format_is_compared(
    spark: SparkSession, data: Path, tmp_path: Path, table_format: str
) -> None:
    to = tmp_path / "lake"
    lake = open_lake(str(to), table_format, _JOB)
    Archive(parse_options({"path": str(data)}), lake).run(spark, lambda _: None)

    whole = _audited(spark, data, to)
    for path in to.rglob("*.parquet"):
        rows = pq.ParquetFile(path).read()
        pq.write_table(rows.filter(pc.not_equal(rows["offset"], 42)), path)
    lacking = _audited(spark, data, to)

    assert _found(whole) == []
    assert whole.rows_compared == 100
    assert _found(lacking) == [(kinds.LAKE_MISSING, 42, 42, 1)]


def test_an_iceberg_table_without_its_catalog_says_how_to_name_it(tmp_path: Path) -> None:
    to = tmp_path / "lake"
    open_lake(str(to), "iceberg", _JOB)
    catalog = tmp_path / "lake-catalog.sqlite"
    moved = catalog.rename(tmp_path / "elsewhere.sqlite")

    with pytest.raises(RequestError, match=r"no table headgate\.lake: name .* with --catalog"):
        open_rows(str(to), _JOB)

    assert not catalog.exists(), "nothing is made by looking"
    assert open_rows(str(to), _JOB, catalog=f"sqlite:///{moved}")


def test_a_table_of_another_format_than_was_said_is_refused(tmp_path: Path) -> None:
    open_lake(str(tmp_path / "lake"), "parquet", _JOB)

    with pytest.raises(RequestError, match="a table of the format parquet, not delta"):
        open_rows(str(tmp_path / "lake"), _JOB, table_format="delta")
    with pytest.raises(RequestError, match="--catalog is Iceberg's; parquet has none"):
        open_rows(str(tmp_path / "lake"), _JOB, catalog="sqlite:///x")


def test_no_table_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(NoTable, match="holds no lake table"):
        open_rows(str(tmp_path / "none"), _JOB)
    assert not (tmp_path / "none").exists()


def test_what_archive_has_written_is_clean_by_its_own_positions(
    spark: SparkSession, tmp_path: Path
) -> None:
    odd = sample_batch(timestamp_unix_ms=2**60)  # a time that no calendar has
    stamp(odd, 10, 0)
    data = write_log(tmp_path / "data", [batch(0)], [(10, odd), batch(11)])
    options = parse_options({"path": str(data)})
    Archive(options, open_lake(str(tmp_path / "lake"), "delta", _JOB)).run(
        spark, lambda _: None
    )

    job = _audited(spark, data, tmp_path / "lake")

    assert (kinds.LAKE_DIFFERENT, 10, 10, 1) not in _found(job)
    assert job.findings.is_clean
    assert job.rows_compared == 21
