"""Hash slots: 1,024 shares of all partitions, grouped into shards; Kafka's murmur2 hash.

A shard is a run of consecutive slots. The number of shards is fixed for a data directory or a
cluster; a shard has one owner.
"""

from functools import lru_cache
from struct import unpack_from
from typing import Final
from uuid import UUID

SLOT_COUNT: Final = 1024
KEYS_CACHED_MAX: Final = 16_384

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


def shard_of_slot(slot: int, shard_count: int) -> int:
    """Return the shard that holds a slot: shards are runs of consecutive slots.

    >>> shard_of_slot(1023, 64), shard_of_slot(1023, 1)
    (63, 0)
    """
    return slot * shard_count // SLOT_COUNT


def shard_of_partition(topic_uuid: UUID, number: int, shard_count: int) -> int:
    """Return the shard that holds a partition of an ordinary topic, for the partition's life.

    A partition of an internal stream lies in the shard of its own number, without a hash.
    """
    if shard_count == 1:
        return 0
    return shard_of_key(topic_uuid.bytes + number.to_bytes(4, "big"), shard_count)


def shard_of_group(namespace: str, group: str, shard_count: int) -> int:
    """Return the shard that holds a consumer group: its members and its positions."""
    return _shard_of_name(namespace, group, shard_count)


def shard_of_client(namespace: str, client_id: str, shard_count: int) -> int:
    """Return the shard that holds a client's session."""
    return _shard_of_name(namespace, client_id, shard_count)


def shard_of_exchange(namespace: str, name: str, shard_count: int) -> int:
    """Return the shard that keeps the order of an exchange's messages for other nodes."""
    return _shard_of_name(namespace, name, shard_count)


def shard_of_share(name: str, topic_filter: str, shard_count: int) -> int:
    """Return the shard that holds a shared subscription, ``$share/<name>/<filter>``."""
    return _shard_of_name(name, topic_filter, shard_count)


def shard_of_transactional_id(transactional_id: str, shard_count: int) -> int:
    """Return the shard that holds a producer's transactions.

    >>> shard_of_transactional_id("payments-1", 64)
    50
    """
    return shard_of_key(transactional_id.encode("utf-8", "surrogatepass"), shard_count)


@lru_cache(KEYS_CACHED_MAX)
def shard_of_key(key: bytes, shard_count: int) -> int:
    """Return the shard of a key by its hash.

    >>> murmur2(b"21") % SLOT_COUNT, shard_of_key(b"21", 64)
    (236, 14)
    """
    if shard_count == 1:
        return 0
    return shard_of_slot(murmur2(key) % SLOT_COUNT, shard_count)


def _shard_of_name(namespace: str, name: str, shard_count: int) -> int:
    if shard_count == 1:
        return 0
    return shard_of_key(f"{namespace}\0{name}".encode("utf-8", "surrogatepass"), shard_count)
