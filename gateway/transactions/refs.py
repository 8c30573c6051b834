"""Partitions and groups of a transaction as bytes, for other nodes.

refs  partition count u32, per partition: topic uuid (16 bytes), number u32; group count u32,
      per group: namespace, name (texts)
"""

import struct
from collections.abc import Collection
from typing import Final
from uuid import UUID

from features.transactions import GroupRef, PartitionRef
from gateway.groups.fields import U32, FieldReader, encode_text

_PARTITION: Final = struct.Struct(">16sI")


def encode_refs(partitions: Collection[PartitionRef], groups: Collection[GroupRef]) -> bytes:
    """Return them as bytes."""
    parts = [U32.pack(len(partitions))]
    parts += [_PARTITION.pack(uuid.bytes, number) for uuid, number in partitions]
    parts.append(U32.pack(len(groups)))
    for group in groups:
        parts += map(encode_text, group)
    return b"".join(parts)


def read_refs(reader: FieldReader) -> tuple[tuple[PartitionRef, ...], tuple[GroupRef, ...]]:
    """Return the partitions and groups that follow in a reader. Error: ``struct.error``."""
    (count,) = reader.unpack(U32)
    partitions = []
    for _ in range(count):
        uuid, number = reader.unpack(_PARTITION)
        partitions.append(PartitionRef(UUID(bytes=uuid), number))
    (count,) = reader.unpack(U32)
    groups = [GroupRef(reader.text() or "", reader.text() or "") for _ in range(count)]
    return tuple(partitions), tuple(groups)
