"""Guarantees of all formats of lake tables, checked with their own readers, without Spark."""

import json
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType
from pyiceberg.types import StringType

from gateway.model import DEFAULT_NAMESPACE, PartitionIdentity, TopicName
from pipeline.archive import split_files
from pipeline.archive.bad_batches import keep_bad, write_bad
from pipeline.archive.split_files import FileLimits
from pipeline.lake import parquet
from pipeline.lake.files import BAD_KIND, DATA_COLUMN, LakeFile
from pipeline.lake.iceberg import IcebergLake
from pipeline.lake.merging import OneFile, merge
from pipeline.lake.opening import open_lake
from pipeline.lake.place import TablePlace
from pipeline.lake.port import Lake, OtherSchema, Overtaken
from pipeline.log.reading import BadBatch
from pipeline.log.row_schema import ROWS
from tests.pipeline.archive import archives
from tests.pipeline.archive.archives import FORMATS

_MOMENT = datetime(2026, 3, 4, 23, 59, 59, tzinfo=UTC)


def _identity(number: int = 0, *, name: str = "orders", uuid: int = 7) -> PartitionIdentity:
    return PartitionIdentity(3, UUID(int=uuid), TopicName(DEFAULT_NAMESPACE, name), number)


def _file(lake: Lake, offsets: range, *, topic: str = "orders") -> LakeFile:
    """Write a file as a worker does."""
    writers = split_files._Writers(lake.url, lake.layout, FileLimits())
    rows = pa.RecordBatch.from_pylist(
        [
            {
                "topic": topic,
                "partition": 0,
                "offset": offset,
                "timestamp": _MOMENT,
                "key": None,
                "value": f"{offset:08d}".encode(),
                "headers": [{"key": "h", "value": b"x"}],
            }
            for offset in offsets
        ],
        schema=ROWS,
    )
    for one in split_files._by_day(rows, lake.layout):
        writers.write(*one)
    writers.close()
    (file,) = writers.finished
    return file


@pytest.fixture(params=FORMATS)
def table_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "orders"


@pytest.fixture
def opened(table_format: str, to: Path) -> Callable[..., Lake]:
    return lambda job_id="archive": open_lake(str(to), table_format, job_id)


def test_rows_and_positions_are_one_commit(
    opened: Callable[..., Lake], to: Path, table_format: str
) -> None:
    lake = opened()
    assert lake.position(_identity()) is None

    lake.commit([_file(lake, range(5))], {_identity(): 5})
    lake.commit([_file(lake, range(5, 9))], {_identity(): 9})

    assert [row[1] for row in archives.rows(to, table_format)] == list(range(9))
    assert opened().position(_identity()) == 9
    assert opened().position(_identity(1)) is None
    assert opened("another").position(_identity()) is None
    assert opened().position(_identity(uuid=8)) is None  # made anew


def test_a_commit_without_rows_moves_positions(opened: Callable[..., Lake]) -> None:
    lake = opened()

    lake.commit([], {_identity(): 4})

    assert opened().position(_identity()) == 4


def test_of_two_runs_with_one_id_only_one_gets_on(
    opened: Callable[..., Lake], to: Path, table_format: str
) -> None:
    ours, theirs = opened(), opened()
    theirs.commit([_file(theirs, range(6))], {_identity(): 6})

    with pytest.raises(Overtaken, match="another archive with the id 'archive'"):
        ours.commit([_file(ours, range(3))], {_identity(): 3})

    assert opened().position(_identity()) == 6
    assert len(archives.rows(to, table_format)) == 6


def test_a_run_that_begins_between_two_commits_of_another_overtakes_it(
    opened: Callable[..., Lake], to: Path, table_format: str
) -> None:
    ours = opened()
    assert ours.position(_identity()) is None
    ours.commit([_file(ours, range(3))], {_identity(): 3})
    theirs = opened()
    assert theirs.position(_identity()) == 3
    theirs.commit([_file(theirs, range(3, 6))], {_identity(): 6})

    with pytest.raises(Overtaken):
        ours.commit([_file(ours, range(3, 5))], {_identity(): 5})

    assert [row[1] for row in archives.rows(to, table_format)] == list(range(6))


def test_runs_with_other_ids_do_not_disturb_each_other(
    opened: Callable[..., Lake], to: Path, table_format: str
) -> None:
    ours, theirs = opened("ours"), opened("theirs")
    theirs.commit([_file(theirs, range(6))], {_identity(): 6})

    ours.commit([_file(ours, range(3))], {_identity(): 3})

    assert opened("ours").position(_identity()) == 3
    assert opened("theirs").position(_identity()) == 6
    assert len(archives.rows(to, table_format)) == 9


def test_many_commits_are_all_found_again(
    opened: Callable[..., Lake], to: Path, table_format: str
) -> None:
    lake = opened()

    for offset in range(70):  # more than a whole manifest's turn
        lake.commit([_file(lake, range(offset, offset + 1))], {_identity(): offset + 1})

    assert opened().position(_identity()) == 70
    assert [row[1] for row in archives.rows(to, table_format)] == list(range(70))


def test_dead_letters_are_kept_once(
    opened: Callable[..., Lake], to: Path, table_format: str
) -> None:
    bad = [
        BadBatch("orders", 0, 40, "lies", b"\0\xff"),
        BadBatch("orders", 0, 20, "crc", b"a"),
    ]

    keep_bad(opened(), bad[1:], [_identity()])
    keep_bad(opened(), bad, [_identity()])  # after a crash between this and the commit

    found = archives.bad_rows(to, table_format)
    assert sorted((row["base_offset"], row["reason"], row[DATA_COLUMN]) for row in found) == [
        (20, "crc", b"a"),
        (40, "lies", b"\0\xff"),
    ]


def test_a_table_with_another_schema_is_refused_in_one_line(
    to: Path, table_format: str
) -> None:
    open_lake(str(to), table_format, "archive", kind=BAD_KIND)

    with pytest.raises(OtherSchema, match=r"partition is missing, not int.*another folder"):
        open_lake(str(to), table_format, "archive")


def test_a_folder_of_another_format_is_refused_in_one_line(
    opened: Callable[..., Lake], to: Path, table_format: str
) -> None:
    opened()
    other = FORMATS[FORMATS.index(table_format) - 1]

    with pytest.raises(Exception, match=f"of the format {table_format}, not {other}"):
        open_lake(str(to), other, "archive")


def test_columns_that_the_user_has_added_are_kept(tmp_path: Path) -> None:
    url = str(tmp_path / "delta")
    first = open_lake(url, "delta", "archive")
    first.commit([_file(first, range(2))], {_identity(): 2})
    DeltaTable(url).alter.add_columns(Field("mine", PrimitiveType("string")))
    second = open_lake(str(tmp_path / "ice"), "iceberg", "archive")
    assert isinstance(second, IcebergLake)
    second.commit([_file(second, range(2))], {_identity(): 2})
    with second.table.update_schema() as update:
        update.add_column("mine", StringType())

    for found in (url, str(tmp_path / "ice")):
        lake = open_lake(found, "delta" if found == url else "iceberg", "archive")
        assert lake.position(_identity()) == 2
        lake.commit([_file(lake, range(2, 5))], {_identity(): 5})

    for name, path in (("delta", Path(url)), ("iceberg", tmp_path / "ice")):
        table = archives.read(path, name, ["offset", "mine"])
        assert sorted(table["offset"].to_pylist()) == list(range(5))
        assert set(table["mine"].to_pylist()) == {None}


def test_a_column_that_the_user_adds_meanwhile_disturbs_no_run(tmp_path: Path) -> None:
    url = str(tmp_path / "delta")
    lake = open_lake(url, "delta", "archive")
    lake.position(_identity())
    DeltaTable(url).alter.add_columns(Field("mine", PrimitiveType("string")))

    lake.commit([_file(lake, range(2))], {_identity(): 2})

    assert "mine" in [one.name for one in DeltaTable(url).schema().fields]
    assert open_lake(url, "delta", "archive").position(_identity()) == 2


def test_positions_outlive_iceberg_snapshots_and_follow_a_rollback(tmp_path: Path) -> None:
    url = str(tmp_path / "ice")
    lake = open_lake(url, "iceberg", "archive")
    assert isinstance(lake, IcebergLake)
    lake.commit([_file(lake, range(2))], {_identity(): 2})
    first = lake.table.current_snapshot()
    assert first is not None
    lake.commit([_file(lake, range(2, 5))], {_identity(): 5})
    second = lake.table.current_snapshot()
    assert second is not None
    other = open_lake(url, "iceberg", "another")
    assert isinstance(other, IcebergLake)
    other.commit([], {_identity(): 1})
    other.table.maintenance.expire_snapshots().by_id(second.snapshot_id).commit()
    expired = open_lake(url, "iceberg", "archive").position(_identity())
    with other.table.manage_snapshots() as manage:
        manage.set_current_snapshot(snapshot_id=first.snapshot_id)
    rolled_back = open_lake(url, "iceberg", "archive").position(_identity())

    assert (expired, rolled_back) == (5, 2)


def test_rows_of_a_day_are_together(opened: Callable[..., Lake], to: Path) -> None:
    lake = opened()

    file = _file(lake, range(3))

    assert (file.topic, file.day) == ("orders", date(2026, 3, 4).isoformat())
    assert (to / file.path).stat().st_size == file.size_bytes


def test_a_moment_that_no_calendar_has_stops_nothing(
    opened: Callable[..., Lake], to: Path
) -> None:
    lake = opened()
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["orders"]),
            pa.array([0], pa.int32()),
            pa.array([0]),
            pa.array([2**62]).cast(pa.timestamp("us", tz="UTC")),
            pa.array([None], pa.binary()),
            pa.array([b"00000000"], pa.binary()),
            pa.array([[]], ROWS.field("headers").type),
        ],
        schema=ROWS,
    )
    writers = split_files._Writers(lake.url, lake.layout, FileLimits())
    for one in split_files._by_day(rows, lake.layout):
        writers.write(*one)
    writers.close()

    lake.commit(writers.finished, {_identity(): 1})

    assert opened().position(_identity()) == 1
    assert len(list(to.rglob("*.parquet"))) == 1


def test_files_are_closed_by_size_and_by_the_clock(
    opened: Callable[..., Lake],
) -> None:
    lake = opened()
    rows = pa.RecordBatch.from_pylist([], schema=ROWS)
    values = [
        {
            "topic": "orders",
            "partition": 0,
            "offset": n,
            "timestamp": _MOMENT,
            "value": b"a" * 99,
        }
        for n in range(10)
    ]
    rows = pa.RecordBatch.from_pylist(values, schema=ROWS)
    counts = []
    for limits in (FileLimits(bytes_max=1), FileLimits(open_ms_max=0), FileLimits()):
        writers = split_files._Writers(lake.url, lake.layout, limits)
        for _ in range(3):
            for one in split_files._by_day(rows, lake.layout):
                writers.write(*one)
        writers.close()
        counts.append([file.row_count for file in writers.finished])

    assert counts == [[10, 10, 10], [10, 10, 10], [30]]


def test_a_manifest_is_never_half_there_and_never_replaced(tmp_path: Path) -> None:
    lake = open_lake(str(tmp_path / "t"), "parquet", "archive")
    folder = tmp_path / "t" / parquet.FOLDER
    first = (folder / f"{0:020}.json").read_bytes()

    lake.commit([_file(lake, range(2))], {_identity(): 2})

    assert (folder / f"{0:020}.json").read_bytes() == first
    assert sorted(path.name for path in folder.iterdir()) == [f"{n:020}.json" for n in (0, 1)]
    assert json.loads((folder / f"{1:020}.json").read_bytes())["positions"] == {
        "archive": {f"{UUID(int=7)}/0": 2}
    }


def test_files_that_no_manifest_names_are_not_read(tmp_path: Path) -> None:
    to = tmp_path / "t"
    lake = open_lake(str(to), "parquet", "archive")
    _file(lake, range(9))
    lake.commit([_file(lake, range(2))], {_identity(): 2})

    found = parquet.files(str(to))

    assert [pq.read_metadata(path).num_rows for path in found] == [2]
    assert parquet.files(str(to), topic="other") == []


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    to = tmp_path / "t"
    open_lake(str(to), "parquet", "archive")
    (to / parquet.manifest_path(0)).write_bytes(b"{")

    with pytest.raises(Exception, match=r"00000.json is damaged"):
        open_lake(str(to), "parquet", "archive")


def test_a_commit_whose_answer_was_lost_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "t"
    lake = open_lake(str(to), "parquet", "archive")
    once = TablePlace.create_whole
    monkeypatch.setattr(
        TablePlace,
        "create_whole",
        lambda place, path, data: once(place, path, data) and once(place, path, data),
    )  # as a client that sends its request again

    lake.commit([_file(lake, range(2))], {_identity(): 2})
    lake.commit([_file(lake, range(2, 4))], {_identity(): 4})

    assert [row[1] for row in archives.rows(to, "parquet")] == list(range(4))


def test_iceberg_files_that_somebody_else_wrote_are_left_alone(tmp_path: Path) -> None:
    to = str(tmp_path / "orders")
    lake = IcebergLake(to, "archive")
    lake.commit([_file(lake, range(3))], {_identity(): 3})
    with lake.table.update_schema() as change:
        change.add_column("note", StringType())
    ours = lake.table.scan().to_arrow()
    noted = pa.array(["ours"] * 3, pa.string())
    theirs = ours.set_column(ours.schema.get_field_index("note"), "note", noted)
    lake.table.append(theirs.cast(lake.table.schema().as_arrow()))

    listed = IcebergLake(to, "archive").listed()

    assert [one.topic for one in listed] == ["orders"]


def test_files_are_durable_before_a_commit_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(os.fstat(fd).st_ino))
    lake = open_lake(str(tmp_path / "orders"), "parquet", "archive")

    written = [_file(lake, range(3)), _file(lake, range(3, 6))]
    merged = merge(
        [OneFile(one.path, one.topic, one.day, one.size_bytes) for one in written],
        lake.url,
        lake.layout,
    )
    bad = write_bad(lake.url, [BadBatch("orders", 0, 6, "torn", b"x")])

    for one in (*written, merged, bad):
        path = tmp_path / "orders" / one.path
        assert {path.stat().st_ino, path.parent.stat().st_ino} <= synced
