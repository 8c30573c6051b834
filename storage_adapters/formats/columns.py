"""Packed columns of whole numbers, as the index stores them (docs/formats.md, section 11).

A column is stored as its least value, and each value's distance from it in as few bytes
as the widest needs; a column of equal values needs none. The bytes are stored in planes (all
lowest bytes, then all second ones), which zstandard compresses well.
"""

import struct
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import zstandard
from crc32c import crc32c

from gateway.model import Buffer
from storage_adapters.formats.damage import Damaged, TooNew

COLUMNS_VERSION: Final = 1
VALUES_MAX: Final = 1 << 23  # of one column; a blob that declares more is damaged

Unpacked = tuple[int, list["array[int]"]]  # the kind, and its columns, each an array('q')

_CRC: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<BBHII")  # version, kind, column count, lengths
_COLUMN: Final = struct.Struct("<Bq")  # bytes of a value, least value
_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_LITTLE: Final = sys.byteorder == "little"


def pack_columns(
    kind: int, columns: Sequence[Sequence[int]], more: Sequence[Sequence[int]] = ()
) -> bytes:
    """Pack ``columns``, all of one length, and ``more``, all of another, into bytes.

    ``kind`` identifies the use. Errors: ``OverflowError`` for values that are not signed
    64-bit integers, ``ValueError`` above ``VALUES_MAX``.
    """
    lengths = len(columns[0]), len(more[0]) if more else 0
    if max(lengths) > VALUES_MAX:
        raise ValueError(f"{max(lengths)} values in a column; at most {VALUES_MAX}")
    described, planes = [], []
    for column in (*columns, *more):
        least, width, data = _pack_column(column)
        described.append(_COLUMN.pack(width, least))
        planes.append(data)
    raw = b"".join(planes)
    head = _HEAD.pack(COLUMNS_VERSION, kind, len(described), *lengths)
    body = zstandard.ZstdCompressor(level=3).compress(raw) if raw else b""
    rest = b"".join([head, *described, body])
    return _CRC.pack(crc32c(rest)) + rest


def unpack_columns(
    data: Buffer, counts: dict[int, tuple[int, int]], *, values_max: int = VALUES_MAX
) -> Unpacked:
    """Return the packed columns. ``counts``: the number of columns of either length, by kind.

    Errors: ``Damaged``, also for columns of more than ``values_max`` values; ``TooNew``.
    """
    rest = memoryview(data)[_CRC.size :]
    if len(rest) < _HEAD.size:
        raise Damaged(f"{len(data)} bytes are less than a header of packed columns")
    if _CRC.unpack_from(data)[0] != crc32c(rest):
        raise Damaged("the CRC of packed columns does not match")
    version, kind, count, *lengths = _HEAD.unpack_from(rest)
    if version > COLUMNS_VERSION:
        raise TooNew(f"packed columns of format {version}; this is format {COLUMNS_VERSION}")
    if kind not in counts or sum(counts[kind]) != count or max(lengths) > values_max:
        raise Damaged(f"packed columns of kind {kind}, {count} of lengths {lengths}")
    body_at = _HEAD.size + count * _COLUMN.size
    if len(rest) < body_at:
        raise Damaged("packed columns end before their descriptions do")
    described = list(_COLUMN.iter_unpack(rest[_HEAD.size : body_at]))
    of = [lengths[0]] * counts[kind][0] + [lengths[1]] * counts[kind][1]
    return kind, _unpack_all(of, described, rest[body_at:])


def _unpack_all(
    lengths: list[int], described: list[tuple[int, int]], body: memoryview
) -> list["array[int]"]:
    if any(width and width not in _CODES for width, _ in described):
        raise Damaged("a packed column has values of an odd width")
    sizes = [length * width for length, (width, _) in zip(lengths, described, strict=True)]
    raw = _decompress(body, sum(sizes))
    places = zip(accumulate(sizes, initial=0), lengths, described, strict=False)
    try:
        return [
            _unpack_column(raw, at, length, width, least)
            for at, length, (width, least) in places
        ]
    except OverflowError as error:
        raise Damaged("a value of a packed column is out of range") from error


def _decompress(body: memoryview, size: int) -> bytes:
    """Return ``size`` bytes; refuse a frame that does not declare exactly that size."""
    if not size:
        return b""
    try:
        if zstandard.frame_content_size(body) != size:
            raise Damaged(f"packed columns are not of {size} bytes")
        raw = zstandard.ZstdDecompressor().decompress(body, max_output_size=size)
    except zstandard.ZstdError as error:
        raise Damaged(f"packed columns do not decompress: {error}") from error
    if len(raw) != size:
        raise Damaged(f"packed columns of {len(raw)} bytes, not {size}")
    return raw


def _pack_column(values: Sequence[int]) -> tuple[int, int, bytes]:
    """Return (least value, bytes of a value, planes)."""
    if not values:
        return 0, 0, b""
    least = min(values)
    span = max(values) - least
    if not span:
        return least, 0, b""
    width = next((width for width in _CODES if span >> 8 * width == 0), 8)
    distances = array(_CODES[width], [value - least for value in values] if least else values)
    if not _LITTLE:
        distances.byteswap()
    data = distances.tobytes()
    return least, width, b"".join([data[plane::width] for plane in range(width)])


def _unpack_column(raw: bytes, at: int, length: int, width: int, least: int) -> "array[int]":
    if not width:
        return array("q", [least]) * length
    data = bytearray(length * width)
    for plane in range(width):
        data[plane::width] = raw[at + plane * length : at + (plane + 1) * length]
    distances = array(_CODES[width])
    distances.frombytes(data)
    if not _LITTLE:
        distances.byteswap()
    return array("q", map(least.__add__, distances) if least else distances)


assert all(array(code).itemsize == width for width, code in _CODES.items())
