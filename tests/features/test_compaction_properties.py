"""Compaction: its map of offsets, and rounds over any log, against plain dicts."""

from itertools import pairwise
from typing import NamedTuple

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from features.compaction import (
    NOT_THERE,
    OffsetMap,
    bytes_for,
)
from gateway.errors import CorruptBatch
from gateway.model import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    parse_batch_header,
)
from gateway.records.codec import decode_batch, encode_batch
from gateway.records.compression import GZIP, NONE, ZSTD
from tests.features.cleaning import (
    clean,
    cleaner_of,
    log_of,
    packed,
    record,
    records_of,
)
from tests.support.batches import NOW_UNIX_MS, patched, sample_batch


def test_a_full_map_ends_the_round_before_the_batch() -> None:
    cleaner = cleaner_of(map_bytes=0)
    log = log_of(*(encode_batch([record(b"%d" % n, b"v")]) for n in range(100)))

    noted = [cleaner.note(batch) for batch in log]

    assert noted == [True] * 48 + [False] * 52
    assert cleaner.end_offset == 48


@given(
    st.lists(
        st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**62)), max_size=12),
        max_size=4,
    ),
    st.binary(max_size=3),
    st.integers(0, 20_000),
)
def test_the_map_is_a_dict(
    puts: list[list[tuple[bytes, int]]], other: bytes, dict_bytes: int
) -> None:
    """Also while it goes on from a dict to a table."""
    offsets, model = OffsetMap(0), dict[bytes, int]()
    offsets._dict_bytes_left = dict_bytes
    for pairs in puts:
        offsets.put_all([key for key, _ in pairs], [offset for _, offset in pairs])
        model.update(pairs)

    assert offsets.get_all([*model, other]) == [*model.values(), model.get(other, NOT_THERE)]
    assert sorted(offsets.offsets()) == sorted(model.values())
    assert (offsets.keys, offsets.room) == (len(model), 48 - len(model))


def test_a_map_that_outgrows_its_dict_is_a_table() -> None:
    offsets = OffsetMap(bytes_for(10_000))
    keys = [b"key-%d" % number for number in range(10_000)]
    for first in range(0, 10_000, 1_000):
        offsets.put_all(keys[first : first + 1_000], range(first, first + 1_000))

    assert offsets._table is not None
    assert not offsets._dict
    assert offsets.get_all(keys) == list(range(10_000))


def test_a_map_has_room_for_what_it_was_made_for() -> None:
    assert all(OffsetMap(bytes_for(keys)).room >= keys for keys in (0, 1, 63, 1000, 12_345))


class Drawn(NamedTuple):
    records: list[tuple[int, bytes, bytes | None, tuple[()]]]
    codec: int
    producer_id: int


drawn_batches = st.lists(
    st.builds(
        Drawn,
        st.lists(
            st.tuples(
                st.integers(NOW_UNIX_MS - 10_000, NOW_UNIX_MS + 10_000),
                st.sampled_from([b"", b"a", b"b", b"c", b"dd"]),
                st.none() | st.binary(max_size=4),
                st.just(()),
            ),
            min_size=1,
            max_size=6,
        ),
        st.sampled_from([NONE, GZIP, ZSTD]),
        st.sampled_from([-1, 3]),
    ),
    min_size=1,
    max_size=12,
)


@given(drawn_batches, st.data())
def test_rounds_keep_what_a_dict_keeps(drawn: list[Drawn], data: st.DataObject) -> None:
    """Rounds over growing prefixes: the latest of each key stays, as and where it was."""
    log = log_of(
        *(
            packed(
                encode_batch(
                    batch.records,
                    producer_id=batch.producer_id,
                    producer_epoch=0 if batch.producer_id >= 0 else -1,
                    base_sequence=0 if batch.producer_id >= 0 else -1,
                ),
                batch.codec,
            )
            for batch in drawn
        )
    )
    before = records_of(log)
    cleaned_end = 0
    for _ in range(data.draw(st.integers(1, 3))):
        dirty = [b for b in log if parse_batch_header(b).base_offset >= cleaned_end]
        noted = dirty[: data.draw(st.integers(0, len(dirty)))]
        last_of_producers = {
            header.producer_id: header.base_offset
            for header in map(parse_batch_header, log)
            if header.is_idempotent
        }
        cleaner = cleaner_of(last_of_producers=last_of_producers)
        log = clean(cleaner, noted, log, drops=data.draw(st.booleans()))
        cleaned_end = max(cleaned_end, cleaner.end_offset)

    latest = {r.key: r.offset for r in before if r.offset < cleaned_end}
    expected = [r for r in before if r.offset >= cleaned_end or latest[r.key] == r.offset]
    assert records_of(log) == expected
    headers = [parse_batch_header(batch) for batch in log]
    assert all(a.last_offset < b.base_offset for a, b in pairwise(headers))
    assert headers[-1].last_offset == before[-1].offset
    for batch, header in zip(log, headers, strict=True):
        assert crc32c(bytes(batch)[ATTRIBUTES_AT:]) == header.crc
    if any(batch.producer_id >= 0 for batch in drawn):
        assert any(header.is_idempotent for header in headers)


@given(st.binary(max_size=80), st.integers(-2, 5))
def test_garbage_is_never_more_than_garbage(records: bytes, count: int) -> None:
    batch = patched(sample_batch(count=1)[:HEADER_BYTES] + bytearray(records), 57, ">i", count)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    log = log_of(batch)
    cleaner = cleaner_of()

    kept = clean(cleaner, log, log)

    assert len(kept) == 1
    if cleaner.undecodable:
        assert kept == log
        return
    try:
        decoded = decode_batch(batch)
    except CorruptBatch:
        return  # its headers, which compaction does not look at
    latest = {r.key: r.offset for r in decoded}
    expected = [r for r in decoded if r.key is not None and latest[r.key] == r.offset]
    assert decode_batch(kept[0]) == expected
