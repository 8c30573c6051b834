"""One lookup of many keys reads less and misses no record of them."""

from pathlib import Path

import pytest

from gateway.model import parse_batch_header
from gateway.records.codec import encode_batch
from gateway.records.keys import keys_of_batch
from gateway.storage import Entry, Target, WantedKeys
from gateway.testing.storage import append, read_all
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.key_indexes import KeyIndexes
from tests.storage_adapters.settling import opened, settle
from tests.storage_adapters.test_key_indexes import (
    ALL,
    KEYED,
    OWN,
    fill_keyed,
    index_files,
    indexes_of,
    spans_of,
)


def keys_beginning(prefix: bytes, *endings: bytes) -> WantedKeys:
    return WantedKeys(frozenset(), (prefix,), lambda key: key.endswith(endings))


async def indexed(data_dir: Path, count: int = 200) -> tuple[SegmentLog, KeyIndexes]:
    """Return a log of which most is settled and indexed, and nothing else is known."""
    log = await opened(data_dir)
    await fill_keyed(log, count)
    await settle(log)
    assert await indexes_of(log).index(KEYED, keys_of_batch) > 0
    return log, indexes_of(log)


async def batches_outside(
    log: SegmentLog, spans: list[tuple[int, int]], wanted: set[bytes]
) -> list[int]:
    """Return the batches with a wanted key that nobody would read."""
    return [
        parse_batch_header(batch).base_offset
        for batch in await read_all(log, OWN)
        if wanted & keys_of_batch(batch)
        and not any(
            start <= parse_batch_header(batch).base_offset < end for start, end in spans
        )
    ]


def data(spans: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans)


async def test_many_keys_are_one_question(tmp_path: Path) -> None:
    log, indexes = await indexed(tmp_path)
    wanted = {b"k%d" % n for n in (3, 4, 50, 120)} | {b"nobody"}

    spans = await spans_of(indexes, OWN, WantedKeys(frozenset(wanted)), 0, ALL)

    assert await batches_outside(log, spans, wanted) == []
    settled_end = log.settled_offset(OWN)
    assert [span for span in spans if span[1] <= settled_end] == [
        (9, 15),  # what lies side by side is read as one
        (150, 153),
        (360, 363),
    ]
    await log.close()


async def test_a_wildcard_is_matched_against_the_keys(tmp_path: Path) -> None:
    log, indexes = await indexed(tmp_path)

    spans = await spans_of(indexes, OWN, keys_beginning(b"k1", b"17", b"18"), 0, ALL)

    assert await batches_outside(log, spans, {b"k17", b"k18", b"k117", b"k118"}) == []
    settled_end = log.settled_offset(OWN)
    assert data([span for span in spans if span[1] <= settled_end]) == 4 * 3
    await log.close()


async def test_what_nearly_all_batches_hold_is_read_in_one_go(tmp_path: Path) -> None:
    log, indexes = await indexed(tmp_path)
    spans = await spans_of(indexes, OWN, WantedKeys(frozenset([b"all"])), 0, ALL)
    assert spans == [(0, log.bounds(OWN).end)]
    await log.close()


async def test_what_takes_longer_to_look_up_than_to_read_is_read(tmp_path: Path) -> None:
    log, indexes = await indexed(tmp_path)
    wanted = WantedKeys(frozenset(b"nobody-%d" % n for n in range(1_000)))
    spans = await spans_of(indexes, OWN, wanted, 0, ALL)
    assert spans == [(0, log.bounds(OWN).end)]
    await log.close()


async def test_an_answer_is_for_one_file(tmp_path: Path) -> None:
    log, indexes = await indexed(tmp_path)
    wanted = WantedKeys(frozenset([b"nobody"]))

    spans, end = await indexes.spans_with_keys(OWN, wanted, 0, ALL)

    assert spans == []
    assert 0 < end < log.bounds(OWN).end
    assert await indexes.spans_with_keys(OWN, wanted, 2, 8) == ([], 8)
    await log.close()


async def test_a_topic_that_a_header_names_is_found(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill_keyed(log, 50)
    at = log.bounds(OWN).end
    headers = [("other", b"1"), ("mqtt.topic", None), ("mqtt.topic", b"by/header")]
    records = [
        (1_000, b"key", b"mqtt.topic", ()),
        (1_000, b"key", bytes(15_000), headers),
        (1_000, None, None, [("mqtt.topic", b"x" * 200)]),
    ]
    batch = encode_batch(records, base_offset=at, leader_epoch=1)
    await append(log, Entry((Target(OWN, at),), batch, 3, 1_000))
    await fill_keyed(log, 150, first=50)
    await settle(log)
    indexes = indexes_of(log)
    await indexes.index(KEYED, keys_of_batch)
    assert log.settled_offset(OWN) > at + 3

    for topic in (b"by/header", b"x" * 200, b"key"):
        assert await spans_of(indexes, OWN, topic, 0, log.settled_offset(OWN)) == [(at, at + 3)]
    await log.close()


@pytest.mark.parametrize("is_settled", [True, False])
async def test_what_cannot_be_decoded_may_hold_anything(
    tmp_path: Path, *, is_settled: bool
) -> None:
    log = await opened(tmp_path)
    await fill_keyed(log, 10)
    at = log.bounds(OWN).end
    records = [(1_000, b"key", bytes(15_000), ())]
    batch = encode_batch(records, base_offset=at, leader_epoch=1, attributes=2)
    await append(log, Entry((Target(OWN, at),), batch, 1, 1_000))  # says snappy, is not
    await fill_keyed(log, 190, first=10)
    if is_settled:
        await settle(log)
    indexes = indexes_of(log)
    await indexes.index(KEYED, keys_of_batch)

    spans = await spans_of(indexes, OWN, b"nobody", 0, ALL)

    assert any(start <= at < end for start, end in spans)
    await log.close()


async def test_what_is_not_settled_is_known_by_key_and_not_by_wildcard(
    tmp_path: Path,
) -> None:
    log = await opened(tmp_path)
    await fill_keyed(log, 100)
    indexes = indexes_of(log)
    await indexes.index(KEYED, keys_of_batch)
    wanted = {b"k30", b"k31", b"nobody"} | {b"n%d" % n for n in range(100)}

    exact = await spans_of(indexes, OWN, WantedKeys(frozenset(wanted)), 0, ALL)
    wild = await spans_of(indexes, OWN, keys_beginning(b"k3", b"30"), 0, ALL)

    assert await batches_outside(log, exact, wanted) == []
    assert data(exact) < 150
    assert wild == [(0, 300)]
    await log.close()


async def test_after_a_start_the_files_are_asked(tmp_path: Path) -> None:
    log, _ = await indexed(tmp_path)
    assert index_files(log)
    await log.close()

    log = await opened(tmp_path)
    wanted = WantedKeys(frozenset([b"k100"]))
    spans, _ = await log.spans_with_keys(OWN, wanted, 0, ALL)

    assert spans == [(300, 303)]
    await log.close()
