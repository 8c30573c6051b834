"""Batches and entries, as the broker hands them to a storage."""

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from gateway.model import CONTROL_MASK, HEADER_BYTES, TRANSACTIONAL_MASK
from gateway.storage import Entry, Target

_REST: Final = struct.Struct(">hiqqqhii")
_FRONT: Final = struct.Struct(">qiibI")


def make_batch(  # One argument per field that a test looks at.
    base_offset: int,
    count: int = 1,
    *,
    size_bytes: int = 100,
    epoch: int = 1,
    timestamp_unix_ms: int = 1_000,
) -> bytes:
    """Return a v2 batch of ``size_bytes`` bytes with an intact header and CRC."""
    filler = f"{base_offset}/{epoch}/{timestamp_unix_ms} ".encode() * (size_bytes // 3 + 1)
    rest = (
        _REST.pack(0, count - 1, timestamp_unix_ms, timestamp_unix_ms, -1, -1, -1, count)
        + filler[: size_bytes - HEADER_BYTES]
    )
    return _FRONT.pack(base_offset, len(rest) + 9, epoch, 2, crc32c(rest)) + rest


def make_marker(
    base_offset: int, *, is_abort: bool = False, epoch: int = 1, timestamp_unix_ms: int = 1_000
) -> bytes:
    """Return the control batch that ends a transaction of producer 7 (KIP-98)."""
    kind = 0 if is_abort else 1
    record = bytes((32, 0, 0, 0, 8, 0, 0, 0, kind, 12)) + bytes(7)
    times = timestamp_unix_ms, timestamp_unix_ms
    rest = _REST.pack(CONTROL_MASK | TRANSACTIONAL_MASK, 0, *times, 7, 0, -1, 1) + record
    return _FRONT.pack(base_offset, len(rest) + 9, epoch, 2, crc32c(rest)) + rest


def make_entry(  # As ``make_batch``, for one partition or more.
    target: tuple[int, int] | Sequence[tuple[int, int]],
    count: int = 1,
    *,
    size_bytes: int = 100,
    epoch: int = 1,
    timestamp_unix_ms: int = 1_000,
) -> Entry:
    """Return an entry whose batch is stamped for the first of its targets."""
    pairs = [target] if isinstance(target[0], int) else target
    targets = tuple(Target(*pair) for pair in pairs)  # type: ignore[misc]  # Told apart above.
    batch = make_batch(
        targets[0].base_offset,
        count,
        size_bytes=size_bytes,
        epoch=epoch,
        timestamp_unix_ms=timestamp_unix_ms,
    )
    return Entry(targets, batch, count, timestamp_unix_ms)
