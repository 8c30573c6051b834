"""Bodies of messages, decompressed within a bound.

Bits 8 to 10 of the system flag name the compression of a body whose bit 0 is set: 0 and 3 zlib,
1 LZ4 (its frame format), 2 Zstandard.
"""

import zlib
from typing import Final

from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.wire import ResponseCode
from gateway.errors import CorruptBatch
from gateway.records import compression

COMPRESSED: Final = 0x1
_TYPE_SHIFT: Final = 8
_TYPE_MASK: Final = 0x7
_ZLIB_TYPES: Final = frozenset({0, 3})
_CODECS: Final = {1: compression.LZ4, 2: compression.ZSTD}


def plain_body(body: bytes, system_flag: int, *, bytes_max: int) -> bytes:
    """Return a body without its compression. Error: ``Refused`` with MESSAGE_ILLEGAL."""
    if system_flag & COMPRESSED:
        kind = system_flag >> _TYPE_SHIFT & _TYPE_MASK
        if kind in _ZLIB_TYPES:
            body = _inflate(body, bytes_max)
        elif kind in _CODECS:
            try:
                body = compression.decompress(_CODECS[kind], body, bytes_max=bytes_max)
            except CorruptBatch as error:
                raise _illegal(f"the body cannot be decompressed: {error}") from None
        else:
            raise _illegal(f"compression type {kind} is not known")
    if len(body) > bytes_max:
        raise _illegal(f"the message body size over max value, MAX: {bytes_max}")
    return body


def _inflate(body: bytes, bytes_max: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise _illegal(f"the body cannot be decompressed: {error}") from None
    if len(found) <= bytes_max and not stream.eof:
        raise _illegal("the body cannot be decompressed: it ends early")
    return found


def _illegal(remark: str) -> Refused:
    return Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
