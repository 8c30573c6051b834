"""Compaction: what stays of a partition, and what rebuilt batches say to other codecs."""

from collections.abc import Callable

import pytest

from features.compaction import (
    DELETE_HORIZON_MASK,
)
from gateway.model import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    TIMESTAMP_TYPE_MASK,
    parse_batch_header,
)
from gateway.records.codec import decode_batch, encode_batch
from gateway.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from tests.features.cleaning import (
    DAY_MS,
    as_others_see,
    clean,
    cleaner_of,
    log_of,
    packed,
    record,
    records_of,
)
from tests.support.batches import NOW_UNIX_MS, patched

RECORD_BYTES = 16  # of one record with headers, a key and a value of a byte


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_rebuilt_batch_is_the_old_one_with_holes(codec: int) -> None:
    old = packed(
        encode_batch(
            [record(b"a", b"1", 5), record(b"b", b"x" * 300, 70_000), record(b"a", b"3", 9)],
            producer_id=77,
            producer_epoch=2,
            base_sequence=40,
        ),
        codec,
    )
    log = log_of(bytearray(old), encode_batch([record(b"c", b"4")]))
    expected = [row for row in as_others_see(log[0]) if row[0] != 0]

    rebuilt = clean(cleaner_of(), log, log)[0]

    assert as_others_see(rebuilt) == expected
    header, was = parse_batch_header(rebuilt), parse_batch_header(log[0])
    assert header._replace(length=0, crc=0) == was._replace(
        length=0,
        crc=0,
        record_count=2,
        base_timestamp_unix_ms=NOW_UNIX_MS + 70_000,  # of the first record that is left
    )
    assert header.size_bytes == len(rebuilt)


def test_a_batch_that_loses_nothing_is_not_made_anew() -> None:
    log = log_of(encode_batch([record(b"a", b"1"), record(b"b", b"2")]))

    assert clean(cleaner_of(), log, log)[0] is log[0]


def test_bytes_stay_where_the_first_record_stays() -> None:
    log = log_of(
        encode_batch([record(b"a", b"1"), record(b"b", b"2", 3), record(b"b", b"3", 9)])
    )
    first = encode_batch([record(b"a", b"1")])

    rebuilt = clean(cleaner_of(), log, log)[0]

    assert bytes(rebuilt[HEADER_BYTES : len(first)]) == bytes(first[HEADER_BYTES:])
    assert [(r.offset, r.timestamp_unix_ms - NOW_UNIX_MS) for r in decode_batch(rebuilt)] == [
        (0, 0),
        (2, 9),
    ]


def test_the_highest_timestamp_is_that_of_what_is_left() -> None:
    log = log_of(
        encode_batch([record(b"a", b"1", 50), record(b"b", b"2", 20)]),
        encode_batch([record(b"a", b"3", 1)]),
    )

    rebuilt = clean(cleaner_of(), log, log)[0]

    assert parse_batch_header(rebuilt).max_timestamp_unix_ms == NOW_UNIX_MS + 20


def test_append_time_stays_that_of_the_batch() -> None:
    old = encode_batch([record(b"a", b"1"), record(b"b", b"2")])
    old = patched(old, 35, ">q", NOW_UNIX_MS + 500)
    old = patched(old, ATTRIBUTES_AT, ">h", TIMESTAMP_TYPE_MASK)
    log = log_of(old, encode_batch([record(b"a", b"3")]))

    rebuilt = clean(cleaner_of(), log, log)[0]

    assert as_others_see(rebuilt) == [
        (1, NOW_UNIX_MS + 500, 1, b"b", b"2", [("h", b"1"), ("h", None)])
    ]
    assert parse_batch_header(rebuilt).max_timestamp_unix_ms == NOW_UNIX_MS + 500


# --- tombstones


def test_a_tombstone_gets_a_deadline_and_goes_after_it() -> None:
    log = log_of(
        encode_batch([record(b"a", b"1")]),
        encode_batch([record(b"a", None, -8), record(b"b", b"2", 5)]),
        encode_batch([record(b"c", b"3")]),
    )

    log = clean(cleaner_of(), log, log)
    header = parse_batch_header(log[0])
    assert header.attributes == DELETE_HORIZON_MASK
    assert header.base_timestamp_unix_ms == NOW_UNIX_MS + DAY_MS
    assert as_others_see(log[0]) == [
        (1, NOW_UNIX_MS - 8, 0, b"a", None, [("h", b"1"), ("h", None)]),
        (2, NOW_UNIX_MS + 5, 0, b"b", b"2", [("h", b"1"), ("h", None)]),
    ]

    again = clean(cleaner_of(now_unix_ms=NOW_UNIX_MS + DAY_MS - 1), log, log)
    assert again == log  # the deadline is not set anew

    last = clean(cleaner_of(now_unix_ms=NOW_UNIX_MS + DAY_MS), log, log)
    assert [(r.offset, r.timestamp_unix_ms, r.key) for r in records_of(last)] == [
        (2, NOW_UNIX_MS + 5, b"b"),
        (3, NOW_UNIX_MS, b"c"),
    ]
    assert parse_batch_header(last[0]).base_timestamp_unix_ms == NOW_UNIX_MS + DAY_MS


def test_a_superseded_tombstone_goes_at_once() -> None:
    log = log_of(encode_batch([record(b"a", None)]), encode_batch([record(b"a", b"1")]))

    assert [r.value for r in records_of(clean(cleaner_of(), log, log))] == [b"1"]


# --- what is not cleaned


def test_nothing_from_the_end_of_the_round_on_is_touched() -> None:
    log = log_of(*(encode_batch([record(b"a", b"%d" % n)]) for n in range(4)))
    cleaner = cleaner_of()

    kept = clean(cleaner, log[:2], log)

    assert cleaner.end_offset == 2
    assert [r.value for r in records_of(kept)] == [b"1", b"2", b"3"]
    assert kept[1] is log[2]
    assert cleaner.kept_bytes == len(kept[0])


def test_records_without_a_key_go() -> None:
    log = log_of(encode_batch([record(None, b"1"), record(b"a", b"2")]))
    cleaner = cleaner_of()

    kept = clean(cleaner, log, log)

    assert [r.value for r in records_of(kept)] == [b"2"]
    assert (cleaner.unkeyed_removed, cleaner.records_removed) == (1, 1)


@pytest.mark.parametrize(
    "harm",
    [
        lambda batch: patched(batch, ATTRIBUTES_AT, ">h", GZIP),
        lambda batch: patched(batch, 57, ">i", 9),  # more records than there are
        lambda batch: patched(batch, 57, ">i", 1),  # fewer
        lambda batch: patched(batch, 57, ">i", -1),
        lambda batch: patched(batch, HEADER_BYTES, ">B", 0xFF),
        lambda batch: patched(batch, 23, ">i", 0),  # the last offset delta
        lambda batch: patched(batch, HEADER_BYTES + RECORD_BYTES + 3, ">B", 0),
    ],
)
def test_what_cannot_be_decoded_stays_and_is_counted(
    harm: Callable[[bytearray], bytearray],
) -> None:
    good = encode_batch([record(b"a", b"1"), record(b"a", b"2")])
    assert len(good) == HEADER_BYTES + 2 * RECORD_BYTES
    bad = harm(good)
    log = log_of(bad, encode_batch([record(b"a", b"3")]))
    cleaner = cleaner_of()

    kept = clean(cleaner, log, log)

    assert kept == log
    assert cleaner.undecodable == 1


@pytest.mark.parametrize("base_unix_ms", [2**63 - 1, -(2**63), 0])
@pytest.mark.parametrize("deltas", [(0, -(2**63)), (2**63 - 1, 0), (-5, 5)])
def test_timestamps_about_no_time_are_left_alone(
    base_unix_ms: int, deltas: tuple[int, int]
) -> None:
    old = encode_batch(
        [(0, b"a", b"1", ()), *((delta, b"b%d" % delta, None, ()) for delta in deltas)]
    )
    log = log_of(patched(old, 27, ">q", base_unix_ms), encode_batch([record(b"a", b"2")]))
    cleaner = cleaner_of()

    kept = clean(cleaner, log, log)

    assert records_of(kept)[-3:] == records_of(log)[1:]
    assert cleaner.undecodable == (kept[0] is log[0])


def test_a_batch_whose_crc_is_wrong_supersedes_nothing_and_stays() -> None:
    bad = encode_batch([record(b"a", b"2")])
    log = log_of(encode_batch([record(b"a", b"1")]), bad, encode_batch([record(b"b", b"3")]))
    bad[-1] ^= 1

    cleaner = cleaner_of()
    assert all(cleaner.note(batch) for batch in log)
    cleaner.seal()

    assert not cleaner.drops(1, len(bad))
    assert cleaner.keep(log[0]) is log[0]


def test_what_later_batches_supersede_is_known_before_it_is_read() -> None:
    log = log_of(
        encode_batch([record(b"a", b"1"), record(b"b", b"1")]),
        encode_batch([record(b"a", b"2"), record(b"c", b"1")]),
        encode_batch([record(b"b", b"2")]),
        encode_batch([record(b"a", b"3")]),
    )
    cleaner = cleaner_of()
    assert all(cleaner.note(batch) for batch in log[:3])
    cleaner.seal()

    assert [cleaner.drops(offset, 100) for offset in (0, 2, 4, 5)] == [
        True,
        False,
        False,
        False,
    ]
    assert (cleaner.records_removed, cleaner.dropped_bytes) == (2, 100)


# --- producers


def idempotent(key: bytes, producer_id: int, sequence: int) -> bytearray:
    return encode_batch(
        [record(key, b"v")],
        producer_id=producer_id,
        producer_epoch=1,
        base_sequence=sequence,
    )


def test_the_last_batch_of_a_live_producer_stays_without_records() -> None:
    log = log_of(
        packed(idempotent(b"a", 5, 0), LZ4),
        packed(idempotent(b"a", 5, 1), LZ4),
        packed(idempotent(b"a", 6, 0), LZ4),
        encode_batch([record(b"a", b"latest")]),
    )

    kept = clean(cleaner_of(last_of_producers={5: 1, 6: 99}), log, log)

    assert [parse_batch_header(batch).base_offset for batch in kept] == [1, 3]
    empty = parse_batch_header(kept[0])
    assert (empty.record_count, empty.attributes, len(kept[0])) == (0, 0, HEADER_BYTES)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (5, 1, 1)
    assert (empty.last_offset, empty.leader_epoch) == (1, 7)
    assert (empty.base_timestamp_unix_ms, empty.max_timestamp_unix_ms) == (-1, -1)
    assert as_others_see(kept[0]) == decode_batch(kept[0]) == []

    assert clean(cleaner_of(last_of_producers={5: 1}), kept, kept) == kept
    assert len(clean(cleaner_of(), kept, kept)) == 1


def test_the_last_batch_of_a_round_stays_so_that_its_end_is_known() -> None:
    log = log_of(
        encode_batch([record(None, b"1")]),
        encode_batch([record(None, b"2"), record(None, b"3")]),
        encode_batch([record(b"a", b"4")]),
    )

    kept = clean(cleaner_of(), log[:2], log)

    assert [parse_batch_header(batch).last_offset for batch in kept] == [2, 3]
    assert parse_batch_header(kept[0]).record_count == 0
    assert len(clean(cleaner_of(), kept, kept)) == 1  # a later round has a later end
