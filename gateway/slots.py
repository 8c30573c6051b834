"""Hash slots: 1,024 shares of all partitions, each owned by one node; Kafka's murmur2 hash."""

from struct import unpack_from
from typing import Final
from uuid import UUID

SLOT_COUNT: Final = 1024

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash of ``data``, as Kafka's default partitioner computes it.

    >>> murmur2(b"21")
    3321034988
    """
    length = len(data)
    h = _SEED ^ length
    for word in unpack_from(f"<{length >> 2}I", data):
        k = word * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if tail := data[length & ~3 :]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a record with that key, as Kafka's partitioner chooses it."""
    if partition_count == 1:
        return 0
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def slot_of_partition(topic_uuid: UUID, number: int) -> int:
    """Return the slot that owns a partition; fixed for the partition's life."""
    return murmur2(topic_uuid.bytes + number.to_bytes(4, "big")) % SLOT_COUNT
