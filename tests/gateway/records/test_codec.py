"""The v2 batch codec against two others: aiokafka's compiled one and kafka-python's."""

import gzip
from contextlib import suppress
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka.record._crecords import default_records as compiled
from hypothesis import given
from hypothesis import strategies as st
from kafka.codec import snappy_encode
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from gateway.errors import CorruptBatch
from gateway.model import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    encode_varint,
    parse_batch_header,
    read_varint,
    stamp,
)
from gateway.records.codec import (
    I64_MAX,
    NO_HEADERS,
    NewRecord,
    check_crc,
    decode_batch,
    encode_batch,
    encode_headers,
    encode_runs,
    iter_records,
)
from gateway.records.record_run import RecordRun
from gateway.records.time_lookup import first_record_at

NOW = 1_700_000_000_000

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
BYTES = st.none() | st.binary(max_size=200)
RECORD = st.tuples(
    st.integers(0, 2**41), BYTES, BYTES, st.lists(st.tuples(TEXT, BYTES), max_size=3)
)
RECORDS = st.lists(RECORD, min_size=1, max_size=20)


def plain(records: Any) -> list[tuple[Any, ...]]:
    """Return the records of any codec in one form."""
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]


def expected(records: list[NewRecord], base_offset: int = 0) -> list[tuple[Any, ...]]:
    return [
        (base_offset + index, timestamp, key, value, list(headers))
        for index, (timestamp, key, value, headers) in enumerate(records)
    ]


def ours(batch: bytes | bytearray) -> list[tuple[Any, ...]]:
    return [
        (r.offset, r.timestamp_unix_ms, r.key, r.value, list(r.headers))
        for r in decode_batch(batch)
    ]


def built(records: list[NewRecord], compression: int = 0) -> bytearray:
    """A batch from kafka-python's builder."""
    builder = DefaultRecordBatchBuilder(2, compression, False, -1, -1, -1, 1 << 24)  # noqa: FBT003
    for index, (timestamp, key, value, headers) in enumerate(records):
        builder.append(index, timestamp, key, value, list(headers))
    return bytearray(builder.build())


def with_body(codec: int, body: bytes, record_count: int) -> bytes:
    """A batch whose records part is ``body`` as it is, with a right length and count."""
    batch = encode_batch([(NOW, b"", b"", ())], attributes=codec)[:HEADER_BYTES] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = record_count.to_bytes(4, "big")
    return bytes(batch)


@given(records=RECORDS)
def test_other_codecs_read_what_we_write(records: list[NewRecord]) -> None:
    batch = bytes(encode_batch(records))

    assert plain(compiled.DefaultRecordBatch(batch)) == expected(records)
    assert plain(DefaultRecordBatch(batch)) == expected(records)
    assert compiled.DefaultRecordBatch(batch).validate_crc()
    check_crc(batch, parse_batch_header(batch))


@given(records=RECORDS, base_offset=st.integers(0, 2**60))
def test_we_read_what_others_write(records: list[NewRecord], base_offset: int) -> None:
    batch = built(records)
    stamp(batch, base_offset, 7)

    assert ours(batch) == expected(records, base_offset)


def test_the_bytes_are_those_of_the_other_codec() -> None:
    records: list[NewRecord] = [
        (NOW, b"k", None, [("h", b"1"), ("h", None)]),
        (NOW + 300, None, b"", []),
    ]

    assert encode_batch(records, leader_epoch=0) == built(records)


def test_producer_fields_are_written() -> None:
    batch = encode_batch(
        [(NOW, None, b"v", ())] * 3,
        base_offset=50,
        leader_epoch=4,
        producer_id=9_000_000_000,
        producer_epoch=3,
        base_sequence=77,
    )

    header = parse_batch_header(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (50, 52, 4)
    assert (header.producer_id, header.producer_epoch) == (9_000_000_000, 3)
    assert (header.base_sequence, header.record_count) == (77, 3)


def test_no_records_are_no_batch() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_every_compression_is_read(codec: int) -> None:
    records: list[NewRecord] = [(NOW + i, b"key", b"value" * i, ()) for i in range(200)]

    assert ours(built(records, codec)) == expected(records)


class TestRuns:
    """Runs become the same bytes as their records one by one."""

    @given(
        runs=st.lists(
            st.tuples(
                BYTES,
                st.lists(BYTES, min_size=1, max_size=12)
                | st.tuples(st.binary(max_size=70), st.integers(1, 90)).map(
                    lambda t: [t[0]] * t[1]
                ),
                st.lists(st.tuples(TEXT, BYTES), max_size=3),
                st.integers(0, 2**41),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def test_they_are_what_the_other_codec_writes(self, runs: list[Any]) -> None:
        records: list[NewRecord] = [
            (at, key, value, headers) for key, values, headers, at in runs for value in values
        ]
        found = encode_runs(
            [
                RecordRun(key, values, encode_headers(headers), at)
                for key, values, headers, at in runs
            ],
            leader_epoch=0,
        )
        assert found == built(records)
        check_crc(found, parse_batch_header(found))

    @pytest.mark.parametrize("values", [[b"v"], [b"v", None], [b"v", b"w" * 3_000], [b""]])
    def test_offset_deltas_of_every_width_are_right(self, values: list[bytes | None]) -> None:
        many = RecordRun(None, values * 10_000, NO_HEADERS, NOW)
        batch = encode_runs([RecordRun(b"k", [b"first"], NO_HEADERS, NOW), many])

        records = decode_batch(batch)
        assert [record.offset for record in records] == list(range(len(values) * 10_000 + 1))
        assert [record.value for record in records[1:]] == many.values

    @given(values=st.lists(BYTES, min_size=1, max_size=20), key=BYTES)
    def test_a_size_is_at_least_what_the_records_take(
        self, values: list[bytes | None], key: bytes | None
    ) -> None:
        run = RecordRun(key, values, encode_headers([("h", b"v")]), NOW)

        assert len(encode_runs([run])) - HEADER_BYTES <= run.size_bytes
        pieces = [run.part(n, n + 1) for n in range(len(values))]
        assert sum(piece.size_bytes for piece in pieces) == run.size_bytes
        assert max(piece.size_bytes for piece in pieces) == run.largest_bytes

    def test_no_runs_are_no_batch(self) -> None:
        with pytest.raises(ValueError, match="at least one"):
            encode_runs([])


@given(number=st.integers(-(2**63), 2**63 - 1), before=st.binary(max_size=3))
def test_varints_come_back(number: int, before: bytes) -> None:
    data = before + encode_varint(number)

    assert read_varint(data, len(before)) == (number, len(data))


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_varint_of_more_than_64_bits_is_refused(number: int) -> None:
    with pytest.raises(OverflowError):
        encode_varint(number)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 11])
def test_a_varint_without_its_end_is_an_error(data: bytes) -> None:
    with pytest.raises(IndexError):
        read_varint(data, 0)


BODY = bytes(encode_batch([(NOW, None, b"x" * 50_000, ())])[HEADER_BYTES:])


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        pytest.param(2, bytes(cramjam.snappy.compress_raw(BODY)), id="snappy-raw"),
        pytest.param(2, bytes(snappy_encode(BODY)), id="snappy-xerial"),
        pytest.param(1, gzip.compress(BODY[:9]) + gzip.compress(BODY[9:]), id="gzip-members"),
        pytest.param(
            3, lz4.frame.compress(BODY[:9]) + lz4.frame.compress(BODY[9:]), id="lz4-frames"
        ),
        pytest.param(
            4, zstandard.compress(BODY[:9]) + zstandard.compress(BODY[9:]), id="zstd-frames"
        ),
    ],
)
class TestCompressedForms:
    """Compressed bodies: forms that are taken, and lengths that lie."""

    def test_is_read(self, codec: int, body: bytes) -> None:
        (record,) = decode_batch(with_body(codec, body, 1))
        assert record.value == b"x" * 50_000

    def test_bound_on_bytes_holds_exactly(self, codec: int, body: bytes) -> None:
        batch = with_body(codec, body, 1)

        assert len(decode_batch(batch, bytes_max=len(BODY))) == 1
        with pytest.raises(CorruptBatch, match="more than"):
            decode_batch(batch, bytes_max=len(BODY) - 1)

    def test_cut_short_is_corrupt(self, codec: int, body: bytes) -> None:
        with pytest.raises(CorruptBatch):
            decode_batch(with_body(codec, body[:-5], 1))

    def test_garbled_is_corrupt(self, codec: int, body: bytes) -> None:
        with pytest.raises(CorruptBatch):
            decode_batch(with_body(codec, b"\x37" * len(body), 1))


def test_unknown_compression_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="compression 5"):
        decode_batch(with_body(5, BODY, 1))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@given(body=st.binary(max_size=100))
def test_any_compressed_bytes_are_read_or_corrupt(codec: int, body: bytes) -> None:
    with suppress(CorruptBatch):
        decode_batch(with_body(codec, body, 1), bytes_max=100_000)


@given(body=st.binary(max_size=100), count=st.integers(0, 2**31 - 1))
def test_any_bytes_are_read_or_corrupt(body: bytes, count: int) -> None:
    with suppress(CorruptBatch):
        assert len(decode_batch(with_body(0, body, count))) == count


@given(records=RECORDS, data=st.data())
def test_flipped_bytes_are_read_or_corrupt(
    records: list[NewRecord], data: st.DataObject
) -> None:
    batch = encode_batch(records)
    index = data.draw(st.integers(ATTRIBUTES_AT, len(batch) - 1))
    batch[index] ^= data.draw(st.integers(1, 255))

    with pytest.raises(CorruptBatch):
        check_crc(batch, parse_batch_header(batch))
    with suppress(CorruptBatch):
        decode_batch(batch)
    with suppress(CorruptBatch):
        first_record_at(batch, NOW)


def test_more_records_than_the_bound_are_corrupt() -> None:
    batch = encode_batch([(NOW, None, b"", ())] * 5)

    assert len(decode_batch(batch, records_max=5)) == 5
    with pytest.raises(CorruptBatch, match="5 records"):
        decode_batch(batch, records_max=4)


def test_holes_of_compaction_are_read() -> None:
    batch = encode_batch([(NOW, b"k", b"v", ())])
    batch[23:27] = (9).to_bytes(4, "big")  # last offset delta: nine records are gone

    assert [record.offset for record in decode_batch(batch)] == [0]


def test_log_append_time_is_the_time_of_all_records() -> None:
    batch = encode_batch([(NOW, None, b"", ()), (NOW + 5, None, b"", ())], attributes=0x08)

    assert [record.timestamp_unix_ms for record in decode_batch(batch)] == [NOW + 5, NOW + 5]
    assert first_record_at(batch, NOW + 3) == (0, NOW + 5)


class TestFirstRecordAt:
    """The lookup behind ListOffsets by time."""

    @given(records=RECORDS, at=st.integers(0, 2**41))
    def test_it_is_the_first_at_or_after(self, records: list[NewRecord], at: int) -> None:
        batch = encode_batch(records, base_offset=1_000)
        first = next(
            ((1_000 + i, record[0]) for i, record in enumerate(records) if record[0] >= at),
            None,
        )

        assert first_record_at(batch, at) == first

    @pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
    def test_it_finds_the_edge_in_every_compression(self, codec: int) -> None:
        batch = built([(NOW + 10 * i, b"k", b"v" * 100, ()) for i in range(50)], codec)

        assert first_record_at(batch, NOW + 100) == (10, NOW + 100)
        assert first_record_at(batch, NOW + 101) == (11, NOW + 110)
        assert first_record_at(batch, NOW + 490) == (49, NOW + 490)
        assert first_record_at(batch, NOW + 491) is None

    def test_young_batches_are_not_decompressed(self) -> None:
        batch = with_body(4, b"not zstd", 1)

        assert first_record_at(batch, NOW) == (0, NOW)
        assert first_record_at(batch, NOW + 1) is None


def test_a_record_that_reaches_beyond_its_batch_is_not_yielded() -> None:
    batch = encode_batch([(NOW, None, b"value", [])])
    batch[HEADER_BYTES] += 2  # of a zigzag varint: one byte more than there is
    with pytest.raises(CorruptBatch):
        next(iter_records(batch))


def test_a_time_of_more_than_64_bits_is_the_latest_of_the_batch() -> None:
    batch = encode_batch([(NOW, None, b"a", ()), (NOW + 5, None, b"b", ())])
    batch[27:35] = I64_MAX.to_bytes(8, "big")  # the base: 5 more is too much

    assert [one.timestamp_unix_ms for one in decode_batch(batch)] == [I64_MAX, NOW + 5]
    batch[27:35] = (I64_MAX - 1).to_bytes(8, "big")
    batch[35:43] = I64_MAX.to_bytes(8, "big")  # the latest, as the header says
    assert first_record_at(batch, I64_MAX) == (1, I64_MAX)


def test_a_header_name_that_is_not_utf_8_costs_no_record() -> None:
    batch = encode_batch([(NOW, None, b"a", ()), (NOW, None, b"b", (("name", b"x"),))])
    batch[batch.index(b"name") + 3] = 0xE9

    found = decode_batch(batch)

    assert [one.value for one in found] == [b"a", b"b"]
    assert found[1].headers == (("nam\ufffd", b"x"),)


def test_records_with_the_same_headers_and_others_are_told_apart() -> None:
    same: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None)]
    other: list[tuple[str, bytes | None]] = [("a", b"2")]
    headers = [same, same, [], other, same, []]
    batch = encode_batch([(NOW, None, b"v", some) for some in headers])
    assert [list(record.headers) for record in decode_batch(batch)] == headers
