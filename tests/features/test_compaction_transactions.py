"""Compaction among transactions: what stays, what goes, and when their markers go."""

import random
from typing import NamedTuple

import pytest

from gateway.model import Buffer, parse_batch_header, stamp
from gateway.records.codec import check_crc, decode_batch
from gateway.records.markers import Marker, decode_marker, encode_marker
from tests.features.cleaning import DAY_MS, clean, cleaner_of
from tests.support.batches import NOW_UNIX_MS, sample_batch

Ranges = dict[int, list[tuple[int, int]]]


class Log(NamedTuple):
    """Batches, the aborted ranges by producer id, and each key's latest committed value."""

    batches: list[Buffer]
    aborted: Ranges
    latest: dict[bytes, bytes]


def data(producer_id: int, key: bytes, value: bytes) -> bytearray:
    return sample_batch(
        key=key,
        value=value,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=producer_id >= 0,
    )


def marker(producer_id: int, *, is_commit: bool) -> bytearray:
    return encode_marker(Marker(producer_id, 0, is_commit), NOW_UNIX_MS)


def log_with(*batches: bytearray) -> Log:
    """Return a log of batches in which no transaction is open."""
    found = Log([], {}, {})
    opened: dict[int, tuple[int, list[tuple[int, bytes, bytes]]]] = {}
    committed: list[tuple[int, bytes, bytes]] = []
    for offset, batch in enumerate(batches):
        stamp(batch, offset, 7)
        found.batches.append(batch)
        header = parse_batch_header(batch)
        producer_id = header.producer_id
        if header.is_control:
            if producer_id not in opened:
                continue
            first, records = opened.pop(producer_id)
            if decode_marker(batch).is_commit:
                committed += records
            else:
                found.aborted.setdefault(producer_id, []).append((first, offset))
            continue
        [one] = decode_batch(batch)
        entry = offset, one.key or b"", one.value or b""
        if producer_id < 0:
            committed.append(entry)
        else:
            opened.setdefault(producer_id, (offset, []))[1].append(entry)
    found.latest.update({key: value for _, key, value in sorted(committed)})
    return found


def rounds(log: Log, *days: float) -> list[Buffer]:
    """Compact all of it on some days, one pass after another; aborted ranges are remembered."""
    batches = log.batches
    for day in days:
        now_unix_ms = NOW_UNIX_MS + int(day * DAY_MS)
        cleaner = cleaner_of(now_unix_ms=now_unix_ms, aborted=log.aborted)
        batches = clean(cleaner, batches, batches)
    return batches


def values(batches: list[Buffer]) -> list[bytes | None]:
    return [one.value for batch in batches for one in decode_batch(batch)]


def markers(batches: list[Buffer]) -> list[int]:
    """Return the offsets of markers."""
    headers = map(parse_batch_header, batches)
    return [header.base_offset for header in headers if header.is_control]


TAIL = data(-1, b"tail", b"tail")


def test_committed_records_are_compacted_and_aborted_ones_supersede_nothing() -> None:
    log = log_with(
        data(-1, b"a", b"0"),
        data(1, b"a", b"1"),
        data(2, b"a", b"2"),
        marker(1, is_commit=True),
        marker(2, is_commit=False),
        bytearray(TAIL),
    )
    assert values(rounds(log, 0)) == [b"1", b"tail"]


def test_a_marker_stays_for_a_day_after_its_data() -> None:
    log = log_with(
        data(1, b"a", b"1"), marker(1, is_commit=True), data(-1, b"a", b"2"), bytearray(TAIL)
    )
    assert markers(rounds(log, 0)) == [1]  # the pass has met the data
    assert markers(rounds(log, 0, 3)) == [1]  # the day begins
    assert markers(rounds(log, 0, 3, 3.9)) == [1]
    assert markers(rounds(log, 0, 3, 4)) == []


def test_a_marker_of_an_aborted_transaction_stays_as_long_as_readers_are_told_of_it() -> None:
    log = log_with(
        data(1, b"a", b"1"),
        marker(1, is_commit=False),
        data(1, b"a", b"2"),
        marker(1, is_commit=True),
        bytearray(TAIL),
    )
    left = rounds(log, 0, 3, 9, 20)
    assert markers(left) == [1, 3]
    assert values(left) == [b"2", b"tail"]

    forgotten = log._replace(batches=left, aborted={})
    assert markers(rounds(forgotten, 21)) == [3]


def test_a_marker_stays_as_long_as_its_data() -> None:
    log = log_with(data(1, b"a", b"1"), marker(1, is_commit=True), bytearray(TAIL))
    assert markers(rounds(log, 0, 3, 9, 20)) == [1]


def test_a_marker_with_a_deadline_is_an_intact_marker() -> None:
    log = log_with(data(1, b"a", b"1"), marker(1, is_commit=False), bytearray(TAIL))
    [found] = [one for one in rounds(log, 0, 3) if parse_batch_header(one).is_control]
    header = parse_batch_header(found)
    check_crc(found, header)
    assert header.attributes & 0x40
    assert header.base_timestamp_unix_ms == NOW_UNIX_MS + 4 * DAY_MS
    assert decode_marker(found) == Marker(1, 0, is_commit=False)


@pytest.mark.parametrize("seed", range(40))
def test_each_key_keeps_its_latest_committed_value(seed: int) -> None:
    choose = random.Random(seed)
    batches: list[bytearray] = []
    opened: set[int] = set()
    for number in range(60):
        producer_id = choose.choice([-1, 1, 2, 3])
        if producer_id in opened and choose.random() < 0.4:
            opened.discard(producer_id)
            batches.append(marker(producer_id, is_commit=choose.random() < 0.5))
            continue
        if producer_id >= 0:
            opened.add(producer_id)
        batches.append(data(producer_id, b"%d" % choose.randrange(5), b"%d" % number))
    batches += [marker(producer_id, is_commit=False) for producer_id in sorted(opened)]
    log = log_with(*batches, bytearray(TAIL))

    days = sorted(choose.random() * 5 for _ in range(4))
    for count in range(1, 5):
        left = rounds(log, *days[:count])
        records = [one for batch in left for one in decode_batch(batch)]
        assert {one.key: one.value for one in records} == log.latest
        assert len(records) == len(log.latest)
        there = set(markers(left))
        for header in map(parse_batch_header, left):
            if header.is_transactional and not header.is_control and header.record_count:
                ends = [
                    offset
                    for offset, batch in enumerate(batches)
                    if offset > header.base_offset
                    and parse_batch_header(batch).is_control
                    and parse_batch_header(batch).producer_id == header.producer_id
                ]
                assert ends[0] in there
