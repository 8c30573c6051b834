"""Entries that end transactions: dumped, verified, recovered, and skipped by readers of rows."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.log import log_app
from gateway.storage import Entry, Target
from gateway.testing.storage import Host, append, make_entry, make_marker, read_all
from pipeline.log.access import views
from pipeline.log.options import parse_options
from pipeline.log.reading import read_split
from pipeline.log.row_schema import ROWS
from pipeline.log.splits import ending_positions, plan, starting_positions, wanted
from storage_adapters.formats.entry import FLAG_ABORT, FLAG_CONTROL
from storage_adapters.segment_log import appender
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.inspect import list_partitions
from storage_adapters.segment_log.segments import segment_path
from tests.storage_adapters.test_recovery import crashed
from tests.storage_adapters.test_segment_log import new_log
from tests.support.batches import sample_batch


def marker_entry(*targets: tuple[int, int], is_abort: bool) -> Entry:
    marker = make_marker(targets[0][1], is_abort=is_abort)
    return Entry(tuple(Target(*target) for target in targets), marker, 1, 1_000)


async def three(log: SegmentLog) -> None:
    """Append a batch of three records, then an abort marker and a commit marker."""
    batch = sample_batch(count=3)
    await append(log, Entry((Target(1, 0),), batch, 3, 1_000), make_entry((2, 0)))
    await append(log, marker_entry((1, 3), (2, 1), is_abort=True))
    await append(log, marker_entry((1, 4), is_abort=False))


async def closed(data_dir: Path) -> Path:
    log = new_log(data_dir)
    await log.open(Host())
    await three(log)
    await log.close()
    return data_dir


async def test_dump_says_what_a_control_entry_is(tmp_path: Path) -> None:
    result = CliRunner().invoke(log_app, ["dump", str(await closed(tmp_path))])

    assert result.exit_code == 0, result.output
    assert "last  control abort  78 bytes  1@3  2@1" in result.output
    assert "last  control  78 bytes  1@4" in result.output
    lines = result.output.splitlines()
    assert [line.split()[-2:] for line in lines if line.endswith("marker")] == [
        ["abort", "marker"],
        ["commit", "marker"],
    ]


async def test_verify_finds_flags_that_contradict_their_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = CliRunner().invoke(log_app, ["verify", str(await closed(tmp_path / "whole"))])
    assert whole.exit_code == 0, whole.output

    monkeypatch.setattr(appender, "control_flags", lambda _batch: FLAG_CONTROL | FLAG_ABORT)
    result = CliRunner().invoke(log_app, ["verify", str(await closed(tmp_path / "wrong"))])

    assert result.exit_code == 1
    assert "the entry's flags contradict the batch" in result.output


async def test_recovery_keeps_control_entries_of_a_killed_node(tmp_path: Path) -> None:
    data_dir = await crashed(tmp_path, three)
    assert list_partitions(data_dir).bounds == {1: (0, 5), 2: (0, 2)}

    log = new_log(data_dir)
    await log.open(Host())

    assert [header.is_abort for header in log.scan(0)] == [False, False, True, False]
    assert await read_all(log, 2, start=1) == [make_marker(1, is_abort=True)]
    await log.close()


async def test_spark_rows_skip_control_batches(tmp_path: Path) -> None:
    data_dir = await closed(tmp_path)
    options = parse_options({"path": str(data_dir), "topics": "t1"})
    found = wanted(views(options), options)
    start, end = starting_positions(found, options), ending_positions(found, options)

    offsets = [
        offset
        for split in plan(found, start, end, options)
        for rows in read_split(split, options, ROWS)
        for offset in rows.column("offset").to_pylist()
    ]

    assert offsets == [0, 1, 2]
    assert segment_path(data_dir, 1).read_bytes()[8:10] == b"\x02\x00"
