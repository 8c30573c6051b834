"""Check of the first bytes of a compressed payload, in about 1 us.

Nothing is decompressed and no library is loaded. It finds batches that are labelled wrongly,
garbled at their beginning or cut; what else is wrong is found by who decodes them.
"""

from struct import Struct
from typing import Final

from gateway.errors import CorruptBatch
from gateway.model import COMPRESSION_MASK, HEADER_BYTES, BatchHeader
from gateway.records.compression import GZIP, LZ4, SNAPPY, XERIAL_MAGIC

RECORD_BYTES_MIN: Final = 7  # length, attributes, 2 deltas, key and value length, header count
_HEAD_BYTES: Final = 32  # no codec's head is longer
_LE32: Final = Struct("<I")

_GZIP_HEAD: Final = b"\x1f\x8b\x08"  # magic, deflate
_GZIP_RESERVED: Final = 0xE0
_GZIP_BYTES_MIN: Final = 18
_GZIP_RATIO_MAX: Final = 1_032

_XERIAL_HEADER_BYTES: Final = 16
_XERIAL_BLOCK_AT: Final = 20  # behind the length of the first block
_SNAPPY_RATIO_MAX: Final = 22  # 64 bytes of 3
_SNAPPY_COPY_MASK: Final = 3

_LZ4_HEAD: Final = b"\x04\x22\x4d\x18"
_LZ4_VERSION: Final = 0x40
_LZ4_VERSION_MASK: Final = 0xC2  # and a bit that is reserved
_LZ4_SIZE_FLAG: Final = 0x08
_LZ4_DICTIONARY_FLAG: Final = 0x01
_LZ4_BLOCK_RESERVED: Final = 0x8F
_LZ4_STORED_FLAG: Final = 0x8000_0000

_ZSTD_HEAD: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"
_ZSTD_RESERVED: Final = 0x08
_ZSTD_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_ZSTD_SIZE_BYTES: Final = (0, 2, 4, 8)
_ZSTD_RLE: Final = 1
_ZSTD_NO_KIND: Final = 3


def check_frame(batch: bytearray | memoryview, header: BatchHeader) -> None:
    """Raise ``CorruptBatch`` unless a compressed payload begins as its codec requires."""
    head = bytes(batch[HEADER_BYTES : HEADER_BYTES + _HEAD_BYTES])
    size_bytes = header.size_bytes - HEADER_BYTES
    codec = header.attributes & COMPRESSION_MASK
    try:
        if codec == GZIP:
            (content_bytes,) = _LE32.unpack_from(batch, header.size_bytes - 4)
            fits = _is_gzip(head, size_bytes, content_bytes)
        elif codec == SNAPPY:
            fits = _is_snappy(head, size_bytes, header.record_count)
        else:
            fits = _is_lz4(head, size_bytes) if codec == LZ4 else _is_zstd(head, size_bytes)
    except IndexError:  # it ends within its head
        fits = False
    if not fits:
        raise CorruptBatch("the batch is not compressed as it says")


def _is_gzip(head: bytes, size_bytes: int, content_bytes: int) -> bool:
    return (
        head.startswith(_GZIP_HEAD)
        and size_bytes >= _GZIP_BYTES_MIN
        and not head[3] & _GZIP_RESERVED
        and content_bytes <= size_bytes * _GZIP_RATIO_MAX
    )


def _is_snappy(head: bytes, size_bytes: int, record_count: int) -> bool:
    if not head.startswith(XERIAL_MAGIC):
        return _is_snappy_block(head, 0, size_bytes, record_count * RECORD_BYTES_MIN)
    if size_bytes == _XERIAL_HEADER_BYTES:
        return True
    block_bytes = int.from_bytes(head[_XERIAL_HEADER_BYTES:_XERIAL_BLOCK_AT], "big")
    return _XERIAL_BLOCK_AT + block_bytes <= size_bytes and _is_snappy_block(
        head, _XERIAL_BLOCK_AT, block_bytes, 0
    )


def _is_snappy_block(head: bytes, at: int, block_bytes: int, content_bytes_min: int) -> bool:
    content_bytes = shift = 0
    for byte in head[at : at + 5]:
        content_bytes |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            is_literal = content_bytes == 0 or not head[at] & _SNAPPY_COPY_MASK
            fits = content_bytes_min <= content_bytes <= block_bytes * _SNAPPY_RATIO_MAX
            return is_literal and fits  # there is nothing to copy from at the beginning
    return False


def _is_lz4(head: bytes, size_bytes: int) -> bool:
    flags, block = head[4], head[5]
    if not head.startswith(_LZ4_HEAD) or flags & _LZ4_VERSION_MASK != _LZ4_VERSION:
        return False
    size_class = block >> 4
    if block & _LZ4_BLOCK_RESERVED or not 4 <= size_class <= 7:  # noqa: PLR2004 - 64 KB to 4 MB
        return False
    at = 7 + (8 if flags & _LZ4_SIZE_FLAG else 0) + (4 if flags & _LZ4_DICTIONARY_FLAG else 0)
    block_bytes = int.from_bytes(head[at : at + 4], "little") & ~_LZ4_STORED_FLAG
    return block_bytes <= 1 << (8 + 2 * size_class) and at + 4 + block_bytes <= size_bytes


def _is_zstd(head: bytes, size_bytes: int) -> bool:
    if not head.startswith(_ZSTD_HEAD):
        return head[1:4] == _ZSTD_SKIPPABLE
    flags = head[4]
    if flags & _ZSTD_RESERVED:
        return False
    is_single = flags >> 5 & 1
    at = 5 + (not is_single) + _ZSTD_DICTIONARY_BYTES[flags & 3]
    at += _ZSTD_SIZE_BYTES[flags >> 6] or is_single
    block = head[at] | head[at + 1] << 8 | head[at + 2] << 16
    kind, block_bytes = block >> 1 & 3, block >> 3
    if kind == _ZSTD_RLE:
        block_bytes = 1
    return kind != _ZSTD_NO_KIND and at + 3 + block_bytes <= size_bytes
