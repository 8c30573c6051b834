"""Keys of a batch, found fast: the same as record by record, and the same errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.compaction import scan_keys
from features.compaction.record_slices import scan_records
from gateway.errors import CorruptBatch
from gateway.model import HEADER_BYTES, parse_batch_header
from gateway.records.codec import NewRecord, encode_batch

Seen = tuple[list[bytes | None], list[int], bool] | None


def slowly(batch: bytes) -> Seen:
    header = parse_batch_header(batch)
    try:
        records = scan_records(batch[HEADER_BYTES:], header)
    except CorruptBatch:
        return None
    keys = [key for *_, key, _ in records]
    offsets = [header.base_offset + record[4] for record in records]
    return keys, offsets, any(not has_value for *_, has_value in records)


def fast(batch: bytes) -> Seen:
    try:
        found = scan_keys(batch[HEADER_BYTES:], parse_batch_header(batch))
    except CorruptBatch:
        return None
    return found.keys, list(found.offsets), found.has_tombstones


def record(key: bytes | None, value_bytes: int | None, at_ms: int = 0) -> NewRecord:
    value = None if value_bytes is None else b"v" * value_bytes
    return (1_700_000_000_000 + at_ms, key, value, ())


# So that stretches of alike records are met, and every length of varint on either side.
runs = st.lists(
    st.tuples(
        st.sampled_from([None, 0, 1, 8, 63, 64, 200]),
        st.sampled_from([None, 0, 1, 50, 63, 64, 1_000, 8_200]),
        st.sampled_from([0, 40, 70, 9_000]),
        st.integers(1, 80),
    ),
    min_size=1,
    max_size=6,
)


def batch_of(drawn: list[tuple[int | None, int | None, int, int]]) -> bytes:
    records = [
        record(None if key is None else (b"%08d" % number * 25)[:key], value, at_ms)
        for key, value, at_ms, count in drawn
        for number in range(count)
    ]
    return bytes(encode_batch(records))


@given(runs)
def test_keys_are_those_of_the_records(
    drawn: list[tuple[int | None, int | None, int, int]],
) -> None:
    batch = batch_of(drawn)

    assert fast(batch) == slowly(batch) is not None


@given(runs, st.data())
def test_an_byte_that_is_wrong_is_seen_as_it_is_record_by_record(
    drawn: list[tuple[int | None, int | None, int, int]], data: st.DataObject
) -> None:
    batch = bytearray(batch_of(drawn))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))

    assert fast(bytes(batch)) == slowly(bytes(batch))


@given(st.binary(max_size=400), st.integers(1, 40))
def test_garbage_is_garbage(records: bytes, count: int) -> None:
    batch = bytearray(encode_batch([record(b"k", 1)] * count)[:HEADER_BYTES] + records)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")

    assert fast(bytes(batch)) == slowly(bytes(batch))


@pytest.mark.parametrize("count", [7, 8, 9, 63, 64, 65, 72, 129, 8_191, 8_193, 8_300])
def test_stretches_end_where_offset_deltas_grow(count: int) -> None:
    batch = bytes(encode_batch([record(b"%05d" % number, 3) for number in range(count)]))

    assert fast(batch) == ([b"%05d" % n for n in range(count)], list(range(count)), False)


def test_a_stretch_of_tombstones_is_told() -> None:
    batch = bytes(encode_batch([*[record(b"a", 3)] * 20, *[record(b"b", None)] * 20]))

    assert fast(batch) == ([*[b"a"] * 20, *[b"b"] * 20], list(range(40)), True)
