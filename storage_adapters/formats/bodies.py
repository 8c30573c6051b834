"""Bodies of the entries that are not batches (docs/formats.md, section 4)."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from gateway.model import Buffer, PartitionIdentity, TopicName
from storage_adapters.formats.damage import Damaged

_INTRODUCTION: Final = struct.Struct("<IIqq16sHH")  # id, number, start, end, uuid, lengths
_LENGTHS: Final = struct.Struct("<HH")
_LENGTHS_AT: Final = 40
_START_END: Final = struct.Struct("<qq")
_START_AT: Final = 8
_UUID_AT: Final = 24
_BOUNDS: Final = struct.Struct("<Iqq")
_PARTITION_ID: Final = struct.Struct("<I")


class Introduction(NamedTuple):
    """Identity and bounds of a partition; a segment stores it before the partition's first batch.

    ``start`` and ``end`` are the partition's bounds at that moment, so that one segment is
    enough to tell where a partition continues when other segments have been removed.
    """

    identity: PartitionIdentity
    start: int
    end: int


class BoundsRow(NamedTuple):
    """New bounds of a partition: its log start offset, and one past its last offset."""

    partition_id: int
    start: int
    end: int


def encode_introduction(introduction: Introduction) -> bytes:
    """Return one partition's part of a PARTITION entry's body."""
    (partition_id, uuid, topic, number), start, end = introduction
    namespace, name = topic.namespace.encode(), topic.name.encode()
    lengths = len(namespace), len(name)
    fields = _INTRODUCTION.pack(partition_id, number, start, end, uuid.bytes, *lengths)
    return fields + namespace + name


def decode_introductions(body: Buffer) -> Iterator[Introduction]:
    """Yield the partitions that a PARTITION entry's body introduces. Errors: ``Damaged``."""
    at = 0
    while at < len(body):
        introduction, at = decode_introduction(body, at)
        yield introduction


def decode_introduction(body: Buffer, at: int) -> tuple[Introduction, int]:
    """Return the introduction at index ``at`` and the next one's. Errors: ``Damaged``."""
    try:
        partition_id, number, start, end, uuid, *lengths = _INTRODUCTION.unpack_from(body, at)
        names_at = at + _INTRODUCTION.size
        name_at = names_at + lengths[0]
        names_end = name_at + lengths[1]
        if names_end > len(body):
            raise Damaged("the names of a partition end too early")
        topic = TopicName(
            str(body[names_at:name_at], "utf-8"), str(body[name_at:names_end], "utf-8")
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise Damaged(f"a partition's introduction is garbled: {error}") from error
    identity = PartitionIdentity(partition_id, UUID(bytes=uuid), topic, number)
    return Introduction(identity, start, end), names_end


def introduction_end(body: Buffer, at: int) -> int:
    """Return the index at which the introduction at index ``at`` ends."""
    namespace_bytes: int
    name_bytes: int
    namespace_bytes, name_bytes = _LENGTHS.unpack_from(body, at + _LENGTHS_AT)
    return at + _INTRODUCTION.size + namespace_bytes + name_bytes


def with_bounds(introduction: bytes, start: int, end: int) -> bytes:
    """Return an encoded introduction with other bounds."""
    return introduction[:_START_AT] + _START_END.pack(start, end) + introduction[_UUID_AT:]


def encode_bounds(rows: Iterable[tuple[int, int, int]]) -> bytes:
    """Return the body of a BOUNDS entry."""
    return b"".join([_BOUNDS.pack(*row) for row in rows])


def decode_bounds(body: Buffer) -> list[BoundsRow]:
    """Return the rows of a BOUNDS entry. Errors: ``Damaged``."""
    if len(body) % _BOUNDS.size:
        raise Damaged(f"{len(body)} bytes are not a whole number of bounds")
    return [BoundsRow(*row) for row in _BOUNDS.iter_unpack(body)]


def encode_deletion(partition_ids: Sequence[int]) -> bytes:
    """Return the body of a DELETE entry."""
    return b"".join([_PARTITION_ID.pack(partition_id) for partition_id in partition_ids])


def decode_deletion(body: Buffer) -> list[int]:
    """Return the partition ids of a DELETE entry. Errors: ``Damaged``."""
    if len(body) % _PARTITION_ID.size:
        raise Damaged(f"{len(body)} bytes are not a whole number of partition ids")
    return [partition_id for (partition_id,) in _PARTITION_ID.iter_unpack(body)]
