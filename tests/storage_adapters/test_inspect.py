"""Looking at data from outside, also when it is broken."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.log import log_app
from gateway.errors import StorageUnavailable
from gateway.testing.storage import Host, append, make_entry
from storage_adapters.segment_log.inspect import (
    inspect_entries,
    inspect_segments,
    list_partitions,
    node_beside,
)
from tests.storage_adapters.test_recovery import (
    crashed,
    entry_positions,
    fill_segments,
    flip,
    last_segment,
    three,
)
from tests.storage_adapters.test_segment_log import new_log


async def test_entries_are_told_and_the_damage_between_them(tmp_path: Path) -> None:
    data_dir = await crashed(tmp_path, three)
    path = last_segment(data_dir)
    positions = entry_positions(path)
    flip(path, positions[1][0] + 20)  # The header of the first batch.
    flip(path, positions[2][1] - 1)  # The body of the second.

    (report,) = inspect_segments(data_dir)
    entries = list(inspect_entries(report))

    assert [(entry.position, bool(entry.problem)) for entry in entries] == [
        (start, index in {1, 2}) for index, (start, _) in enumerate(positions)
    ]
    assert "CRC of the entry header" in entries[1].problem
    assert "CRC of the batch" in entries[2].problem


async def test_partitions_are_listed_from_footers_and_from_entries(tmp_path: Path) -> None:
    data_dir = await crashed(tmp_path, fill_segments)

    listing = list_partitions(data_dir)

    assert [identity.partition_id for identity in listing.identities] == [1, 2]
    assert listing.bounds == {1: (0, 30), 2: (7, 30)}
    assert listing.incarnation == 1


async def test_listing_needs_a_stopped_node(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    await log.open(Host())

    assert node_beside(tmp_path) == str(os.getpid())
    with pytest.raises(StorageUnavailable, match="in use by process"):
        list_partitions(tmp_path)

    await log.close()
    assert node_beside(tmp_path) is None
    assert list_partitions(tmp_path).identities == []


async def test_dump_prints_what_is_there(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    await log.open(Host())
    await append(log, make_entry([(1, 0), (2, 0)], 3, epoch=1))
    await log.close()

    result = CliRunner().invoke(log_app, ["dump", str(tmp_path)])

    assert result.exit_code == 0, result.output
    assert "1 = default/t1-0" in result.output
    assert "1@0  2@0" in result.output
    assert "offsets 0 to 2  epoch 1  3 records  none" in result.output
    assert "1 batches" not in result.output.split("footer")[0]


async def test_dump_says_that_a_node_is_running(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    await log.open(Host())
    await append(log, make_entry((1, 0)))

    result = CliRunner().invoke(log_app, ["dump", str(tmp_path), "--partition", "1"])

    assert f"process {os.getpid()} runs on this data" in result.output
    assert "1@0" in result.output
    await log.close()


async def test_dump_of_damage_names_the_place_and_fails(tmp_path: Path) -> None:
    data_dir = await crashed(tmp_path, three)
    start, end = entry_positions(last_segment(data_dir))[1]
    flip(last_segment(data_dir), end - 1)

    result = CliRunner().invoke(log_app, ["dump", str(data_dir)])

    assert result.exit_code == 1
    assert f"DAMAGED at {start} ({end - start} bytes)" in result.output


@pytest.mark.parametrize("options", [["--segment", "99"], []])
def test_dump_of_nothing_fails(tmp_path: Path, options: list[str]) -> None:
    result = CliRunner().invoke(log_app, ["dump", str(tmp_path), *options])

    assert result.exit_code == 1
    assert "no segment" in result.output
