"""Zeros are written ahead of small groups that are synced, and of nothing else."""

from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from gateway.testing.storage import Host, append, make_entry, read_all
from storage_adapters.formats.segment import decode_segment_header, encode_segment_header
from storage_adapters.segment_log import zeros
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.zeros import GROUP_BYTES_MAX, ZerosAhead
from tests.storage_adapters.disks import RecordingFiles
from tests.storage_adapters.settling import settle
from tests.storage_adapters.test_faults import MIB, log_on

AHEAD_BYTES: Final = 100_000


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeros, "AHEAD_BYTES", AHEAD_BYTES)


async def written(data_dir: Path, flush: str, sizes: list[int]) -> list[tuple[int, int, int]]:
    """Append one by one; return (start, end, bytes of zeros at the end) of what was written."""
    files = RecordingFiles()
    log = log_on(files, data_dir, flush)
    await log.open(Host())
    begun = len(files.events)
    for offset, size_bytes in enumerate(sizes):
        await append(log, make_entry((1, offset), size_bytes=size_bytes))
    events = [event for event in files.events[begun:] if event.what == "write"]
    events = [event for event in events if event.path == events[0].path]
    assert len(await read_all(log, 1)) == len(sizes)
    await log.close()
    return [
        (
            one.position,
            one.position + len(one.data),
            len(one.data) - len(one.data.rstrip(b"\0")),
        )
        for one in events
    ]


async def test_small_groups_are_written_where_zeros_are_already(tmp_path: Path) -> None:
    first, *others = await written(tmp_path, "group", [300] * 20)
    assert first[2] >= AHEAD_BYTES
    assert all(end <= first[1] and not count for _, end, count in others)


async def test_zeros_go_on_where_they_end(tmp_path: Path) -> None:
    found = await written(tmp_path, "group", [40_000] * 24)
    with_zeros = [one for one in found if one[2] > 1_000]
    assert 24 / 3 <= len(with_zeros) <= 24 / 2


@pytest.mark.parametrize(
    ("flush", "size_bytes"),
    [("group", GROUP_BYTES_MAX), ("never", 300), ("interval", 300)],
)
async def test_large_groups_and_those_that_are_not_synced_have_none(
    tmp_path: Path, flush: str, size_bytes: int
) -> None:
    assert [count for *_, count in await written(tmp_path, flush, [size_bytes] * 3)] == [0] * 3


def segment_of(number: int) -> Segment:
    header = encode_segment_header(
        data_uuid=UUID(int=1),
        number=number,
        previous=number - 1,
        first_sequence=1,
        incarnation=1,
        created_unix_ms=1,
    )
    segment = Segment(Path(f"{number}"), decode_segment_header(header))
    segment.disk_bytes = MIB
    return segment


def test_there_are_none_behind_the_segment() -> None:
    ahead = ZerosAhead()
    assert len(ahead.behind(segment_of(1), MIB - 50_000, 300)) == 49_700
    assert not ahead.behind(segment_of(2), MIB - 300, 300)


def test_the_next_segment_begins_anew() -> None:
    ahead = ZerosAhead()
    first, second = segment_of(1), segment_of(2)
    assert len(ahead.behind(first, 4_096, 300)) == AHEAD_BYTES
    assert not ahead.behind(first, 4_396, 300)
    assert len(ahead.behind(second, 4_096, 300)) == AHEAD_BYTES


async def test_a_closed_segment_is_as_long_as_its_entries_and_its_footer(
    tmp_path: Path,
) -> None:
    files = RecordingFiles()
    log = log_on(files, tmp_path)
    await log.open(Host())
    await append(log, make_entry((1, 0), size_bytes=300))
    await settle(log)
    await log.close()
    sizes = [path.stat().st_size for path in (tmp_path / "wal").iterdir()]
    assert max(sizes) < AHEAD_BYTES
