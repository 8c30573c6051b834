"""Packed rows and parts come back as they were; anything else is ``Damaged``."""

import tracemalloc
from array import array
from collections.abc import Callable
from contextlib import suppress

import pytest
import zstandard
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from storage_adapters.formats import columns
from storage_adapters.formats.columns import COLUMNS_VERSION, VALUES_MAX
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.footer import NO_TIMESTAMP, ROW_STRIDE
from storage_adapters.formats.object_index import (
    PlainPart,
    pack_parts,
    pack_rows,
    unpack_parts,
    unpack_rows,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
OFFSET = st.integers(0, 1 << 62)
U32 = st.integers(0, (1 << 32) - 1)
MIB = 1 << 20


def regular_rows(count: int, *, partitions: int = 1, entry_bytes: int = 76) -> "array[int]":
    """Rows as of steady producers: records of much the same size, in the order of time."""
    rows = array("q")
    position = 64
    for partition in range(partitions):
        offset, timestamp = 7_000_000 * partition, 1_700_000_000_000
        for at in range(count // partitions):
            size, records = 16_000 + (at * 37) % 100, 16
            position += entry_bytes
            rows.extend((offset, timestamp, position + (size << 32), records + (3 << 32)))
            offset += records
            position += size
            timestamp += at % 3
    return rows


@st.composite
def sane_rows(draw: st.DrawFn) -> "array[int]":
    rows = array("q")
    offset = draw(OFFSET)
    position = 64
    for _ in range(draw(st.integers(0, 40))):
        size, count = draw(st.integers(61, 1 << 20)), draw(st.integers(1, 1_000))
        epoch, timestamp = draw(st.integers(-1, 9)), draw(st.integers(-1, 1 << 41))
        rows.extend((offset, timestamp, position + (size << 32), count + (epoch << 32)))
        offset += count + draw(st.sampled_from([0, 0, 5]))
        position += size + 76
    return rows


# --- Rows


@given(sane_rows())
def test_rows_round_trip(rows: "array[int]") -> None:
    assert unpack_rows(pack_rows(rows)) == rows


@given(st.lists(st.tuples(INT64, INT64, INT64, INT64), max_size=20))
@example([(0, 0, 0, 0), (0, NO_TIMESTAMP, 0, 0), (0, (1 << 63) - 1, 0, 0)])
@example([((1 << 63) - 1, 0, 0, 0xFFFF_FFFF), (-(1 << 63), 0, -1, -1)])
def test_any_rows_round_trip(rows: list[tuple[int, int, int, int]]) -> None:
    flat = array("q", [value for row in rows for value in row])

    assert unpack_rows(pack_rows(flat)) == flat


@pytest.mark.parametrize(("partitions", "bytes_max"), [(1, 2), (10, 3), (100, 6), (500, 8)])
def test_a_row_of_regular_traffic_takes_a_few_bytes(partitions: int, bytes_max: int) -> None:
    rows = regular_rows(500, partitions=partitions)

    assert len(pack_rows(rows)) <= bytes_max * 500


# --- Parts


@st.composite
def parts_lists(draw: st.DrawFn) -> list[PlainPart]:
    pairs = st.tuples(st.integers(-1, (1 << 31) - 1), OFFSET)
    extent = st.tuples(
        OFFSET,
        OFFSET,
        st.just(77),
        U32,
        U32,
        OFFSET,
        INT64,
        st.lists(pairs, max_size=3).map(tuple),
    )
    return draw(st.lists(st.tuples(U32, extent), max_size=10))


@given(parts_lists())
def test_parts_round_trip(parts: list[PlainPart]) -> None:
    assert unpack_parts(pack_parts(parts), 77) == parts


def test_a_part_takes_a_few_bytes() -> None:
    parts: list[PlainPart] = [
        (
            at,
            (at * 100, at * 100 + 48, 9, 3 * at, 3, 3_000, 1_700_000_000_000, ((2, at * 100),)),
        )
        for at in range(1_000)
    ]

    assert len(pack_parts(parts)) < 2_000


# --- Damage


def unpack_part_of_9(data: bytes) -> object:
    return unpack_parts(data, 9)


UNPACKERS: list[Callable[[bytes], object]] = [unpack_rows, unpack_part_of_9]


def sealed(rest: bytes) -> bytes:
    """Put a matching CRC before: what is wrong then is not a broken disk."""
    return crc32c(rest).to_bytes(4, "little") + rest


@pytest.mark.parametrize("unpack", UNPACKERS)
@given(data=st.binary(max_size=200), is_sealed=st.booleans())
def test_any_bytes_are_damaged_or_a_value(
    unpack: Callable[[bytes], object],
    data: bytes,
    is_sealed: bool,  # noqa: FBT001
) -> None:
    with suppress(Damaged, TooNew):
        unpack(sealed(data) if is_sealed else data)


@pytest.mark.parametrize("unpack", UNPACKERS)
@given(data=st.data())
def test_any_body_is_damaged_or_a_value(
    unpack: Callable[[bytes], object], data: st.DataObject
) -> None:
    """Sane headers with any numbers in them, and a body of the size that they promise."""
    kind, counts = (1, (6, 0)) if unpack is unpack_rows else (3, (8, 2))
    lengths = data.draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))
    widths = data.draw(
        st.lists(st.sampled_from([0, 1, 2, 4, 8]), min_size=sum(counts), max_size=sum(counts))
    )
    least = [data.draw(st.one_of(st.integers(-3, 3), INT64)) for _ in widths]
    of = [lengths[0]] * counts[0] + [lengths[1]] * counts[1]
    size = sum(length * width for length, width in zip(of, widths, strict=True))
    raw = data.draw(st.binary(min_size=size, max_size=size))
    head = columns._HEAD.pack(COLUMNS_VERSION, kind, sum(counts), *lengths)
    described = [columns._COLUMN.pack(*pair) for pair in zip(widths, least, strict=True)]
    body = zstandard.compress(raw) if raw else b""

    with suppress(Damaged):
        unpack(sealed(b"".join([head, *described, body])))


@pytest.mark.parametrize("unpack", UNPACKERS)
def test_a_flipped_bit_is_damage(unpack: Callable[[bytes], object]) -> None:
    packed = bytearray(pack_rows(regular_rows(20)))
    if unpack is unpack_part_of_9:
        packed = bytearray(pack_parts([(1, (2, 3, 9, 4, 5, 6, 7, ((8, 2),)))]))
    for at in range(len(packed)):
        packed[at] ^= 4
        with pytest.raises(Damaged):
            unpack(bytes(packed))
        packed[at] ^= 4
    unpack(bytes(packed))


def test_rows_are_not_taken_for_parts() -> None:
    with pytest.raises(Damaged, match="kind 1"):
        unpack_parts(pack_rows(array("q")), 9)
    with pytest.raises(Damaged, match="kind 3"):
        unpack_rows(pack_parts([]))


def test_a_later_format_is_refused() -> None:
    packed = pack_rows(regular_rows(20))

    with pytest.raises(TooNew, match="format 2"):
        unpack_rows(sealed(bytes([COLUMNS_VERSION + 1]) + packed[5:]))


def lying(width: int, length: int, body: bytes) -> bytes:
    head = columns._HEAD.pack(COLUMNS_VERSION, 1, 6, length, 0)
    return sealed(head + columns._COLUMN.pack(width, 0) * 6 + body)


@pytest.mark.parametrize(
    "data",
    [
        lying(8, VALUES_MAX, zstandard.compress(bytes(1_000))),
        lying(8, 10, zstandard.compress(bytes(64 * MIB))),
        lying(8, 10, zstandard.ZstdCompressor(write_content_size=False).compress(bytes(480))),
        lying(8, 10, zstandard.compress(bytes(480))[:-3]),
        lying(8, 10, b"no frame at all"),
        lying(0, VALUES_MAX + 1, b""),
        lying(0, (1 << 32) - 1, b""),
        lying(3, 10, zstandard.compress(bytes(180))),
    ],
    ids=["long", "bomb", "unsaid", "cut", "garbage", "many", "most", "odd width"],
)
def test_a_blob_that_lies_about_its_size_is_damaged_and_takes_no_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Damaged):
            unpack_rows(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < MIB


def test_more_rows_than_an_object_has_room_for_are_damage() -> None:
    packed = pack_rows(regular_rows(20))

    assert len(unpack_rows(packed, rows_max=20)) == 20 * ROW_STRIDE
    with pytest.raises(Damaged, match="20"):
        unpack_rows(packed, rows_max=19)


def test_more_rows_than_can_be_read_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "VALUES_MAX", 10)

    with pytest.raises(ValueError, match="at most 10"):
        pack_rows(array("q", bytes(8 * ROW_STRIDE * 11)))
