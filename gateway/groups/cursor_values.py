"""Committed positions as values: what is asked for, what is stored, and their bytes.

    value  version u8 = 0, offset i64, leader epoch i32 (-1: unknown), commit time i64 (unix ms),
           expiry i64 (unix ms, -1: by the group's retention), metadata text

Integers are big-endian, texts UTF-8.
"""

import struct
from typing import Final, NamedTuple
from uuid import UUID

from gateway.groups.cursor_keys import parse_where

UNKNOWN_EPOCH: Final = -1
NO_EXPIRY: Final = -1

_VERSION: Final = 0
_VALUE: Final = struct.Struct(">Bqiqq")


class Commit(NamedTuple):
    """Position that a group commits; clients older than KIP-211 set its expiry."""

    topic_uuid: UUID
    number: int
    offset: int
    leader_epoch: int = UNKNOWN_EPOCH
    metadata: str = ""
    expires_unix_ms: int = NO_EXPIRY


class Move(NamedTuple):
    """New position of a group in a partition; None when the position was removed."""

    topic_uuid: UUID
    number: int
    offset: int | None


class Cursor(NamedTuple):
    """Position as it is stored."""

    topic_uuid: UUID
    number: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_unix_ms: int
    expires_unix_ms: int


def encode_cursor(commit: Commit, now_unix_ms: int) -> bytes:
    """Return the stored value of a position that is committed now."""
    _, _, offset, leader_epoch, metadata, expires_unix_ms = commit
    lead = _VALUE.pack(_VERSION, offset, leader_epoch, now_unix_ms, expires_unix_ms)
    return lead + metadata.encode()


def removal_of(key: bytes) -> Move:
    """Return the removal of the position with a key."""
    return Move(*parse_where(key), None)


def decode_cursor(key: bytes, value: bytes) -> Cursor:
    """Return a stored position."""
    topic_uuid, number = parse_where(key)
    _, offset, leader_epoch, committed_unix_ms, expires_unix_ms = _VALUE.unpack_from(value)
    return Cursor(
        topic_uuid,
        number,
        offset,
        leader_epoch,
        value[_VALUE.size :].decode(),
        committed_unix_ms,
        expires_unix_ms,
    )
