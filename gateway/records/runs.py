"""Encoding of a run's records in a v2 batch, without a Python step per record.

What the records of a run have in common is encoded once; what differs is put between by joins
and slice assignments, which run at the speed of C. docs/adr/0005-coalescing-runs.md says what it
is worth. Lengths are bytes.
"""

from collections.abc import Sequence
from typing import Final

from gateway.model import encode_varint

SMALL_MAX: Final = 2_048  # lengths and deltas below it are looked up, not computed
SMALL: Final = tuple(encode_varint(number) for number in range(SMALL_MAX))
NULL: Final = encode_varint(-1)

_ONE_BYTE_END: Final = 1 << 6  # offset deltas below it take one byte
_TWO_BYTES_END: Final = 1 << 13

# The bytes of the varints of 0, 1, 2, ..., each place of a varint in a table of its own.
_DELTAS: Final = {
    1: (bytes(range(0, 0x80, 2)),),
    2: (
        bytes(range(0x80, 0x100, 2)) * (_TWO_BYTES_END // 64),
        b"".join(bytes((high,)) * 64 for high in range(_TWO_BYTES_END // 64)),
    ),
}


def varint(value: int) -> bytes:
    """Encode a varint as ``encode_varint``, five times faster for common values."""
    return SMALL[value] if 0 <= value < SMALL_MAX else encode_varint(value)


def varints(numbers: Sequence[int]) -> list[bytes]:
    """Return the varints of non-negative numbers."""
    return [
        SMALL[number] if number < SMALL_MAX else encode_varint(number) for number in numbers
    ]


def deltas(first: int, count: int) -> Sequence[bytes]:
    """Return the varints of ``count`` numbers from ``first`` on."""
    end = first + count
    return SMALL[first:end] if end <= SMALL_MAX else varints(range(first, end))


def nullable(data: bytes | None) -> bytes:
    """Return bytes with their length in front; null and empty differ."""
    return NULL if data is None else varint(len(data)) + data


def encode_records(  # noqa: PLR0917 - the fields of a record; called once per run
    values: Sequence[bytes | None],
    value_bytes: int,
    lead: bytes,
    key: bytes,
    headers: bytes,
    first_delta: int,
) -> list[bytes | bytearray]:
    """Return encoded records that differ in offset delta and value only, as parts to be joined.

    ``value_bytes`` is what every value has, or -1 when they differ or one is null; ``lead`` is
    what stands between a record's length and its offset delta; ``key`` is length and key,
    ``headers`` their count and all of them. Offset deltas count up from ``first_delta``.
    """
    parts: list[bytes | bytearray] = []
    start, count = 0, len(values)
    while start < count:
        delta = first_delta + start
        width = len(varint(delta))
        stop = min(count, (1 << (7 * width - 1)) - first_delta)
        some = values[start:stop] if stop - start < count else values
        if value_bytes >= 0 and width in _DELTAS:
            parts.append(_uniform(some, value_bytes, lead, key, headers, delta, width))
        else:
            parts += _mixed(some, lead, key, headers, delta, width)
        start = stop
    return parts


def _uniform(  # noqa: PLR0913, PLR0917 - as encode_records
    values: Sequence[bytes | None],
    value_bytes: int,
    lead: bytes,
    key: bytes,
    headers: bytes,
    first_delta: int,
    width: int,
) -> bytearray:
    """Join values of one size with the bytes between them, then fill in the deltas."""
    middle = key + varint(value_bytes)
    body_bytes = len(lead) + width + len(middle) + value_bytes + len(headers)
    size = varint(body_bytes)
    before_delta = size + lead
    before_value = before_delta + bytes(width) + middle
    pieces = [value or b"" for value in values] if not value_bytes else list(values)
    pieces[0] = before_value + (pieces[0] or b"")
    pieces[-1] = (pieces[-1] or b"") + headers
    block = bytearray(headers + before_value).join(pieces)  # type: ignore[arg-type]  # no nulls
    stride = len(size) + body_bytes
    for place, data in enumerate(_DELTAS[width], start=len(before_delta)):
        block[place::stride] = data[first_delta : first_delta + len(values)]
    return block


def _mixed(  # noqa: PLR0917 - as encode_records
    values: Sequence[bytes | None],
    lead: bytes,
    key: bytes,
    headers: bytes,
    first_delta: int,
    width: int,
) -> list[bytes]:
    """Insert sizes, deltas and values between the common bytes, one kind at a time."""
    count = len(values)
    present = [value or b"" for value in values]
    lengths = [
        NULL if value is None else SMALL[len(value)] if len(value) < SMALL_MAX
        else encode_varint(len(value))
        for value in values
    ]  # fmt: skip
    fixed_bytes = len(lead) + width + len(key) + len(headers)
    sizes = [
        fixed_bytes + len(length) + len(value)
        for length, value in zip(lengths, present, strict=True)
    ]
    parts = [b"", lead, b"", key, b"", b"", headers] * count
    parts[0::7] = varints(sizes)
    parts[2::7] = deltas(first_delta, count)
    parts[4::7] = lengths
    parts[5::7] = present
    return parts


def pieces_of(sizes: Sequence[int], *, records_max: int, bytes_max: int) -> list[slice]:
    """Return slices of records of these sizes: within the bounds, or of one record."""
    found: list[slice] = []
    start = total_bytes = 0
    for index, size_bytes in enumerate(sizes):
        if index - start == records_max or (
            index > start and total_bytes + size_bytes > bytes_max
        ):
            found.append(slice(start, index))
            start, total_bytes = index, 0
        total_bytes += size_bytes
    found.append(slice(start, len(sizes)))
    return found
