"""The head of a compressed payload: what libraries write passes, what is not theirs does not."""

import gzip
import io
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import CorruptBatch
from gateway.model import HEADER_BYTES, parse_batch_header
from gateway.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from gateway.records.compression_frames import check_frame
from tests.support.batches import patched, sample_batch

ATTRIBUTES_AT = 21
HEAD = sample_batch(count=1)[:HEADER_BYTES]
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]


def check(codec: int, payload: bytes) -> None:
    batch = bytearray(HEAD + payload)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch = patched(batch, ATTRIBUTES_AT, ">h", codec)
    check_frame(memoryview(batch), parse_batch_header(batch))


def named_gzip(data: bytes) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile("name.txt", "wb", fileobj=out) as file:
        file.write(data)
    return out.getvalue()


def streamed_zstd(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return stream.compress(data) + stream.flush()


WRITERS = {
    "gzip": (GZIP, lambda data: zlib.compress(data, wbits=31)),
    "gzip with a name": (GZIP, named_gzip),
    "gzip stored": (GZIP, lambda data: zlib.compress(data, 0, wbits=31)),
    "snappy raw": (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy xerial": (SNAPPY, lambda data: compress(SNAPPY, data)),
    "lz4 plain": (LZ4, lz4.frame.compress),
    "lz4 linked": (LZ4, lambda data: lz4.frame.compress(data, block_linked=True, block_size=7)),
    "lz4 checked": (
        LZ4,
        lambda data: lz4.frame.compress(data, content_checksum=True, block_checksum=True),
    ),
    "lz4 of clients": (LZ4, lambda data: compress(LZ4, data)),
    "zstd": (ZSTD, lambda data: zstandard.ZstdCompressor().compress(data)),
    "zstd strong": (ZSTD, lambda data: zstandard.ZstdCompressor(level=19).compress(data)),
    "zstd streamed": (ZSTD, streamed_zstd),
    "zstd behind a frame that is passed over": (
        ZSTD,
        lambda data: b"\x51\x2a\x4d\x18\0\0\0\0" + zstandard.ZstdCompressor().compress(data),
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("size", [7, 300, 70_000, 5_000_000])
@pytest.mark.parametrize("fill", ["zeros", "noise"])
def test_what_libraries_write_passes(writer: str, size: int, fill: str) -> None:
    codec, write = WRITERS[writer]
    noise = b"".join(zlib.crc32(bytes([n % 251, n >> 8])).to_bytes(4) for n in range(16_384))
    data = bytes(size) if fill == "zeros" else (noise * (size // len(noise) + 1))[:size]
    check(codec, write(data))


@given(codec=st.sampled_from(CODECS), data=st.binary(min_size=7, max_size=5_000))
def test_any_content_passes(codec: int, data: bytes) -> None:
    check(codec, compress(codec, data))


@pytest.mark.parametrize("labelled", CODECS)
@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_with_another_label_is_refused(labelled: int, codec: int) -> None:
    payload = compress(codec, b"some content " * 50)
    if labelled == codec:
        check(labelled, payload)
        return
    with pytest.raises(CorruptBatch):
        check(labelled, payload)


@pytest.mark.parametrize("codec", CODECS)
def test_a_payload_that_is_cut_or_not_compressed_is_refused(codec: int) -> None:
    payload = compress(codec, b"some content " * 50)
    for size in (0, 1, 3, 7, 9):
        with pytest.raises(CorruptBatch):
            check(codec, payload[:size])
    with pytest.raises(CorruptBatch):
        check(codec, b"\xff\xff\xff\xff" + bytes(30))


@given(codec=st.sampled_from(CODECS), payload=st.binary(max_size=60))
def test_any_bytes_pass_or_are_corrupt(codec: int, payload: bytes) -> None:
    try:
        check(codec, payload)
    except CorruptBatch:
        return
    assert payload
