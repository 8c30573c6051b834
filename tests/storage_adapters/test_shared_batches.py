"""A batch for many partitions is stored once in settled segments, too."""

import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from gateway.model import parse_batch_header
from gateway.testing.storage import append, delete, make_entry, read_all, truncate
from storage_adapters.formats.footer import TRAILER_BYTES
from storage_adapters.segment_log import shared_batches
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.segments import list_segments
from storage_adapters.segment_log.verify import Verification
from tests.storage_adapters.settling import idle, opened, settle

MANY = tuple(range(10, 210))
BATCH_BYTES = 20_000


async def fan_out(log: SegmentLog, count: int, partition_ids: tuple[int, ...] = MANY) -> None:
    """Append ``count`` batches for all partitions, and a small one for the first alone."""
    for number in range(count):
        targets = [(i, log.bounds(i).end) for i in partition_ids]
        shared = make_entry(targets, 2, size_bytes=BATCH_BYTES + number)
        alone = make_entry((targets[0][0], targets[0][1] + 2), size_bytes=200)
        await append(log, shared, alone)


async def offsets(log: SegmentLog, partition_id: int) -> list[tuple[int, int]]:
    """Return base offset and size of a partition's batches."""
    found = await read_all(log, partition_id)
    return [(parse_batch_header(batch).base_offset, len(batch)) for batch in found]


async def test_settling_keeps_a_batch_once(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fan_out(log, 80)
    before = [await offsets(log, i) for i in MANY]
    log_bytes = log.disk_usage().log_bytes

    await settle(log)

    usage = log.disk_usage()
    row_bytes = 32 * 80 * len(MANY)
    assert usage.settled_bytes < 80 * (BATCH_BYTES + 300) + row_bytes + 200 * len(MANY)
    assert usage.settled_bytes < log_bytes
    assert [await offsets(log, i) for i in MANY] == before
    assert log.size_bytes(MANY[1]) == sum(size for _, size in before[1])
    await log.close()
    assert list(Verification(tmp_path).run()) == []
    log = await opened(tmp_path)
    assert [await offsets(log, i) for i in MANY] == before
    await log.close()


async def test_each_chunk_has_a_batch_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_batches, "CHUNK_ROWS", 2_000)
    log = await opened(tmp_path)
    await fan_out(log, 80)
    before = [await offsets(log, i) for i in MANY]

    await settle(log)

    files = log._catalog.settled.shared
    batch_bytes = sum(segment.entries_end for segment in files)
    assert len(files) >= 3
    assert batch_bytes < 80 * (BATCH_BYTES + 300) + 100 * len(files)
    assert [await offsets(log, i) for i in MANY] == before
    await log.close()
    assert list(Verification(tmp_path).run()) == []


async def test_a_shared_batch_stays_while_one_partition_needs_it(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fan_out(log, 80)
    await settle(log)
    kept = await offsets(log, MANY[-1])
    once_bytes = log.metrics.settled_bytes

    for partition_id in MANY[:-1]:
        if partition_id % 2:
            await delete(log, partition_id)
        else:
            await truncate(log, partition_id, log.bounds(partition_id).end)
    await idle(log)

    assert await offsets(log, MANY[-1]) == kept
    for _ in range(20):
        await idle(log)
    assert log.metrics.settled_bytes < 8 * once_bytes  # copied at each half of the rows
    await delete(log, MANY[-1])
    await idle(log)
    assert log.disk_usage().settled_bytes < 100_000
    await log.close()
    assert list(Verification(tmp_path).run()) == []


async def test_a_compacted_partition_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fan_out(log, 80, MANY[:10])
    await settle(log)
    others = [await offsets(log, i) for i in MANY[1:10]]

    done = await log.rewrite(MANY[0], 30, lambda _batch: None)

    assert done.upto_offset == 30
    assert (await offsets(log, MANY[0]))[0][0] == 30
    assert [await offsets(log, i) for i in MANY[1:10]] == others
    await log.close()
    assert list(Verification(tmp_path).run()) == []


async def test_log_segments_that_do_not_count_repeated_bytes_are_settled(
    tmp_path: Path,
) -> None:
    log = await opened(tmp_path)
    await fan_out(log, 5, MANY[:10])
    before = [await offsets(log, i) for i in MANY[:10]]
    await log.close()
    ((_, path),) = list_segments(tmp_path)

    say_repeated(path, 1)
    (finding,) = Verification(tmp_path).run()
    assert finding.text.endswith("bytes repeated, not 1")
    say_repeated(path, 0)
    assert list(Verification(tmp_path).run()) == []

    log = await opened(tmp_path)
    await settle(log)
    assert [await offsets(log, i) for i in MANY[:10]] == before
    await log.close()
    assert list(Verification(tmp_path).run()) == []


def say_repeated(path: Path, repeated_bytes: int) -> None:
    """Replace the number of repeated bytes in a segment's trailer."""
    data = bytearray(path.read_bytes())
    data[-8:] = struct.pack("<Q", repeated_bytes)
    at = len(data) - TRAILER_BYTES
    struct.pack_into("<I", data, at + 4, crc32c(bytes(data[at + 8 :])))
    path.write_bytes(data)
