"""A start after a crash: a torn tail is cut, damage behind a sync is named and refused."""

import os
import shutil
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest
from crc32c import crc32c

from gateway.errors import StorageUnavailable
from gateway.storage import Bounds
from gateway.testing.storage import Host, append, delete, make_entry, read_all, truncate
from storage_adapters.formats.entry import FLAG_LAST, encode_entry
from storage_adapters.formats.segment import (
    FORMAT_VERSION,
    SEGMENT_HEADER_BYTES,
    decode_segment_header,
    encode_segment_header,
)
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.loading import mapped
from storage_adapters.segment_log.scanning import later_entries, scan_segment
from storage_adapters.segment_log.segments import list_segments
from tests.storage_adapters.test_segment_log import new_log

Fill = Callable[[SegmentLog], Awaitable[None]]


async def crashed(root: Path, fill: Fill, *, flush: str = "group") -> Path:
    """Return a data directory as a killed process leaves it."""
    log = new_log(root / "live", flush=flush)
    await log.open(Host())
    await fill(log)
    shutil.copytree(root / "live", root / "crashed")
    await log.close()
    return root / "crashed"


async def three(log: SegmentLog) -> None:
    """Append three times, each synced before the next."""
    await append(log, make_entry((1, 0), 2))
    await append(log, make_entry((1, 2), 3))
    await append(log, make_entry((1, 5), 4), make_entry((2, 0)))


def last_segment(data_dir: Path) -> Path:
    return list_segments(data_dir)[-1][1]


def entry_positions(path: Path) -> list[tuple[int, int]]:
    """Return (position, end) of all entries of a segment."""
    with mapped(path) as view:
        header = decode_segment_header(view)
        entries = later_entries(view, header, SEGMENT_HEADER_BYTES)
        return [(at, at + entry.size_bytes) for at, entry in entries]


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    with path.open("rb") as file:
        file.seek(position)
        byte = file.read(1)[0]
    patch(path, position, bytes([byte ^ 0x10]))


async def opened(data_dir: Path) -> SegmentLog:
    log = new_log(data_dir)
    await log.open(Host())
    return log


async def bounds_after_start(data_dir: Path) -> tuple[Bounds, Bounds]:
    log = await opened(data_dir)
    try:
        return log.bounds(1), log.bounds(2)
    finally:
        await log.close()


async def test_nothing_is_lost_by_a_kill(tmp_path: Path) -> None:
    data_dir = await crashed(tmp_path, three)

    log = await opened(data_dir)

    assert log.bounds(1) == Bounds(0, 9)
    assert len(await read_all(log, 1)) == 3
    assert log.cut_bytes == 0
    await log.close()


@pytest.mark.parametrize("how", ["cut", "zeros", "garbage"])
@pytest.mark.heavy
async def test_last_append_torn_at_every_byte_is_cut(tmp_path: Path, how: str) -> None:
    """The last append has two entries: neither is there when any byte of them is missing."""
    data_dir = await crashed(tmp_path, three)
    path = last_segment(data_dir)
    whole = path.read_bytes()
    # A PARTITION entry introduces partition 2, so the append has three entries.
    start, end = entry_positions(path)[-3][0], entry_positions(path)[-1][1]

    for at in range(start, end, 1 if how == "cut" else 7):
        shutil.rmtree(data_dir / "wal")
        (data_dir / "wal").mkdir()
        fillings = {"cut": b"", "zeros": bytes(end - at), "garbage": b"HGe1\xff" * (end - at)}
        path.write_bytes(whole[:at] + fillings[how])
        assert await bounds_after_start(data_dir) == (Bounds(0, 5), Bounds(0, 0)), at


async def test_log_goes_on_after_a_cut(tmp_path: Path) -> None:
    data_dir = await crashed(tmp_path, three)
    path = last_segment(data_dir)
    flip(path, entry_positions(path)[-1][1] - 1)

    log = await opened(data_dir)
    assert log.cut_bytes > 0
    await append(log, make_entry((1, 5), 7, epoch=2))
    await log.close()

    assert (await bounds_after_start(data_dir))[0] == Bounds(0, 12)


async def test_flipped_bit_in_what_was_synced_refuses_and_names_the_place(
    tmp_path: Path,
) -> None:
    """Every byte of the first two appends counts: the third says that they were synced."""
    data_dir = await crashed(tmp_path, three)
    path = last_segment(data_dir)
    for start, end in entry_positions(path)[:3]:
        for at in range(start, end, 3):
            flip(path, at)
            with pytest.raises(StorageUnavailable) as refusal:
                await opened(data_dir)
            assert str(path) in str(refusal.value)
            assert f"position {start} " in str(refusal.value)
            flip(path, at)

    assert (await bounds_after_start(data_dir))[0] == Bounds(0, 9)


async def test_stale_entry_behind_a_cut_stays_dead(tmp_path: Path) -> None:
    """Without syncs nothing says that the second append was kept: it and the third are cut."""
    data_dir = await crashed(tmp_path, three, flush="never")
    path = last_segment(data_dir)
    stale_at = entry_positions(path)[2][0]
    flip(path, stale_at + 70)

    assert (await bounds_after_start(data_dir))[0] == Bounds(0, 2)

    # As if the cut had been lost: the bytes are back, in a segment that has been closed.
    log = await opened(data_dir)
    await append(log, make_entry((1, 2), 1, epoch=3))
    await log.close()
    assert (await bounds_after_start(data_dir))[0] == Bounds(0, 3)


async def test_entry_of_an_older_incarnation_is_not_taken(tmp_path: Path) -> None:
    data_dir = await crashed(tmp_path, three)
    path = last_segment(data_dir)
    end = entry_positions(path)[-1][1]
    with mapped(path) as view:
        header = decode_segment_header(view)
        before = scan_segment(view, header, None)
    stale = encode_entry(
        4,
        struct.pack("<I", 1),
        sequence=before.next_sequence,
        incarnation=header.incarnation - 1,
        durable_sequence=0,
        flags=FLAG_LAST,
        seed=header.seed,
    )
    patch(path, end, stale)

    with mapped(path) as view:
        assert scan_segment(view, header, None).next_sequence == before.next_sequence
    assert (await bounds_after_start(data_dir))[0] == Bounds(0, 9)


async def test_entry_of_another_segment_is_not_taken(tmp_path: Path) -> None:
    """A batch may hold a copy of a log: an entry's CRC continues from its segment's."""
    data_dir = await crashed(tmp_path, three)
    path = last_segment(data_dir)
    with mapped(path) as view:
        header = decode_segment_header(view)
        scan = scan_segment(view, header, None)
    foreign = encode_entry(
        4,
        struct.pack("<I", 1),
        sequence=scan.next_sequence,
        incarnation=header.incarnation,
        durable_sequence=scan.next_sequence - 1,
        flags=FLAG_LAST,
        seed=header.seed ^ 1,
    )
    patch(path, scan.entries_end, foreign)

    assert (await bounds_after_start(data_dir))[0] == Bounds(0, 9)


async def fill_segments(log: SegmentLog) -> None:
    """Fill some segments with two partitions, truncate one, delete a third."""
    await append(log, make_entry((3, 0)))
    for number in range(30):
        entry = make_entry((1, number), size_bytes=100_000, timestamp_unix_ms=number)
        await append(log, entry, make_entry((2, number)))
    await truncate(log, 2, 7)
    await delete(log, 3)


async def answers(log: SegmentLog) -> list[object]:
    return [
        log.bounds(1),
        log.bounds(2),
        log.bounds(3),
        await read_all(log, 1),
        await read_all(log, 2),
        await log.base_offset_for_time(1, 17),
        log.offset_for_size(1, 500_000),
        log.end_offset_for_epoch(1, 1),
    ]


@pytest.mark.parametrize("spoil", ["cut off", "flip rows", "flip trailer", "cut short"])
async def test_lost_footers_are_rebuilt(tmp_path: Path, spoil: str) -> None:
    data_dir = tmp_path / "data"
    log = await opened(data_dir)
    await fill_segments(log)
    expected = await answers(log)
    await log.close()
    for _, path in list_segments(data_dir):
        size_bytes = path.stat().st_size
        entries_end = entry_positions(path)[-1][1]
        if spoil == "cut off":
            patch(path, entries_end, bytes(size_bytes - entries_end))
        elif spoil == "flip rows":
            flip(path, entries_end + 20)
        elif spoil == "flip trailer":
            flip(path, size_bytes - 50)
        else:
            with path.open("r+b") as file:
                file.truncate(size_bytes - 1)

    log = await opened(data_dir)

    assert await answers(log) == expected
    await log.close()
    log = await opened(data_dir)
    assert await answers(log) == expected
    await log.close()


async def test_damage_in_a_closed_segment_without_its_footer_refuses(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    log = await opened(data_dir)
    await fill_segments(log)
    await log.close()
    path = list_segments(data_dir)[1][1]
    positions = entry_positions(path)
    flip(path, positions[-1][0] + 80)
    patch(path, positions[-1][1], bytes(path.stat().st_size - positions[-1][1]))

    with pytest.raises(StorageUnavailable) as refusal:
        await opened(data_dir)

    assert str(path) in str(refusal.value)
    assert f"position {positions[-1][0]} " in str(refusal.value)


async def test_damage_before_a_clean_stop_refuses(tmp_path: Path) -> None:
    """The last entry says that the stop was clean; nothing before it can be a torn tail."""
    data_dir = tmp_path / "data"
    log = await opened(data_dir)
    await append(log, make_entry((1, 0)))
    await log.close()
    path = last_segment(data_dir)
    positions = entry_positions(path)
    flip(path, positions[-2][1] - 1)
    with path.open("r+b") as file:
        file.truncate(positions[-1][1])

    with pytest.raises(StorageUnavailable, match="the stop was clean"):
        await opened(data_dir)


async def test_missing_segment_is_no_silent_gap(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    log = await opened(data_dir)
    await fill_segments(log)
    await log.close()
    list_segments(data_dir)[1][1].unlink()

    log = await opened(data_dir)

    with pytest.raises(StorageUnavailable, match="are in no segment"):
        await log.read(1, 0, 30, bytes_max=10_000_000)
    await log.close()


async def test_starts_without_appends_count_and_leave_one_file(tmp_path: Path) -> None:
    known = set()
    for incarnation in (1, 2, 3):
        log = await opened(tmp_path)
        assert log.incarnation == incarnation
        known.add(log.data_uuid)
        await log.close()

    assert len(known) == 1
    ((_, path),) = list_segments(tmp_path)
    assert path.stat().st_size == SEGMENT_HEADER_BYTES


async def test_incarnation_grows_when_a_start_was_killed_before_it_wrote(
    tmp_path: Path,
) -> None:
    async def nothing(_: SegmentLog) -> None:
        pass

    data_dir = await crashed(tmp_path, nothing)

    log = await opened(data_dir)

    assert log.incarnation == 2
    assert len(list_segments(data_dir)) == 1
    await log.close()


async def test_file_that_was_being_made_is_removed(tmp_path: Path) -> None:
    data_dir = await crashed(tmp_path, three)
    made = data_dir / "wal" / f"{77:020d}.seg"
    made.write_bytes(b"HGSG\0\0" + bytes(5_000))

    assert (await bounds_after_start(data_dir))[0] == Bounds(0, 9)
    assert not made.exists()


async def test_damaged_header_with_data_behind_it_refuses(tmp_path: Path) -> None:
    data_dir = await crashed(tmp_path, three)
    flip(last_segment(data_dir), 30)

    with pytest.raises(StorageUnavailable, match=r"position 0.*there is data behind it"):
        await opened(data_dir)


async def test_later_format_is_refused_in_one_line(tmp_path: Path) -> None:
    data_dir = await crashed(tmp_path, three)
    path = last_segment(data_dir)
    header = bytearray(path.read_bytes()[:SEGMENT_HEADER_BYTES])
    struct.pack_into("<H", header, 8, FORMAT_VERSION + 1)
    struct.pack_into("<I", header, 4, crc32c(bytes(header[8:])))
    patch(path, 0, bytes(header))

    with pytest.raises(StorageUnavailable, match="written by a later version"):
        await opened(data_dir)


async def test_segments_of_two_directories_are_refused(tmp_path: Path) -> None:
    data_dir = await crashed(tmp_path, three)
    header = encode_segment_header(
        data_uuid=UUID(int=5),
        number=9,
        previous=0,
        first_sequence=99,
        incarnation=1,
        created_unix_ms=0,
    )
    (data_dir / "wal" / f"{9:020d}.seg").write_bytes(header + bytes(100))

    with pytest.raises(StorageUnavailable, match="several data directories"):
        await opened(data_dir)


async def test_second_process_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    log = await opened(tmp_path)

    with pytest.raises(StorageUnavailable, match=f"in use by process {os.getpid()}"):
        await opened(tmp_path)

    await append(log, make_entry((1, 0)))
    await log.close()
    assert (await bounds_after_start(tmp_path))[0] == Bounds(0, 1)


async def test_data_uuid_stays(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await append(log, make_entry((1, 0)))
    data_uuid = log.data_uuid
    await log.close()

    log = await opened(tmp_path)

    assert log.data_uuid == data_uuid
    await log.close()
