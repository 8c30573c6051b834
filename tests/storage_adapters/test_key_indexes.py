"""Key indexes beside settled segments: made, asked, made anew, removed; never wrong."""

from itertools import pairwise
from pathlib import Path

import pytest

from gateway.model import parse_batch_header
from gateway.records.codec import encode_batch
from gateway.records.keys import keys_of_batch
from gateway.storage import Entry, Target, WantedKeys
from gateway.testing.storage import append, delete, read_all, truncate
from storage_adapters.formats.key_index import (
    KEY_INDEX_HEADER_BYTES,
    KeyIndex,
    encode_index_header,
)
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.files import SystemFiles
from storage_adapters.segment_log.key_indexes import KEY_INDEX_SUFFIX, KeyIndexes
from storage_adapters.segment_log.segments import SETTLED_DIRECTORY
from tests.storage_adapters.settling import fill, opened, settle
from tests.support.waiting import until

OWN, SHARED, PLAIN = 1, 2, 3
KEYED = frozenset({OWN, SHARED})
ALL = 1 << 40


def keyed_entry(log: SegmentLog, partition_id: int, *keys: bytes, value: bytes = b"") -> Entry:
    offset = log.bounds(partition_id).end
    batch = encode_batch(
        [(1_000, key, value, ()) for key in keys], base_offset=offset, leader_epoch=1
    )
    return Entry((Target(partition_id, offset),), batch, len(keys), 1_000)


async def fill_keyed(log: SegmentLog, count: int, first: int = 0) -> None:
    """Append batches of three records: ``k<n>``, ``all`` and one of ten more."""
    for n in range(first, first + count):
        keys = b"k%d" % n, b"all", b"ten-%d" % (n % 10)
        await append(
            log,
            keyed_entry(log, OWN, *keys, value=bytes(15_000)),
            keyed_entry(log, SHARED, *keys),
            keyed_entry(log, PLAIN, *keys),
        )


def indexes_of(log: SegmentLog, memory_bytes_max: int = 1 << 20) -> KeyIndexes:
    return KeyIndexes(
        log._catalog,
        files=SystemFiles(),
        data_dir=log._data_dir,
        pace=log._settler.pace,
        read=log.read,
        memory_bytes_max=memory_bytes_max,
    )


def index_files(log: SegmentLog) -> list[Path]:
    return sorted((log._data_dir / SETTLED_DIRECTORY).glob(f"*{KEY_INDEX_SUFFIX}*"))


async def holders_of(log: SegmentLog, partition_id: int, key: bytes) -> list[int]:
    """Return the base offsets of the batches that hold a key, by reading all of them."""
    return [
        parse_batch_header(batch).base_offset
        for batch in await read_all(log, partition_id)
        if key in keys_of_batch(batch)
    ]


async def spans_of(
    indexes: KeyIndexes, partition_id: int, key: bytes | WantedKeys, start: int, end: int
) -> list[tuple[int, int]]:
    """Return where wanted keys may be, of all files; spans that touch are one."""
    wanted = key if isinstance(key, WantedKeys) else WantedKeys(frozenset([key]))
    spans: list[tuple[int, int]] = []
    while start < end:
        found, start = await indexes.spans_with_keys(partition_id, wanted, start, end)
        for span in found:
            if spans and spans[-1][1] == span[0]:
                spans[-1] = spans[-1][0], span[1]
            else:
                spans.append(span)
    return spans


async def check_spans(log: SegmentLog, indexes: KeyIndexes, partition_id: int) -> None:
    """No batch with a key lies outside of the ranges, which are in order and apart."""
    for key in (b"k0", b"k77", b"k100", b"all", b"ten-3", b"nobody"):
        spans = await spans_of(indexes, partition_id, key, 0, ALL)
        assert all(start < end for start, end in spans)
        assert all(one[1] < two[0] for one, two in pairwise(spans))
        for offset in await holders_of(log, partition_id, key):
            assert any(start <= offset < end for start, end in spans), (key, offset, spans)


@pytest.mark.parametrize("partition_id", [OWN, SHARED])
async def test_a_key_leads_to_its_batches_and_to_what_is_not_settled(
    tmp_path: Path, partition_id: int
) -> None:
    log = await opened(tmp_path)
    await fill_keyed(log, 200)
    await settle(log)
    indexes = indexes_of(log)
    assert await indexes.index(KEYED, keys_of_batch) == len(index_files(log)) > 1
    looked_at_end = log.bounds(partition_id).end
    await fill_keyed(log, 5, first=1_000)
    settled_end = log.settled_offset(partition_id)

    spans = await spans_of(indexes, partition_id, b"k100", 0, ALL)

    assert spans[0] == (300, 303)
    assert spans[1:] == [(looked_at_end, log.bounds(partition_id).end)]
    assert await spans_of(indexes, partition_id, b"k100", 301, 302) == [(301, 302)]
    assert await spans_of(indexes, partition_id, b"k100", 303, settled_end) == []
    await check_spans(log, indexes, partition_id)
    await log.close()


async def test_who_did_not_ask_is_read_as_a_whole(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill_keyed(log, 200)
    await settle(log)
    indexes = indexes_of(log)
    await indexes.index(KEYED, keys_of_batch)
    spans = await spans_of(indexes, PLAIN, b"k100", 0, ALL)
    assert spans == [(0, log.bounds(PLAIN).end)]
    await log.close()


async def test_what_is_there_is_not_made_again_until_more_is_wanted(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill_keyed(log, 200)
    await settle(log)
    assert await indexes_of(log).index(KEYED, keys_of_batch) > 0
    indexes = indexes_of(log)
    assert await indexes.index(KEYED, keys_of_batch) == 0
    assert await indexes.index(KEYED | {PLAIN}, keys_of_batch) > 0
    for partition_id in (OWN, SHARED, PLAIN):
        await check_spans(log, indexes, partition_id)
    await log.close()


async def test_indexes_follow_truncation_merging_and_deletion(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    indexes = indexes_of(log)
    for number in range(4):
        await fill_keyed(log, 100, first=number * 100)
        await settle(log)
        await indexes.index(KEYED, keys_of_batch)
        await truncate(log, OWN, log.bounds(OWN).end - 150)
    await indexes.index(KEYED, keys_of_batch)
    segments = {path.stem for path in (tmp_path / SETTLED_DIRECTORY).glob("*.seg")}
    assert {path.stem for path in index_files(log)} <= segments
    for partition_id in KEYED:
        await check_spans(log, indexes, partition_id)
    await delete(log, OWN, SHARED)
    await fill(log, 40, (7, 8))
    await settle(log)
    await until(lambda: not log._catalog.settled.owned(OWN))
    await indexes.index(frozenset(), keys_of_batch)
    segments = {path.stem for path in (tmp_path / SETTLED_DIRECTORY).glob("*.seg")}
    assert {path.stem for path in index_files(log)} <= segments
    assert await spans_of(indexes, OWN, b"all", 0, ALL) == []
    await log.close()


@pytest.mark.parametrize("damage", ["flip", "cut", "strange", "gone"])
async def test_a_damaged_or_strange_index_is_not_used(tmp_path: Path, damage: str) -> None:
    log = await opened(tmp_path)
    await fill_keyed(log, 200)
    await settle(log)
    await indexes_of(log).index(KEYED, keys_of_batch)
    files = index_files(log)
    data = [path.read_bytes() for path in files]
    for path, own in zip(files, data, strict=True):
        path.unlink()
        if damage == "flip":
            path.write_bytes(own[:-9] + bytes([own[-9] ^ 1]) + own[-8:])
        elif damage == "cut":
            path.write_bytes(own[:-1])
        elif damage == "strange":
            header = KeyIndex(memoryview(own)).header
            other = header._replace(segment_seed=header.segment_seed ^ 1)
            path.write_bytes(encode_index_header(other) + own[KEY_INDEX_HEADER_BYTES:])

    indexes = indexes_of(log)

    for partition_id in KEYED:
        spans = await spans_of(indexes, partition_id, b"k100", 0, ALL)
        assert spans == [(0, log.bounds(partition_id).end)]
    assert await indexes.index(KEYED, keys_of_batch) == len(files)
    assert [path.read_bytes() for path in files] == data
    await log.close()


async def read_bytes_for(log: SegmentLog, indexes: KeyIndexes, key: bytes) -> int:
    spans = await spans_of(indexes, OWN, key, 0, ALL)
    batches = [await log.read(OWN, start, end, bytes_max=ALL) for start, end in spans]
    return sum(len(batch) for found in batches for batch in found)


async def test_what_is_not_settled_is_found_without_reading_all(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill_keyed(log, 200)
    indexes = indexes_of(log)
    await indexes.index(KEYED, keys_of_batch)
    for partition_id in (OWN, SHARED, PLAIN):
        await check_spans(log, indexes, partition_id)
    all_bytes = await read_bytes_for(log, indexes, b"all")

    assert all_bytes > 200 * 15_000
    assert await read_bytes_for(log, indexes, b"k100") < 300_000
    assert await spans_of(indexes, OWN, b"nobody", 0, ALL) == []

    await fill_keyed(log, 5, first=1_000)  # since the last look
    assert await spans_of(indexes, OWN, b"nobody", 0, ALL) == [(600, 615)]
    await indexes.index(KEYED, keys_of_batch)
    assert await spans_of(indexes, OWN, b"nobody", 0, ALL) == []
    await check_spans(log, indexes, OWN)
    await log.close()


async def test_memory_is_given_back_when_all_is_settled_and_indexed(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill_keyed(log, 200)
    indexes = indexes_of(log)
    await indexes.index(KEYED, keys_of_batch)
    before = indexes.memory_bytes
    await settle(log)
    assert await spans_of(indexes, OWN, b"nobody", 0, ALL) == []  # without a file too
    await indexes.index(KEYED, keys_of_batch)

    assert 0 < indexes.memory_bytes < before / 2
    await check_spans(log, indexes, OWN)
    assert await spans_of(indexes, OWN, b"nobody", 0, ALL) == []
    await indexes.index(frozenset(), keys_of_batch)
    assert indexes.memory_bytes == 0
    await log.close()


async def test_what_is_beyond_the_memory_is_searched_as_a_whole(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill_keyed(log, 200)
    indexes = indexes_of(log, memory_bytes_max=2_000)
    await indexes.index(frozenset([OWN]), keys_of_batch)

    assert 2_000 <= indexes.memory_bytes < 4_000
    ((start, end),) = await spans_of(indexes, OWN, b"nobody", 0, ALL)
    assert 0 < start < 300
    assert end == 600
    await check_spans(log, indexes, OWN)
    await log.close()
