"""Columns of batches against the record codec, record by record."""

import gzip
import struct
from itertools import accumulate
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import CorruptBatch
from gateway.model import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    TIMESTAMP_TYPE_MASK,
    Buffer,
)
from gateway.records.codec import encode_batch, iter_records
from pipeline.log.columns import Columns, decode_columns, named_header, protocols, read_batch

_BYTES = st.none() | st.binary(max_size=300)
_RECORD = st.tuples(
    st.integers(0, 2**40),
    _BYTES,
    _BYTES,
    st.lists(st.tuples(st.text(max_size=8), _BYTES), max_size=3).map(tuple),
)


def _decoded(batches: list[Buffer], bases: list[int]) -> Columns:
    stored = [read_batch(batch, base) for batch, base in zip(batches, bases, strict=True)]
    return decode_columns(
        [one for one in stored if one is not None],
        with_keys=True,
        with_values=True,
        with_headers=True,
    )


def _with_crc(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return batch


@given(st.lists(st.lists(_RECORD, min_size=1, max_size=12), min_size=1, max_size=4))
def test_columns_say_what_the_record_codec_says(runs: list[list[tuple[Any, ...]]]) -> None:
    bases = [0, *accumulate(len(run) for run in runs)][:-1]
    batches = [
        encode_batch(run, base_offset=base) for run, base in zip(runs, bases, strict=True)
    ]

    columns = _decoded(list(batches), bases)

    records = [record for batch in batches for record in iter_records(batch)]
    assert columns.offsets.tolist() == [record.offset for record in records]
    assert columns.timestamps_unix_ms.tolist() == [one.timestamp_unix_ms for one in records]
    assert columns.keys.to_pylist() == [record.key for record in records]
    assert columns.values.to_pylist() == [record.value for record in records]
    found = [
        [(pair["key"], pair["value"]) for pair in pairs]
        for pairs in columns.headers.to_pylist()
    ]
    assert found == [list(record.headers) for record in records]


@pytest.mark.parametrize("value_bytes", [5, 100, 9_000])
def test_records_of_one_length_are_found_across_growing_deltas(value_bytes: int) -> None:
    batch = encode_batch([(7, None, bytes([n % 251]) * value_bytes, ()) for n in range(9_000)])

    columns = _decoded([batch], [40])

    assert columns.offsets.tolist() == list(range(40, 9_040))
    assert columns.values.to_pylist()[8_999] == bytes([8_999 % 251]) * value_bytes


def test_a_compressed_batch_is_read() -> None:
    plain = encode_batch([(5, b"k", b"v" * 50, ())])
    packed = plain[:61] + gzip.compress(plain[61:])
    struct.pack_into(">i", packed, 8, len(packed) - 12)
    packed[22] |= 1  # gzip

    columns = _decoded([_with_crc(packed)], [3])

    assert columns.values.to_pylist() == [b"v" * 50]
    assert columns.offsets.tolist() == [3]


def test_the_time_of_the_append_counts_where_the_log_sets_it() -> None:
    batch = encode_batch([(5, None, b"a", ()), (9, None, b"b", ())])
    batch[22] |= TIMESTAMP_TYPE_MASK

    columns = _decoded([_with_crc(batch)], [0])

    assert columns.timestamps_unix_ms.tolist() == [9, 9]


def test_a_wrong_crc_is_corrupt() -> None:
    batch = encode_batch([(5, b"k", b"v", ())])
    batch[-1] ^= 1

    with pytest.raises(CorruptBatch):
        read_batch(batch, 0)


@given(st.integers(61, 120), st.integers(0, 255))
def test_bytes_that_lie_are_refused_or_decoded_but_never_crash(at: int, byte: int) -> None:
    batch = encode_batch([(5, b"key", b"value" * 9, (("h", b"x"),)), (6, None, b"w", ())])
    batch[min(at, len(batch) - 1)] = byte

    try:
        columns = _decoded([_with_crc(batch)], [0])
    except CorruptBatch:
        return
    assert len(columns.offsets) == 2


def test_lengths_that_differ_in_their_second_byte_only_are_no_stretch() -> None:
    values = [b"v" * 100] * 20 + [b"v" * 164] * 20 + [b"v" * 100]
    batch = encode_batch([(0, None, value, ()) for value in values])

    assert _decoded([batch], [0]).values.to_pylist() == values


@pytest.mark.parametrize("count", [1, 20])
def test_a_negative_length_is_refused_though_the_next_record_is_where_it_should_be(
    count: int,
) -> None:
    batch = encode_batch([(0, None, b"value", ())] * count)
    batch[HEADER_BYTES] |= 1  # zigzag: the sign

    with pytest.raises(CorruptBatch, match="at offset 0"):
        _decoded([_with_crc(batch)], [0])


@pytest.mark.parametrize("place", [0, 19])
def test_the_batch_that_does_not_hold_its_fields_is_named(place: int) -> None:
    batches = [encode_batch([(0, None, b"value", ())] * 20) for _ in range(3)]
    record_bytes = (len(batches[1]) - HEADER_BYTES) // 20
    batches[1][HEADER_BYTES + (place + 1) * record_bytes - 1] = 2  # a header that is not there
    _with_crc(batches[1])

    with pytest.raises(CorruptBatch, match="at offset 20"):
        _decoded(list(batches), [0, 20, 40])


def test_a_named_header_is_the_first_of_its_name_as_text() -> None:
    rows = [
        (("a", b"1"), ("b", b"2"), ("a", b"3")),
        (),
        (("b", None),),
        (("a", b"\xff"),),
    ]
    batch = encode_batch([(5, None, b"v", headers) for headers in rows])

    headers = _decoded([batch], [0]).headers

    assert named_header(headers, "a").to_pylist() == ["1", None, None, None]
    assert named_header(headers, "b").to_pylist() == ["2", None, None, None]


def test_the_first_telling_header_names_the_protocol() -> None:
    runs: list[list[tuple[str, bytes | None]]] = [
        [("trace", b"1"), ("mqtt.topic", b"a/b"), ("sqs.types", b"{}")],
        [],
        [("sqs.sender", b"me")],
        [("trace", b"2")],
        [("amqp.exchange", None)],
    ]
    batch = encode_batch([(7, None, b"v", tuple(headers)) for headers in runs])

    columns = _decoded([batch], [0])

    assert protocols(columns.headers).to_pylist() == ["mqtt", None, "sqs", None, "amqp"]


def test_a_batch_that_is_older_than_wanted_is_passed_over() -> None:
    batch = encode_batch([(5, None, b"v", ()), (9, None, b"v", ())])

    assert read_batch(batch, 0, from_unix_ms=10) is None
    assert read_batch(batch, 0, from_unix_ms=9) is not None
