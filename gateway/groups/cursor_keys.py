"""Keys of the internal stream ``__cursors``; see ``gateway.groups.cursors``."""

import struct
from typing import Final
from uuid import UUID

from gateway.groups.model import GroupName

CURSOR_KEY: Final = b"\x01"
GROUP_KEY: Final = b"\x02"

_WHERE: Final = struct.Struct(">16sI")
_LENGTHS: Final = struct.Struct(">II")


def group_key(group: GroupName) -> bytes:
    """Return a group as encoded in keys; the rest of a key has a fixed length."""
    namespace = group.namespace.encode()
    name = group.name.encode()
    return _LENGTHS.pack(len(namespace), len(name)) + namespace + name


def parse_group_key(key: bytes, start: int) -> tuple[GroupName, int]:
    """Return the group in a key from index ``start`` on, and the index after it."""
    namespace_bytes, name_bytes = _LENGTHS.unpack_from(key, start)
    middle = start + _LENGTHS.size + namespace_bytes
    end = middle + name_bytes
    namespace = key[start + _LENGTHS.size : middle].decode()
    return GroupName(namespace, key[middle:end].decode()), end


def encode_where(topic_uuid: UUID, number: int) -> bytes:
    """Return a partition as the end of a cursor's key."""
    return _WHERE.pack(topic_uuid.bytes, number)


def uuid_of_key(key: bytes) -> bytes:
    """Return the topic's uuid in the key of a cursor."""
    return key[-_WHERE.size : -_WHERE.size + 16]


def parse_where(key: bytes) -> tuple[UUID, int]:
    """Return topic uuid and partition number in the key of a cursor."""
    uuid_bytes, number = _WHERE.unpack_from(key, len(key) - _WHERE.size)
    return UUID(bytes=uuid_bytes), number
