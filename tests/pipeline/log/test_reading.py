"""Splits of a log with odd batches in it, read without Spark."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo

from gateway.model import stamp
from gateway.records.codec import encode_batch
from gateway.records.runs import varint
from pipeline.archive.split_files import FileLimits, write_split
from pipeline.lake.files import Layout
from pipeline.log.access import views
from pipeline.log.options import BadOption, Options, parse_options
from pipeline.log.reading import BadBatch, read_split
from pipeline.log.row_schema import ROWS
from pipeline.log.splits import Split, ending_positions, plan, starting_positions, wanted
from pipeline.source.filters import Predicates
from storage_adapters.formats.footer import decode_trailer
from tests.pipeline.audit.damaged_logs import Batch, batch, write_log
from tests.support.batches import patched, sample_batch

_DELTA_AT = 23
_LAST_AT = -1
_TIME_MS_MAX = (2**63 - 1) // 1_000


def _splits(folder: Path, **given: str) -> tuple[list[Split], Options]:
    options = parse_options({"path": str(folder), "topics": "orders", **given})
    found = wanted(views(options), options)
    start, end = starting_positions(found, options), ending_positions(found, options)
    return plan(found, start, end, options), options


def _read(folder: Path, **given: str) -> tuple[list[dict[str, Any]], list[BadBatch]]:
    splits, options = _splits(folder, **given)
    bad: list[BadBatch] = []
    found: list[dict[str, Any]] = []
    for split in splits:
        for rows in read_split(split, options, ROWS, bad=bad):
            assert rows.num_rows, "nobody has to look for rows without any"
            times = rows.column("timestamp").cast(pa.int64()).to_pylist()
            offsets = rows.column("offset").to_pylist()
            found += [
                {"offset": offset, "us": time}
                for offset, time in zip(offsets, times, strict=True)
            ]
    return found, bad


def _timed(base: int, *times_unix_ms: int) -> Batch:
    data = bytearray(encode_batch([(time, b"k", b"v", ()) for time in times_unix_ms]))
    stamp(data, base, 0)
    return base, data


def _broken(base: int) -> Batch:
    """A batch whose CRC is wrong."""
    _, data = batch(base)
    data[_LAST_AT] ^= 0xFF
    return base, data


def _sparse(base: int, span: int, count: int) -> Batch:
    """A batch of which compaction has left the first records."""
    data = patched(sample_batch(count=count), _DELTA_AT, ">i", span - 1)
    stamp(data, base, 0)
    return base, data


def _boastful(base: int, size: int) -> Batch:
    """A batch whose only record has a key of so many bytes, by its own word."""
    fields = b"\0" + varint(0) + varint(0) + varint(size) + varint(1) + b"v" + varint(0)
    body = varint(len(fields)) + fields
    data = bytearray(encode_batch([(1, b"k", b"v", ())])[:61]) + body
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data = patched(data, _DELTA_AT, ">i", 0)
    stamp(data, base, 0)
    return base, data


def test_times_before_1970_and_beyond_all_calendars_stay_times(tmp_path: Path) -> None:
    folder = write_log(tmp_path, [_timed(0, -5_000), _timed(1, 2**62), _timed(2, -(2**62))])

    found, bad = _read(folder)

    assert not bad
    assert [row["us"] for row in found] == [
        -5_000_000, _TIME_MS_MAX * 1_000, -_TIME_MS_MAX * 1_000,
    ]  # fmt: skip


def test_a_split_of_which_compaction_left_nothing_is_archived(tmp_path: Path) -> None:
    folder = write_log(tmp_path / "data", [_sparse(0, 1_000, 10), batch(1_000)])
    splits, options = _splits(folder, splitBytes="50")
    assert len(splits) > 2

    written = [
        write_split(
            one, options, str(tmp_path / "to"), Layout(ROWS, in_path=False), FileLimits()
        )
        for one in splits
    ]

    assert sum(file.row_count for one in written for file in one.files) == 20


def test_a_damaged_batch_is_told_of_once_however_it_is_cut(tmp_path: Path) -> None:
    folder = write_log(tmp_path, [batch(0), _broken(10), batch(20)])

    whole, bad_of_whole = _read(folder)
    cut, bad_of_cut = _read(folder, splitBytes="50")
    _, bad_of_middle = _read(folder, startingOffsets=json.dumps({"orders": {"0": 15}}))

    assert [row["offset"] for row in whole] == [*range(10), *range(20, 30)]
    assert cut == whole
    assert bad_of_cut == bad_of_whole
    assert [one.base_offset for one in bad_of_cut] == [10]
    assert [one.base_offset for one in bad_of_middle] == [10]


def test_a_footer_that_changed_is_not_trusted(tmp_path: Path) -> None:
    folder = write_log(tmp_path, [batch(0)], [batch(10)])
    path = min(folder.rglob("*.seg"))
    data = bytearray(path.read_bytes())
    data[decode_trailer(data).footer_at] ^= 0x04  # of the base offset in the first row
    path.write_bytes(data)

    found, bad = _read(folder)  # by the entries, as of a segment that has no footer yet

    assert [row["offset"] for row in found] == list(range(20))
    assert not bad


@pytest.mark.parametrize("size", [2**63 - 1, 2**62, 1_000])
def test_a_record_that_claims_more_than_there_is_stops_nothing(
    tmp_path: Path, size: int
) -> None:
    folder = write_log(tmp_path, [batch(0), _boastful(10, size), batch(11)])

    found, bad = _read(folder)

    assert [row["offset"] for row in found] == [*range(10), *range(11, 21)]
    assert [one.base_offset for one in bad] == [10]


def test_times_are_read_to_the_millisecond() -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=2_156_233_872_858)

    options = parse_options({"path": ".", "endingTime": moment.isoformat()})
    narrowed = Predicates.of([EqualTo(("timestamp",), moment)]).within_times(
        parse_options({"path": "."})
    )

    assert options.end_unix_ms == 2_156_233_872_858
    assert narrowed.start_unix_ms == 2_156_233_872_858
    assert narrowed.end_unix_ms == 2_156_233_872_859


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("endingTime", "1960-01-01T00:00Z", "before 1970"),
        ("startingTime", "²", "neither unix ms nor ISO 8601"),
        ("startingTime", "9" * 30, "neither unix ms nor ISO 8601"),
        ("splitBytes", "²", "not a number"),
        ("columns", " , ", "columns names none of"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        parse_options({"path": ".", name: value})
