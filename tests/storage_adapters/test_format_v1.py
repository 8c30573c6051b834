"""A data directory of format version 1 is opened by this version; see make_fixture.py."""

import shutil
from pathlib import Path

import pytest

from gateway.model import TopicName
from gateway.records.codec import decode_batch
from gateway.storage import Bounds
from gateway.testing.storage import Host, append, make_entry, read_all
from pipeline.log.access import views
from pipeline.log.options import parse_options
from pipeline.log.reading import read_split
from pipeline.log.row_schema import ROWS
from pipeline.log.splits import ending_positions, plan, starting_positions, wanted
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.inspect import list_partitions
from tests.storage_adapters.test_segment_log import new_log

FIXTURE = Path(__file__).parents[1] / "fixtures" / "data_v1"
DATA_UUID = "2d777c11-d298-4a7f-9405-751d1b790553"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURE, tmp_path / "data"))


async def values_of(log: SegmentLog, partition_id: int) -> list[bytes | None]:
    batches = await read_all(log, partition_id)
    return [record.value for batch in batches for record in decode_batch(batch)]


async def test_format_1_is_read(data_dir: Path) -> None:
    log = new_log(data_dir)
    await log.open(Host())

    assert (str(log.data_uuid), log.incarnation, log.next_sequence) == (DATA_UUID, 3, 14)
    assert log.bounds(1) == Bounds(0, 4)
    assert log.bounds(2) == Bounds(1, 4)
    assert log.bounds(3) == Bounds(0, 0)
    assert log.bounds(4) == Bounds(0, 2)
    assert await values_of(log, 1) == [b"alpha", b"beta", b"gamma", b"theta"]
    assert await values_of(log, 2) == [b"epsilon", b"zeta", b"eta"]
    assert await log.base_offset_for_time(1, 3_001) == 3
    assert log.end_offset_for_epoch(1, 1) == (1, 3)
    assert [header.sequence for header in log.scan(5)] == [5, 6, 11, 13]

    await append(log, make_entry((1, 4), epoch=3))
    assert log.bounds(1) == Bounds(0, 5)
    await log.close()


def test_format_1_tells_its_partitions(data_dir: Path) -> None:
    listing = list_partitions(data_dir)

    assert str(listing.data_uuid) == DATA_UUID
    assert [i.topic for i in listing.identities] == [
        TopicName("default", name) for name in ("t1", "t2", "t4")
    ]
    assert listing.bounds == {1: (0, 4), 2: (1, 4), 4: (0, 2)}


def test_spark_reads_format_1(data_dir: Path) -> None:
    options = parse_options({"path": str(data_dir), "topics": "t1"})
    found = wanted(views(options), options)
    start, end = starting_positions(found, options), ending_positions(found, options)

    values = [
        value
        for split in plan(found, start, end, options)
        for rows in read_split(split, options, ROWS)
        for value in rows.column("value").to_pylist()
    ]

    assert values[:3] == [b"alpha", b"beta", b"gamma"]  # the last was never said to be synced
