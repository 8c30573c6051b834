"""Manifest of the settled segments in use (docs/formats.md, section 7).

One small file, replaced by a rename at each change. It alone decides which settled segments
and which log segments are in use.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from gateway.model import Buffer
from storage_adapters.formats.damage import Damaged, TooNew

MANIFEST_MAGIC: Final = b"HGMF"
MANIFEST_VERSION: Final = 1
SHARED: Final = 0xFFFF_FFFF  # the owner of a file with several partitions

_PREFIX: Final = struct.Struct("<4sI")
_VERSION: Final = struct.Struct("<HH")
_FIELDS: Final = struct.Struct("<HHI16sQQIIIIII")
_RECORD: Final = struct.Struct("<IIQIIII")
_DEAD: Final = struct.Struct("<I")


class FileRecord(NamedTuple):
    """A settled segment in use.

    ``owner``: the one partition in it, or ``SHARED``. ``trailer_crc``: that of the bytes of
    its trailer, so that another file of the same name is not taken for it. ``dead``: partitions
    whose batches in it do not count: they were rewritten elsewhere, or deleted.
    """

    number: int
    owner: int
    file_bytes: int
    partition_count: int
    trailer_crc: int
    dead: frozenset[int] = frozenset()


class Manifest(NamedTuple):
    """The state of settling. ``files`` are in order of age, oldest first.

    Log segments up to ``wal_upto`` are settled and do not count; ``next_sequence`` and
    ``incarnation`` are those after their last entry. ``directory``: the settled segment without
    batches that keeps bounds and identities of the partitions they mentioned, 0 when there is
    none; it is one of ``files``. No file has had the number ``next_number`` or a higher one.
    """

    data_uuid: UUID
    generation: int = 0
    next_sequence: int = 0
    wal_upto: int = 0
    incarnation: int = 0
    directory: int = 0
    next_number: int = 1
    files: tuple[FileRecord, ...] = ()


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode the whole file."""
    dead = [partition_id for record in manifest.files for partition_id in sorted(record.dead)]
    fields = _FIELDS.pack(
        MANIFEST_VERSION,
        0,
        len(manifest.files),
        manifest.data_uuid.bytes,
        manifest.generation,
        manifest.next_sequence,
        manifest.wal_upto,
        manifest.incarnation,
        manifest.directory,
        manifest.next_number,
        len(dead),
        0,
    )
    records = [_RECORD.pack(*record[:5], len(record.dead), 0) for record in manifest.files]
    body = b"".join([fields, *records, *map(_DEAD.pack, dead)])
    return _PREFIX.pack(MANIFEST_MAGIC, crc32c(body)) + body


def decode_manifest(data: Buffer) -> Manifest:
    """Decode the file. Errors: ``Damaged``, ``TooNew``."""
    if len(data) < _PREFIX.size + _FIELDS.size:
        raise Damaged(f"{len(data)} bytes are less than a manifest")
    magic, crc = _PREFIX.unpack_from(data)
    if magic != MANIFEST_MAGIC:
        raise Damaged(f"magic is {bytes(magic)!r}, not {MANIFEST_MAGIC!r}")
    body = bytes(data[_PREFIX.size :])
    if crc32c(body) != crc:
        raise Damaged("the CRC does not match")
    version, _ = _VERSION.unpack_from(body)
    if version > MANIFEST_VERSION:
        raise TooNew(f"manifest of version {version}; this is version {MANIFEST_VERSION}")
    (_, _, file_count, uuid, *numbers, dead_count, _) = _FIELDS.unpack_from(body)
    dead_at = _FIELDS.size + file_count * _RECORD.size
    if len(body) != dead_at + dead_count * _DEAD.size:
        raise Damaged(f"{len(body)} bytes, {file_count} files, {dead_count} dead partitions")
    dead = [partition_id for (partition_id,) in _DEAD.iter_unpack(body[dead_at:])]
    records = _RECORD.iter_unpack(body[_FIELDS.size : dead_at])
    return Manifest._make((UUID(bytes=uuid), *numbers, _records(records, dead)))


def _records(rows: Iterator[tuple[int, ...]], dead: list[int]) -> tuple[FileRecord, ...]:
    files, at = [], 0
    for *fields, dead_count, _ in rows:
        files.append(FileRecord._make((*fields, frozenset(dead[at : at + dead_count]))))
        at += dead_count
    return tuple(files)
