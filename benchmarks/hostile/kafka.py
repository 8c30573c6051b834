"""Kafka requests of as many elements as are taken, or more."""

import struct
from typing import Final

from tests.support.kafka_wire import FETCH, METADATA, PRODUCE, batch, request, text

LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP = 2, 8, 9, 10, 11
DELETE_TOPICS, DESCRIBE_CONFIGS = 20, 32
WIDE: Final = "wide"
WIDE_PARTITIONS: Final = 10_000
_ONE: Final = struct.pack(">i", 1)
_PARTITION: Final = struct.Struct(">iqi")


def _array(items: list[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def _names(count: int) -> list[bytes]:
    return [text(f"t{n}") for n in range(count)]


def fetch_of_empty_topics() -> bytes:
    """Fetch 2,500,000 topics without a name or partitions: 15 MB."""
    head = struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0)
    return request(FETCH, 4, 1, head + _array([text("") + bytes(4)] * 2_500_000))


def fetch_unknown() -> bytes:
    """Fetch one partition each of 99,000 topics that are not there."""
    head = struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0)
    one = _ONE + _PARTITION.pack(0, 0, 1 << 20)
    return request(FETCH, 4, 1, head + _array([name + one for name in _names(99_000)]))


def fetch_wide() -> bytes:
    """Fetch a topic's 10,000 partitions 19 times over, waiting for more than there is."""
    head = struct.pack(">iiiib", -1, 500, 1 << 20, 1 << 20, 0)
    numbers = [_PARTITION.pack(n, 0, 1 << 20) for n in range(WIDE_PARTITIONS)] * 19
    return request(FETCH, 4, 1, head + _array([text(WIDE) + _array(numbers)]))


def produce_wide() -> bytes:
    """Produce a record to each of 10,000 partitions."""
    data = batch([b"x"])
    size = struct.pack(">i", len(data))
    parts = [struct.pack(">i", n) + size + data for n in range(WIDE_PARTITIONS)]
    head = struct.pack(">hhi", -1, -1, 30_000)
    return request(PRODUCE, 3, 1, head + _array([text(WIDE) + _array(parts)]))


def produce_unknown() -> bytes:
    """Produce a record to each of 190,000 partitions of which most are not there."""
    data = batch([b"x"])
    size = struct.pack(">i", len(data))
    parts = [struct.pack(">i", n + 5_000) + size + data for n in range(190_000)]
    head = struct.pack(">hhi", -1, -1, 30_000)
    return request(PRODUCE, 3, 1, head + _array([text(WIDE) + _array(parts)]))


def metadata(count: int) -> bytes:
    """Ask for so many topics that are not there, none of which is to be made."""
    return request(METADATA, 4, 1, _array(_names(count)) + b"\0")


def offset_fetch() -> bytes:
    """Ask for the positions of 190,000 partitions."""
    numbers = struct.pack(">190000i", *range(190_000))
    body = text("group") + _ONE + text(WIDE) + struct.pack(">i", 190_000) + numbers
    return request(OFFSET_FETCH, 5, 1, body)


def offset_commit() -> bytes:
    """Commit positions of 190,000 partitions, of which 10,000 are there."""
    positions = [struct.pack(">iqh", n, 5, -1) for n in range(190_000)]
    head = text("group") + struct.pack(">ihq", -1, 0, -1)
    return request(OFFSET_COMMIT, 2, 1, head + _array([text(WIDE) + _array(positions)]))


def list_offsets() -> bytes:
    """Ask for the last offset of 190,000 partitions, of which 10,000 are there."""
    parts = [struct.pack(">iq", n, -1) for n in range(190_000)]
    head = struct.pack(">i", -1)
    return request(LIST_OFFSETS, 1, 1, head + _array([text(WIDE) + _array(parts)]))


def join_group() -> bytes:
    """Join a group with 190,000 protocols."""
    protocols = [name + bytes(4) for name in _names(190_000)]
    head = text("g") + struct.pack(">ii", 10_000, 10_000) + text("") + text("consumer")
    return request(JOIN_GROUP, 1, 1, head + _array(protocols))


def delete_topics() -> bytes:
    """Delete 190,000 topics that are not there."""
    return request(DELETE_TOPICS, 1, 1, _array(_names(190_000)) + struct.pack(">i", 30_000))


def describe_configs() -> bytes:
    """Ask for all configs of a topic 5,000 times."""
    resource = b"\x02" + text(WIDE) + struct.pack(">i", -1)
    return request(DESCRIBE_CONFIGS, 1, 1, _array([resource] * 5_000) + b"\0")


CASES: Final = {
    "Fetch, 2,500,000 empty topics": fetch_of_empty_topics,
    "Fetch, 99,000 unknown topics": fetch_unknown,
    "Fetch, 190,000 partitions": fetch_wide,
    "Produce, 10,000 partitions": produce_wide,
    "Produce, 190,000 partitions": produce_unknown,
    "Metadata, 500,000 names": lambda: metadata(500_000),
    "Metadata, 190,000 names": lambda: metadata(190_000),
    "OffsetFetch, 190,000 partitions": offset_fetch,
    "OffsetCommit, 190,000 partitions": offset_commit,
    "ListOffsets, 190,000 partitions": list_offsets,
    "JoinGroup, 190,000 protocols": join_group,
    "DeleteTopics, 190,000 names": delete_topics,
    "DescribeConfigs, 5,000 topics": describe_configs,
}
