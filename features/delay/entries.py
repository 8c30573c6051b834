"""The values of records in the internal topic ``__delays``. Integers are big-endian.

    waiting  u8 = 1, due unix ms u64, number u64, topic uuid (16 bytes), partition u32,
             timestamp unix ms i64, the record's key, value and headers as in a v2 batch
    removed  u8 = 2, numbers u64 each
    purged   u8 = 3, topic uuid (16 bytes), number u64: all of the topic with lower numbers
    run      u8 = 4, as waiting up to the timestamp, which is the highest; number is that of the
             first message, the others follow; then all of them as a v2 batch, base offset 0
    ended    u8 = 5, numbers u64 each, with which runs begin: all of their messages are removed

A number is given once in the life of a data directory. The same entry may come again further
on (the stream is kept small so); the last one counts. Of a run some messages may be removed by
their numbers, as if each had come alone.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gateway.errors import CorruptBatch
from gateway.model import HEADER_BYTES, parse_batch_header

WAITING: Final = 1
REMOVED: Final = 2
PURGED: Final = 3
RUN: Final = 4
ENDED: Final = 5

_WAITING: Final = struct.Struct(">BQQ16sIq")
_DUE: Final = struct.Struct(">xQ8x20sq")  # the same, as far as it is needed at the end
_PURGED: Final = struct.Struct(">B16sQ")
_NUMBER_BYTES: Final = 8
_UUID_BYTES: Final = 16


# A message that waits: due unix ms, number, topic uuid, partition, timestamp unix ms, and its key,
# value and headers as a v2 batch has them. A plain tuple, as it is made once for each message.
Waiting = tuple[int, int, bytes, int, int, bytes]


class Ended(NamedTuple):
    """The runs that begin with these numbers are removed."""

    firsts: tuple[int, ...]


class Purged(NamedTuple):
    """Entry: the delayed messages of a topic below a number were purged."""

    topic_uuid: bytes
    below: int


def encode_waiting(  # noqa: PLR0913, PLR0917 - the fields in their order; per message
    due_unix_ms: int,
    number: int,
    topic_uuid: bytes,
    partition: int,
    timestamp_unix_ms: int,
    tail: bytes | bytearray,
    *,
    kind: int = WAITING,
) -> bytes:
    """Return the entry of a message that waits; or of a run, whose batch is its ``tail``."""
    return (
        _WAITING.pack(kind, due_unix_ms, number, topic_uuid, partition, timestamp_unix_ms)
        + tail
    )


def renumbered(value: bytes, number: int) -> bytes:
    """Return the entry of a message that waits, or of a run, with another (first) number."""
    at = 1 + _NUMBER_BYTES
    return value[:at] + number.to_bytes(_NUMBER_BYTES, "big") + value[at + _NUMBER_BYTES :]


def is_waiting(value: bytes) -> bool:
    """Whether an entry is a message that waits, or a run."""
    if len(value) > _WAITING.size and value[0] == WAITING:
        return True
    return len(value) > _WAITING.size + HEADER_BYTES and value[0] == RUN


def count_of(value: bytes) -> int:
    """Return how many messages an entry holds, which ``is_waiting``; 0: not as a run."""
    if value[0] != RUN:
        return 0
    return parse_batch_header(memoryview(value)[_WAITING.size :]).record_count


def parse_waiting(value: bytes) -> Waiting:
    """Return the message that an entry holds, which ``is_waiting``; or the run, of its first."""
    _, due, number, topic_uuid, partition, timestamp = _WAITING.unpack_from(value)
    return due, number, topic_uuid, partition, timestamp, value[_WAITING.size :]


def parse_many(
    values: Sequence[bytes],
) -> tuple[Iterable[int], Iterable[bytes], Iterable[int], Iterable[bytes]]:
    """Return columns of messages that wait: due time, destination, timestamp, record.

    The destination is topic uuid and partition as they stand there, the record (of a run: the
    batch) as ``Waiting``.
    """
    due_unix_ms, destinations, timestamps_unix_ms = zip(
        *map(_DUE.unpack_from, values), strict=True
    )
    start = _WAITING.size
    return due_unix_ms, destinations, timestamps_unix_ms, [value[start:] for value in values]


def parse_destination(destination: bytes) -> tuple[bytes, int]:
    """Return the topic uuid and the partition of a destination."""
    return destination[:_UUID_BYTES], int.from_bytes(destination[_UUID_BYTES:], "big")


def encode_removed(numbers: Sequence[int], *, kind: int = REMOVED) -> bytes:
    """Return the entry that takes messages out; of kind ``ENDED`` runs, by their firsts."""
    return struct.pack(f">B{len(numbers)}Q", kind, *numbers)


def encode_purged(topic_uuid: bytes, below: int) -> bytes:
    """Return the entry that takes all messages of a topic out that have a lower number."""
    return _PURGED.pack(PURGED, topic_uuid, below)


def decode_other(value: bytes) -> Purged | Ended | tuple[int, ...]:
    """Return what an entry says that is not of a message: a purge, or what is removed.

    Error: ``CorruptBatch``.
    """
    kind = value[0] if value else 0
    if kind in {REMOVED, ENDED} and len(value) % _NUMBER_BYTES == 1:
        count = len(value) // _NUMBER_BYTES
        numbers: tuple[int, ...] = struct.unpack_from(f">{count}Q", value, 1)
        return numbers if kind == REMOVED else Ended(numbers)
    if kind == PURGED and len(value) == _PURGED.size:
        return Purged._make(_PURGED.unpack(value)[1:])
    raise CorruptBatch(f"an entry of kind {kind} and {len(value)} bytes")
