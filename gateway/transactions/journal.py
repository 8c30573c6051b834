"""Stored form of transactional ids, in the internal stream ``__transactions``.

Integers are big-endian, texts UTF-8 behind their length (u32).

    id            length of the namespace u32, length of the name u32, namespace, name
    id key        0x01, id
    id value      version u8 = 0, state u8, version of the protocol u8, producer id i64, epoch i16,
                  last epoch i16, previous producer id i64, timeout i32 (ms), start i64, last change
                  i64 (unix ms, -1: none), group count u32, per group: namespace, name (texts), then
                  the first 256 partitions: topic uuid (16 bytes), partition number u32
    chunk key     0x02, number u32 from 1 on, id
    chunk value   256 further partitions, or fewer in the last chunk

A partition that is added rewrites one chunk; the end of the transaction removes them all.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from features.transactions import GroupRef, PartitionRef, State, Transaction
from gateway.errors import CorruptBatch
from gateway.groups.cursor_keys import group_key, parse_group_key
from gateway.groups.fields import U32, FieldReader, encode_text
from gateway.groups.model import GroupName
from gateway.streams import Item

CHUNK_PARTITIONS: Final = 256

_ID_KEY: Final = b"\x01"
_CHUNK_KEY: Final = b"\x02"
_VERSION: Final = 0
_HEAD: Final = struct.Struct(">BBBqhhqiqq")
_PARTITION: Final = struct.Struct(">16sI")


class TransactionalId(NamedTuple):
    """Name of a producer that keeps it over its restarts."""

    namespace: str
    name: str


def id_of_key(key: bytes) -> TransactionalId:
    """Return the id that a key of the stream is of."""
    start = 1 if key.startswith(_ID_KEY) else 1 + U32.size
    return TransactionalId(*parse_group_key(key, start)[0])


def changed_items(
    name: TransactionalId, before: Transaction | None, value: Transaction | None
) -> list[Item]:
    """Return what is to be stored when a value follows another one; None removes the id."""
    known = group_key(GroupName(*name))
    partitions = () if value is None else value.partitions
    old = () if before is None else before.partitions
    items: list[Item] = [(_ID_KEY + known, None if value is None else _encode(value))]
    count = max(_chunk_count(partitions), _chunk_count(old))
    for number in range(1, count):
        part = _chunk(partitions, number)
        if part != _chunk(old, number):
            key = _CHUNK_KEY + U32.pack(number) + known
            items.append((key, _encode_partitions(part) if part else None))
    return items


def decode_items(
    items: list[tuple[bytes, bytes]],
) -> Iterator[tuple[TransactionalId, Transaction]]:
    """Yield the ids of some stored items, one at a time. Error: ``CorruptBatch``."""
    heads: dict[TransactionalId, bytes] = {}
    chunks: dict[TransactionalId, dict[int, bytes]] = {}
    for key, value in items:
        name = id_of_key(key)
        if key.startswith(_ID_KEY):
            heads[name] = value
        else:
            (number,) = U32.unpack_from(key, 1)
            chunks.setdefault(name, {})[number] = value
    for name, value in heads.items():
        further = chunks.get(name, {})
        yield name, _decode(value, [further[number] for number in sorted(further)])


def _chunk_count(partitions: tuple[PartitionRef, ...]) -> int:
    return -(-len(partitions) // CHUNK_PARTITIONS)


def _chunk(partitions: tuple[PartitionRef, ...], number: int) -> tuple[PartitionRef, ...]:
    start = number * CHUNK_PARTITIONS
    return partitions[start : start + CHUNK_PARTITIONS]


def _encode_partitions(partitions: tuple[PartitionRef, ...]) -> bytes:
    return b"".join([_PARTITION.pack(uuid.bytes, number) for uuid, number in partitions])


def _encode(value: Transaction) -> bytes:
    parts = [
        _HEAD.pack(
            _VERSION,
            value.state,
            value.version,
            value.producer_id,
            value.epoch,
            value.last_epoch,
            value.previous_producer_id,
            value.timeout_ms,
            value.started_unix_ms,
            value.updated_unix_ms,
        ),
        U32.pack(len(value.groups)),
    ]
    for group in value.groups:
        parts += map(encode_text, group)
    parts.append(_encode_partitions(_chunk(value.partitions, 0)))
    return b"".join(parts)


def _decode(data: bytes, further: list[bytes]) -> Transaction:
    reader = FieldReader(data)
    try:
        version, state, protocol, producer_id, epoch, last_epoch, previous_id, *times = (
            reader.unpack(_HEAD)
        )
        if version != _VERSION:
            raise CorruptBatch(f"a transactional id is stored in version {version}")
        timeout_ms, started_unix_ms, updated_unix_ms = times
        (count,) = reader.unpack(U32)
        groups = [GroupRef(reader.text() or "", reader.text() or "") for _ in range(count)]
        refs = [
            PartitionRef(UUID(bytes=uuid), number)
            for part in (reader.rest(), *further)
            for uuid, number in _PARTITION.iter_unpack(part)
        ]
        return Transaction(
            producer_id,
            epoch,
            timeout_ms,
            state=State(state),
            last_epoch=last_epoch,
            previous_producer_id=previous_id,
            version=protocol,
            started_unix_ms=started_unix_ms,
            updated_unix_ms=updated_unix_ms,
            partitions=tuple(refs),
            groups=tuple(groups),
        )
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise CorruptBatch(f"a transactional id as it was stored: {error}") from None
