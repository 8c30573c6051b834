"""The key index: what is put in is found, whatever keys, runs and blocks; damage is named."""

import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import CorruptBatch
from gateway.model import Buffer, decode_uvarint, encode_uvarint
from gateway.records.codec import encode_batch
from gateway.records.keys import keys_of_batch
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.key_index import (
    KEY_BYTES_MAX,
    KEY_INDEX_HEADER_BYTES,
    KeyIndex,
    KeyIndexHeader,
    decode_index_header,
    encode_index_header,
)
from storage_adapters.formats.key_index_builder import KeyIndexBuilder, build_key_index

KEYS = st.one_of(
    st.binary(max_size=6),
    st.text("ab", max_size=12).map(str.encode),
    st.integers(0, 3).map(lambda n: b"sensor/%d/" % n + b"x" * 300),
)
PARTITIONS = st.dictionaries(
    st.integers(0, 2**32 - 1), st.lists(st.sets(KEYS, max_size=8), max_size=40), max_size=4
)
Partitions = dict[int, list[set[bytes]]]


def built(partitions: Partitions, **bounds: int) -> KeyIndex:
    builder = KeyIndexBuilder(**bounds)
    for partition_id in sorted(partitions):
        for row, keys in enumerate(partitions[partition_id]):
            builder.add(partition_id, row, keys)
    return KeyIndex(memoryview(builder.encode(segment_number=7, segment_seed=9)))


def expected(batches: list[set[bytes]]) -> dict[bytes, list[int]]:
    keys = sorted(set().union(*batches)) if batches else []
    return {key: [row for row, held in enumerate(batches) if key in held] for key in keys}


@given(PARTITIONS, st.integers(1, 40))
def test_every_key_is_found_in_its_rows_and_no_other(
    partitions: Partitions, run_keys_max: int
) -> None:
    index = built(partitions, run_keys_max=run_keys_max)

    index.check()
    for partition_id, batches in partitions.items():
        wanted = expected(batches)
        assert dict(index.keys(partition_id)) == wanted
        assert {key: index.find(partition_id, key) for key in wanted} == wanted
        assert index.rows_covered(partition_id) == len(batches)
        for stranger in (b"", b"ab", b"sensor/", b"\xff" * 9):
            assert index.find(partition_id, stranger) == wanted.get(stranger, [])


@given(PARTITIONS, st.binary(max_size=3))
def test_a_prefix_gives_the_keys_that_begin_with_it_in_order(
    partitions: Partitions, prefix: bytes
) -> None:
    index = built(partitions, run_keys_max=5)
    for partition_id, batches in partitions.items():
        wanted = [key for key in expected(batches) if key.startswith(prefix)]
        assert [key for key, _ in index.keys(partition_id, prefix=prefix)] == wanted


@pytest.mark.heavy
def test_many_keys_over_many_runs_and_blocks() -> None:
    batches = [{b"user-%06d" % (row * 7 + n) for n in range(11)} for row in range(3_000)]
    index = built({5: batches}, run_keys_max=1_000)

    wanted = expected(batches)
    assert index.partitions()[0].key_count == len(wanted)
    assert all(index.find(5, key) == rows for key, rows in list(wanted.items())[::97])
    assert index.find(4, b"user-000001") == []


def test_a_long_key_is_listed_by_its_beginning() -> None:
    first, second = b"k" * KEY_BYTES_MAX + b"1", b"k" * KEY_BYTES_MAX + b"2"
    index = built({1: [{first, second}, {second}, {first}, {first, second}]})
    assert index.find(1, first) == index.find(1, second) == [0, 1, 2, 3]


def test_behind_the_bound_rows_are_not_covered() -> None:
    batches = [{b"key-%08d" % (row * 10 + n) for n in range(10)} for row in range(100)]
    index = built({1: batches, 2: batches}, run_keys_max=10, index_bytes_max=1_000)

    covered = [index.rows_covered(partition_id) for partition_id in (1, 2)]
    assert 0 < covered[0] < 100
    assert covered[1] < covered[0]
    assert dict(index.keys(1)) == expected(batches[: covered[0]])
    assert dict(index.keys(2)) == expected(batches[: covered[1]])


@pytest.mark.parametrize(
    ("first", "second"), [((2, 0), (1, 0)), ((1, 0), (1, 0)), ((1, 3), (1, 2))]
)
def test_batches_out_of_order_are_refused(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    builder = KeyIndexBuilder()
    builder.add(*first, [b"key"])
    with pytest.raises(ValueError, match="after"):
        builder.add(*second, [b"key"])


def test_a_batch_that_cannot_be_decoded_is_counted_and_listed_under_no_key() -> None:
    def keys_of(batch: Buffer) -> set[bytes]:
        if batch == b"bad":
            raise CorruptBatch
        return {bytes(batch)}

    data = build_key_index(
        [(1, 0, b"one"), (1, 1, b"bad"), (1, 2, b"one"), (3, 0, b"bad")],
        keys_of,
        segment_number=1,
        segment_seed=2,
    )

    index = KeyIndex(memoryview(data))
    assert dict(index.keys(1)) == {b"one": [0, 2]}
    assert index.header.undecodable_count == 2
    assert [row.undecodable_count for row in index.partitions()] == [1, 1]
    assert index.rows_covered(1) == 3


# Damage.

SAMPLE = {1: [{b"alpha", b"beta"}, {b"beta"}], 9: [{b"gamma-%d" % n} for n in range(40)]}


def sample() -> bytes:
    builder = KeyIndexBuilder()
    for partition_id, batches in SAMPLE.items():
        for row, keys in enumerate(batches):
            builder.add(partition_id, row, keys)
    return builder.encode(segment_number=7, segment_seed=9)


@given(st.integers(0, len(sample()) - 1), st.integers(1, 255))
def test_any_changed_byte_is_noticed_and_breaks_nothing(at: int, mask: int) -> None:
    data = bytearray(sample())
    data[at] ^= mask

    with pytest.raises((Damaged, TooNew)):
        KeyIndex(memoryview(data)).check()

    try:
        index = KeyIndex(memoryview(data))
    except (Damaged, TooNew):
        return
    for look in (
        lambda: [index.find(9, b"gamma-%d" % n) for n in range(41)],
        lambda: list(index.keys(9)),
        lambda: list(index.keys(1, prefix=b"b")),
    ):
        only_damaged(look)


def only_damaged(look: Callable[[], object]) -> None:
    with suppress(Damaged):
        look()


@given(st.integers(0, len(sample()) - 1))
def test_a_shorter_file_is_damaged(size: int) -> None:
    with pytest.raises(Damaged):
        KeyIndex(memoryview(sample())[:size])


def test_an_index_of_a_later_format_is_left_alone() -> None:
    header = bytearray(encode_index_header(KeyIndexHeader(0, 1, 2, 0, 0, 0, 0)))
    struct.pack_into("<H", header, 8, 3)
    with pytest.raises(Damaged):
        decode_index_header(header)  # the CRC comes first

    struct.pack_into("<I", header, 4, crc32c(bytes(header[8:KEY_INDEX_HEADER_BYTES])))
    with pytest.raises(TooNew, match="format 2"):
        decode_index_header(header)


def test_the_header_names_its_segment() -> None:
    header = KeyIndex(memoryview(sample())).header
    assert (header.segment_number, header.segment_seed) == (7, 9)


@given(st.integers(0, 2**35 - 1))
def test_numbers_come_back(value: int) -> None:
    data = encode_uvarint(value)
    assert decode_uvarint(data, 0) == (value, len(data))


# The keys of a batch.

RECORDS = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=30,
)


@given(RECORDS)
def test_the_keys_of_a_batch_are_those_of_its_records(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    assert keys_of_batch(encode_batch(records)) == {
        key for _, key, _, _ in records if key is not None
    }


@given(st.binary(max_size=300))
def test_garbage_in_a_batch_is_corrupt_or_has_some_keys(garbage: bytes) -> None:
    batch = encode_batch([(0, b"key", b"value", ())] * 3)
    batch[61:] = garbage
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    try:
        keys = keys_of_batch(batch)
    except CorruptBatch:
        return
    assert all(key in garbage for key in keys)


@pytest.mark.parametrize("length", [4, 60, -3])
def test_a_record_that_does_not_hold_its_key_is_corrupt(length: int) -> None:
    batch = encode_batch([(0, b"some key", b"", ())])
    assert batch[61] == 2 * 14  # the record's length, as a zigzag varint
    batch[61] = 2 * length if length >= 0 else -2 * length - 1
    with pytest.raises(CorruptBatch):
        keys_of_batch(batch)
