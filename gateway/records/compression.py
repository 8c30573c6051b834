"""Compression of record batches, with bounded decompression.

Bounds are on the bytes that come out, and on members (frames, blocks) in a row: a megabyte holds
50,000 empty ones. Input is walked by memoryview, never copied for each member.

The libraries are imported at first use: an idle gateway stores compressed batches as they came
and never needs them. Codec numbers are those of the v2 record batch's attributes (KIP-98).
"""

import zlib
from collections.abc import Callable
from typing import Final

from gateway.errors import CorruptBatch

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

MEMBERS_MAX: Final = (
    1_000  # gzip members, LZ4 and Zstandard frames of a batch; clients write one
)
XERIAL_BLOCKS_MAX: Final = 16_384  # snappy blocks of a batch; clients write 32 KiB in each

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16  # magic, version, lowest compatible version
_XERIAL_VERSIONS: Final = b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32_768
_BLOCK_LENGTH_BYTES: Final = 4
_GZIP_WINDOW_BITS: Final = 31  # 15 for the window, 16 for a gzip header instead of zlib's
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = (
    b"\x2a\x4d\x18"  # of a frame that is passed over; one byte is before it
)
_INPUT_BYTES: Final = 65_536  # input is given in such pieces: what is left of one is copied
_CHUNK_BYTES: Final = 262_144  # output is asked for in such pieces, so that memory follows use
_VARINT_BYTES_MAX: Final = 5
_LAST_BYTE_BELOW: Final = 0x80  # a varint goes on while its bytes are not below


def decompress(codec: int, data: bytes, *, bytes_max: int) -> bytes:
    """Return the decompressed ``data``, at most ``bytes_max`` bytes.

    Errors: ``CorruptBatch`` for an unknown codec, for bytes that are not of that codec, and for
    more output than ``bytes_max`` (``DecompressedTooLarge``).

    >>> decompress(GZIP, zlib.compress(b"aaaa", wbits=31), bytes_max=4)
    b'aaaa'
    """
    if codec == NONE:
        return data
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise CorruptBatch(f"compression {codec} is not known")
    return decoder(data, bytes_max)


def compress(codec: int, data: bytes) -> bytes:
    """Return ``data`` compressed by ``codec``, framed as by the Java client.

    >>> decompress(SNAPPY, compress(SNAPPY, b"aaaa"), bytes_max=4)
    b'aaaa'
    """
    return data if codec == NONE else _ENCODERS[codec](data)


class DecompressedTooLarge(CorruptBatch):
    """Decompressed size above the bound."""


def _check_bound(size_bytes: int, bytes_max: int) -> None:
    if size_bytes > bytes_max:
        raise DecompressedTooLarge(f"a batch decompresses to more than {bytes_max} bytes")


def _check_members(count: int) -> None:
    if count > MEMBERS_MAX:
        raise CorruptBatch(f"more than {MEMBERS_MAX} compressed members in a batch")


def _gunzip(data: bytes, bytes_max: int) -> bytes:
    """Gzip, several members in a row included (RFC 1952 section 2.2)."""
    pieces: list[bytes] = []
    view = memoryview(data)
    size_bytes = position = members = 0
    while position < len(view):
        members += 1
        _check_members(members)
        stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
        while not stream.eof:
            if position == len(view):
                raise CorruptBatch("gzip: the stream ends early")
            taken = view[position : position + _INPUT_BYTES]
            try:
                piece = stream.decompress(taken, bytes_max - size_bytes + 1)
            except zlib.error as error:
                raise CorruptBatch(f"gzip: {error}") from None
            position += len(taken) - len(stream.unused_data)
            size_bytes += len(piece)
            _check_bound(size_bytes, bytes_max)  # all of ``taken`` was used, or it is beyond
            pieces.append(piece)
    return b"".join(pieces)


def _unsnap(data: bytes, bytes_max: int) -> bytes:
    """Snappy: one raw block, or blocks in xerial's framing, which the Java client writes."""
    if not data.startswith(XERIAL_MAGIC):
        return _unsnap_block(data, bytes_max)
    pieces: list[bytes] = []
    view = memoryview(data)
    size_bytes = 0
    position = _XERIAL_HEADER_BYTES
    while position < len(view):
        start = position + _BLOCK_LENGTH_BYTES
        block_bytes = int.from_bytes(view[position:start], "big")
        position = start + block_bytes
        if position > len(view):
            raise CorruptBatch("snappy: a block is longer than the batch")
        if len(pieces) == XERIAL_BLOCKS_MAX:
            raise CorruptBatch(f"snappy: more than {XERIAL_BLOCKS_MAX} blocks in a batch")
        piece = _unsnap_block(view[start:position], bytes_max - size_bytes)
        size_bytes += len(piece)
        pieces.append(piece)
    return b"".join(pieces)


def _unsnap_block(block: bytes | memoryview, bytes_max: int) -> bytes:
    """One raw Snappy block; its first varint, the decompressed size, is checked before."""
    import cramjam  # Only when a batch needs it.

    size_bytes = 0
    for index, byte in enumerate(block[:_VARINT_BYTES_MAX]):
        size_bytes |= (byte & 0x7F) << (7 * index)
        if byte < _LAST_BYTE_BELOW:
            break
    else:
        raise CorruptBatch("snappy: no length in front of a block")
    _check_bound(size_bytes, bytes_max)
    try:
        return bytes(cramjam.snappy.decompress_raw(block, output_len=size_bytes))
    except (cramjam.DecompressionError, ValueError) as error:
        raise CorruptBatch(f"snappy: {error}") from None


def _unlz4(data: bytes, bytes_max: int) -> bytes:
    """LZ4 frames (LZ4 frame format 1.6), several in a row included."""
    import lz4.frame  # Only when a batch needs it.

    pieces: list[bytes] = []
    view = memoryview(data)
    size_bytes = position = members = 0
    while position < len(view):
        members += 1
        _check_members(members)
        stream = lz4.frame.LZ4FrameDecompressor()
        while not stream.eof:
            taken = view[position : position + _INPUT_BYTES] if stream.needs_input else b""
            if stream.needs_input and not taken:
                raise CorruptBatch("lz4: the frame ends early")
            position += len(taken)
            try:
                piece = stream.decompress(taken, max_length=_CHUNK_BYTES)
            except RuntimeError as error:
                raise CorruptBatch(f"lz4: {error}") from None
            size_bytes += len(piece)
            _check_bound(size_bytes, bytes_max)
            pieces.append(piece)
        position -= len(stream.unused_data or b"")
    return b"".join(pieces)


def _unzstd(data: bytes, bytes_max: int) -> bytes:
    """Zstandard frames (RFC 8878), several in a row included."""
    import zstandard  # Only when a batch needs it.

    _check_members(max(data.count(_ZSTD_MAGIC), data.count(_ZSTD_SKIPPABLE)))
    pieces: list[bytes] = []
    size_bytes = 0
    reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    try:
        while piece := reader.read(_CHUNK_BYTES):
            size_bytes += len(piece)
            _check_bound(size_bytes, bytes_max)
            pieces.append(piece)
    except zstandard.ZstdError as error:
        raise CorruptBatch(f"zstd: {error}") from None
    return b"".join(pieces)


_DECODERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnap,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}


def _gzip(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
    return stream.compress(data) + stream.flush()


def _snap(data: bytes) -> bytes:
    """Snappy in xerial's framing, which every client reads."""
    import cramjam  # Only when a batch needs it.

    pieces = [XERIAL_MAGIC, _XERIAL_VERSIONS]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (len(block).to_bytes(_BLOCK_LENGTH_BYTES, "big"), block)
    return b"".join(pieces)


def _lz4(data: bytes) -> bytes:
    """One LZ4 frame of independent blocks: the Java client reads no others."""
    import lz4.frame  # Only when a batch needs it.

    block = lz4.frame.BLOCKSIZE_MAX64KB
    return bytes(
        lz4.frame.compress(data, block_size=block, block_linked=False, store_size=False)
    )


def _zstd(data: bytes) -> bytes:
    import zstandard  # Only when a batch needs it.

    return zstandard.ZstdCompressor().compress(data)


_ENCODERS: Final[dict[int, Callable[[bytes], bytes]]] = {
    GZIP: _gzip,
    SNAPPY: _snap,
    LZ4: _lz4,
    ZSTD: _zstd,
}
