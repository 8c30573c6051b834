"""Identifiers of the QoS 2 messages of a client that wait for PUBREL."""

import struct
from collections.abc import Collection
from typing import Final

Stamp = tuple[int, int]
"""Time of a message: the epoch of its client's shard, and a count that grows within the epoch."""

NO_SHARD: Final = 0xFFFF
"""In place of a shard where the directory has one."""
NO_STAMP: Final[Stamp] = (-1, 0)

_HEAD: Final = struct.Struct(">qQI")
_ENTRY: Final = struct.Struct(">HH")


class OpenIdentifiers:
    """Open packet identifiers of one session.

    ``shards``: by identifier, the shard in which it is stored, that of its message's partition.
    ``listed``: those that the session's state lists. The list is complete up to ``listed_to``: an
    identifier of that time or before that it lacks was released.
    """

    __slots__ = ("listed", "listed_to", "shards")

    def __init__(self, listed_to: Stamp = NO_STAMP) -> None:
        self.shards: dict[int, int] = {}
        self.listed: frozenset[int] = frozenset()
        self.listed_to = listed_to

    def list_all(self, now: Stamp) -> None:
        """Let the state list what is open now."""
        self.listed = frozenset(self.shards)
        self.listed_to = now

    def release(self, packet_ids: Collection[int]) -> bool:
        """Forget identifiers; return whether the state lists one of them."""
        for packet_id in packet_ids:
            self.shards.pop(packet_id, None)
        if self.listed.isdisjoint(packet_ids):
            return False
        self.listed = self.listed.difference(packet_ids)
        return True

    def encode(self) -> bytes:
        """Return the part of a state value; empty where the directory has one shard."""
        if self.listed_to == NO_STAMP:
            return b""
        entries = [_ENTRY.pack(one, self.shards[one]) for one in sorted(self.listed)]
        return _HEAD.pack(*self.listed_to, len(entries)) + b"".join(entries)


def decode_identifiers(value: bytes, at: int) -> OpenIdentifiers:
    """Return what ``encode`` wrote at the end of a state value. Error: ``struct.error``."""
    if at == len(value):
        return OpenIdentifiers()
    epoch, count, length = _HEAD.unpack_from(value, at)
    found = OpenIdentifiers((epoch, count))
    at += _HEAD.size
    for _ in range(length):
        packet_id, shard = _ENTRY.unpack_from(value, at)
        found.shards[packet_id] = shard
        at += _ENTRY.size
    found.listed = frozenset(found.shards)
    return found
