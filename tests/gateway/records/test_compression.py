"""Decompression: members in a row, and the bounds on them."""

import gzip
import struct
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import CorruptBatch
from gateway.records.compression import (
    GZIP,
    LZ4,
    MEMBERS_MAX,
    SNAPPY,
    XERIAL_BLOCKS_MAX,
    ZSTD,
    compress,
    decompress,
)

BYTES_MAX = 1 << 26
SKIPPABLE = b"\x57\x2a\x4d\x18" + bytes(4)


def one_member(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == LZ4:
        return bytes(lz4.frame.compress(data))
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
@pytest.mark.parametrize("count", [1, 2, MEMBERS_MAX])
def test_members_in_a_row_are_read(codec: int, count: int) -> None:
    data = b"".join(one_member(codec, b"%d," % n) for n in range(count))
    assert decompress(codec, data, bytes_max=BYTES_MAX) == b"".join(
        b"%d," % n for n in range(count)
    )


@pytest.mark.parametrize(
    ("codec", "content"),  # the library does not read an empty frame of LZ4
    [(GZIP, b""), (GZIP, b"a"), (LZ4, b"a"), (ZSTD, b""), (ZSTD, b"a")],
)
def test_too_many_members_are_refused(codec: int, content: bytes) -> None:
    data = one_member(codec, content) * (MEMBERS_MAX + 1)
    with pytest.raises(CorruptBatch, match="members"):
        decompress(codec, data, bytes_max=BYTES_MAX)


def test_too_many_frames_that_are_passed_over_are_refused() -> None:
    data = SKIPPABLE * (MEMBERS_MAX + 1) + one_member(ZSTD, b"a")
    with pytest.raises(CorruptBatch, match="members"):
        decompress(ZSTD, data, bytes_max=BYTES_MAX)
    assert decompress(ZSTD, SKIPPABLE + one_member(ZSTD, b"a"), bytes_max=1) == b"a"


def test_too_many_snappy_blocks_are_refused() -> None:
    head = compress(SNAPPY, b"")[:16]
    empty = struct.pack(">i", 1) + b"\0"
    assert decompress(SNAPPY, head + empty * XERIAL_BLOCKS_MAX, bytes_max=0) == b""
    with pytest.raises(CorruptBatch, match="blocks"):
        decompress(SNAPPY, head + empty * (XERIAL_BLOCKS_MAX + 1), bytes_max=BYTES_MAX)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 3_000_000])
def test_the_bound_is_on_what_comes_out(codec: int, size: int) -> None:
    for content in (bytes(size), zlib.compress(bytes(size), 0)[:size].ljust(size, b"x")):
        data = compress(codec, content)
        assert decompress(codec, data, bytes_max=size) == content
        with pytest.raises(CorruptBatch):
            decompress(codec, data, bytes_max=size - 1)


@pytest.mark.parametrize("codec", [GZIP, LZ4])
def test_a_member_that_ends_early_is_refused(codec: int) -> None:
    data = one_member(codec, b"some content") * 2
    for cut in range(len(data) // 2 + 1, len(data)):
        with pytest.raises(CorruptBatch):
            decompress(codec, data[:cut], bytes_max=BYTES_MAX)


@given(
    codec=st.sampled_from([GZIP, LZ4, ZSTD]),
    contents=st.lists(st.binary(min_size=1, max_size=70_000), min_size=1, max_size=3),
)
def test_what_was_compressed_comes_back(codec: int, contents: list[bytes]) -> None:
    data = b"".join(one_member(codec, one) for one in contents)
    assert decompress(codec, data, bytes_max=BYTES_MAX) == b"".join(contents)
