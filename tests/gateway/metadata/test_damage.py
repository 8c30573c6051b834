"""SQLite's file is checked at the start: one that is damaged is named, and nothing is served."""

from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import create_engine

from gateway.errors import StorageUnavailable
from gateway.metadata.sql import FILE_NAME, SqlMetadata
from gateway.metadata.store import TopicRow
from gateway.model import TopicName
from gateway.sql.integrity_check import check_sqlite

TOPICS = 300


async def filled(tmp_path: Path) -> Path:
    """Make a store of many pages; return its file."""
    store = SqlMetadata("sqlite", data_dir=tmp_path)
    await store.open()
    for number in range(TOPICS):
        name = TopicName("default", f"topic-{number}")
        row = TopicRow(
            UUID(int=number + 1),
            name,
            is_internal=False,
            created_unix_ms=1,
            ranges=(),
            configs={},
        )
        await store.create_topic(row, partitions=1)
    await store.close()
    return tmp_path / FILE_NAME


async def test_a_damaged_file_is_named_at_the_start(tmp_path: Path) -> None:
    file = await filled(tmp_path)
    data = file.read_bytes()
    at = data.index(b"topic-7") & -4_096
    file.write_bytes(data[:at] + bytes(64) + data[at + 64 :])

    with pytest.raises(StorageUnavailable, match=f"{file} is damaged: .*recover-metadata"):
        await SqlMetadata("sqlite", data_dir=tmp_path).open()


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    file.write_bytes(b"something else" * 1_000)

    with pytest.raises(StorageUnavailable, match=f"{file}: file is not a database"):
        await SqlMetadata("sqlite", data_dir=tmp_path).open()


@pytest.mark.parametrize(("ms_max", "is_whole"), [(0, False), (60_000, True)])
async def test_the_check_ends_at_its_bound(
    tmp_path: Path, ms_max: int, *, is_whole: bool
) -> None:
    file = await filled(tmp_path)
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE many (a INTEGER PRIMARY KEY, b TEXT)")
        connection.exec_driver_sql(
            "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < 100000) "
            "INSERT INTO many SELECT a, hex(a) FROM n"
        )
    with engine.begin() as connection:
        assert check_sqlite(connection, str(file), ms_max) is is_whole
    engine.dispose()
