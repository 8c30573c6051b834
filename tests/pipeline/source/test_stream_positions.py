"""Positions of a stream whose topics were deleted or created again since its last micro-batch."""

from pathlib import Path
from shutil import rmtree

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from gateway.errors import OffsetOutOfRange
from pipeline.log.options import parse_options
from pipeline.source.data_source import StreamReader
from tests.pipeline.audit.damaged_logs import batch, write_log


def _stream(folder: Path, **given: str) -> StreamReader:
    return StreamReader(parse_options({"path": str(folder), **given}))


def _made_anew(folder: Path, *, records: int) -> Path:
    rmtree(folder)
    return write_log(folder, [batch(base) for base in range(0, records, 10)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_log(tmp_path / "data", [batch(base) for base in range(0, 50, 10)])


def test_a_topic_that_was_made_anew_is_an_error_before_it_has_grown(folder: Path) -> None:
    stream = _stream(folder)
    seen = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert seen == {"orders/0": 50}
    _made_anew(folder, records=20)

    with pytest.raises(OffsetOutOfRange, match="made anew"):
        stream.latestOffset(seen, ReadAllAvailable())


def test_a_topic_that_was_made_anew_is_read_from_its_start_where_loss_is_accepted(
    folder: Path,
) -> None:
    stream = _stream(folder, failOnDataLoss="false")
    seen = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    _made_anew(folder, records=20)

    found = stream.latestOffset(seen, ReadAllAvailable())
    splits = stream.partitions(seen, found)

    assert found == {"orders/0": 20}
    extents = [piece.extent for one in splits for piece in one.value.pieces]
    assert [(one.first, one.end) for one in extents] == [(0, 20)]


def test_records_of_a_micro_batch_whose_topic_went_are_a_loss(folder: Path) -> None:
    stream = _stream(folder)
    start = {"orders/0": 0, "gone/0": 5}

    with pytest.raises(OffsetOutOfRange, match="gone/0"):
        stream.partitions(start, {"orders/0": 50, "gone/0": 7})
    assert stream.partitions(start, {"orders/0": 50, "gone/0": 5})
    assert _stream(folder, failOnDataLoss="false").partitions(start, {"gone/0": 7}) == []


def test_a_run_over_what_is_available_outlives_a_topic_that_goes_meanwhile(
    folder: Path,
) -> None:
    stream = _stream(folder)
    stream.prepareForTriggerAvailableNow()
    stream._goal = {**(stream._goal or {}), "gone/0": 5}  # it was there a moment ago

    found = stream.latestOffset({"orders/0": 0}, ReadAllAvailable())

    assert found == {"orders/0": 50}


def test_a_run_over_nothing_does_not_take_what_comes_later(tmp_path: Path) -> None:
    data = write_log(tmp_path / "data", [batch(0)])
    stream = _stream(data, topicsPattern="later-.*")
    stream.prepareForTriggerAvailableNow()
    stream._options = parse_options({"path": str(data)})  # as if a topic had come

    assert stream.latestOffset({}, ReadAllAvailable()) == {}
