"""The keys of a batch in the order of its records: what noting needs, and nothing else.

Records whose lengths are all alike follow on each other in most batches: such a stretch is
checked column by column and its keys are cut out in one call, 0.1 us a record. Others are
walked by their lengths, 0.5 us. Whatever is rare (no key, a key above 63 bytes, holes) goes
through ``record_slices``, which also says what is wrong.
"""

from collections.abc import Sequence
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from features.compaction.record_slices import (
    check_count,
    encode_varint,
    garbled,
    scan_records,
    slice_record,
)
from gateway.model import BatchHeader

_MORE: Final = 0x80  # a varint goes on behind a byte from here on
_ENDS: Final = bytes(range(_MORE))
_GOES_ON: Final = bytes(range(_MORE, 256))
_ONE_BYTE_MAX: Final = 64  # offset deltas below it take one byte
_TWO_BYTES_MAX: Final = 8_192
_DELTAS: Final = [encode_varint(delta) for delta in range(_TWO_BYTES_MAX)]
_FIRST_BYTES: Final = bytes(delta[0] for delta in _DELTAS)
_LAST_BYTES: Final = bytes(delta[-1] for delta in _DELTAS)
_ODD_OR_LONG: Final = 0x4001  # a length that is negative, or of three bytes
_ODD_OR_MORE: Final = 0x81  # a length that is negative, or of two bytes
_STRETCH_MIN: Final = 8  # records; to look for a shorter stretch costs more than walking it
_WALK: Final = 64  # records walked before a stretch is looked for again


class Scanned(NamedTuple):
    """Keys and offsets of a batch's records; ``has_tombstones``: some have no value."""

    keys: list[bytes | None]
    offsets: Sequence[int]
    has_tombstones: bool

    @property
    def has_unkeyed(self) -> bool:
        """Some records have no key."""
        return None in self.keys


class _Found:
    """Keys found in a batch so far; every record's offset delta is its index."""

    __slots__ = ("has_tombstones", "keys")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.has_tombstones = False


def scan_keys(data: bytes, header: BatchHeader) -> Scanned:
    """Return the keys of a batch's decompressed records, and their offsets.

    Errors: ``CorruptBatch`` when they contradict the header or each other.
    """
    check_count(data, header)
    count = header.record_count
    if count != header.last_offset_delta + 1:
        return _scan_holes(data, header)
    found = _Found()
    try:
        position = _scan_dense(data, found, count)
    except (IndexError, ValueError) as error:
        raise garbled(header, str(error)) from None
    if position != len(data):
        raise garbled(header, f"{len(data) - position} bytes after the last record")
    offsets = range(header.base_offset, header.base_offset + count)
    return Scanned(found.keys, offsets, found.has_tombstones)


def _scan_holes(data: bytes, header: BatchHeader) -> Scanned:
    """As ``scan_keys``, for a batch that was compacted before, or contradicts itself."""
    records = scan_records(data, header)
    keys = [key for _, _, _, _, _, key, _ in records]
    offsets = [header.base_offset + delta for _, _, _, _, delta, _, _ in records]
    return Scanned(keys, offsets, not all(has_value for *_, has_value in records))


def _scan_dense(data: bytes, found: _Found, count: int) -> int:
    """Find ``count`` records whose offsets follow on each other; return their end."""
    keys = found.keys
    position = 0
    while (known := len(keys)) < count:
        if count - known >= _STRETCH_MIN:
            position = _take_stretch(data, position, found, count)
        if len(keys) - known < _STRETCH_MIN:
            position = _walk(data, position, found, min(count, len(keys) + _WALK))
    return position


def _take_stretch(data: bytes, start: int, found: _Found, count: int) -> int:
    """Add the keys of records that are alike in all lengths; return where they end.

    Errors: ``IndexError``.
    """
    keys = found.keys
    first = len(keys)
    _, rest, end, _, delta, key, has_value = slice_record(data, start)
    if delta != first or key is None or first >= _TWO_BYTES_MAX:
        return start
    size_bytes = end - start
    limit = _ONE_BYTE_MAX if first < _ONE_BYTE_MAX else _TWO_BYTES_MAX
    most = min(min(count, limit) - first, (len(data) - start) // size_bytes)
    stop = start + most * size_bytes
    timestamp_at = _behind_varint(data, start) + 1
    sizes_at = _behind_varint(data, rest)
    key_at = _behind_varint(data, sizes_at)
    value_size_at = key_at + len(key)
    value_at = _behind_varint(data, value_size_at)
    for at in chain(
        range(start, timestamp_at), range(sizes_at, key_at), range(value_size_at, value_at)
    ):
        column = data[at:stop:size_bytes]
        most = min(most, _leading(column, column[:1]))
    for at in range(timestamp_at, rest):
        allowed = _ENDS if at + 1 == rest else _GOES_ON
        most = min(most, _leading(data[at:stop:size_bytes], allowed))
    deltas = slice(first, first + most)
    if (
        most < _STRETCH_MIN
        or data[rest:stop:size_bytes][:most] != _FIRST_BYTES[deltas]
        or data[sizes_at - 1 : stop : size_bytes][:most] != _LAST_BYTES[deltas]
    ):
        return start
    before = key_at - start
    cut = Struct(f"{before}x{len(key)}s{size_bytes - before - len(key)}x")
    stop = start + most * size_bytes
    found.has_tombstones |= not has_value
    keys += chain.from_iterable(cut.iter_unpack(memoryview(data)[start:stop]))
    return stop


def _leading(column: bytes, allowed: bytes) -> int:
    """Return how many bytes of ``column`` come before the first that is not ``allowed``."""
    return len(column) - len(column.lstrip(allowed))


def _behind_varint(data: bytes, position: int) -> int:
    while data[position] >= _MORE:
        position += 1
    return position + 1


def _walk(data: bytes, position: int, found: _Found, stop: int) -> int:
    """Add the keys of records one by one; return their end. Errors: as ``_take_rare``."""
    keys = found.keys
    data_bytes = len(data)
    for due in _DELTAS[len(keys) : stop]:
        at = position + 1
        length = data[position]
        if length >= _MORE:
            length = length & 0x7F | data[at] << 7
            at += 1
        end = at + (length >> 1)
        at += 2 + (data[at + 1] >> 7)  # the attributes, one or two bytes of timestamp
        behind = at + len(due)
        if length & _ODD_OR_LONG or data[at - 1] >= _MORE or data[at:behind] != due:
            position = _take_rare(data, position, found)
            continue
        size = data[behind]
        at = behind + 1
        behind = at + (size >> 1)
        if size & _ODD_OR_MORE or behind >= data_bytes:
            position = _take_rare(data, position, found)
            continue
        value_size = data[behind]
        if value_size >= _MORE:
            behind += 1
            value_size = value_size & 0x7F | data[behind] << 7
        if value_size & _ODD_OR_LONG or not behind + 1 + (value_size >> 1) < end <= data_bytes:
            position = _take_rare(data, position, found)
            continue
        keys.append(data[at : at + (size >> 1)])
        position = end
    while len(keys) < stop:
        position = _take_rare(data, position, found)
    return position


def _take_rare(data: bytes, position: int, found: _Found) -> int:
    """Add the key of any record; return its end.

    Errors: ``IndexError``, and ``ValueError`` for an offset delta that is not due.
    """
    _, _, end, _, delta, key, has_value = slice_record(data, position)
    if delta != len(found.keys):
        raise ValueError(f"offset delta {delta}")
    found.keys.append(key)
    found.has_tombstones |= not has_value
    return end
