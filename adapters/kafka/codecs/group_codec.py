"""Codec of Heartbeat and OffsetCommit, the frequent group APIs.

Heartbeat (API key 12) in versions 0 to 4, OffsetCommit (API key 8) in versions 2 to 10. Layout:
the Kafka protocol guide. Malformed input raises ``PeerError``.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from adapters.kafka.codec import (
    ELEMENTS_MAX,
    I16,
    I32,
    ElementBudget,
    TopicRef,
    decode_count,
    decode_string,
    decode_topic_ref,
    encode_count,
    encode_topic_ref,
    skip_tags,
)
from gateway.errors import PeerError

HEARTBEAT_INSTANCE_FROM: Final = 3
HEARTBEAT_FLEXIBLE_FROM: Final = 4
HEARTBEAT_THROTTLE_FROM: Final = 1

COMMIT_RETENTION_UP_TO: Final = 4
COMMIT_EPOCH_FROM: Final = 6
COMMIT_INSTANCE_FROM: Final = 7
COMMIT_FLEXIBLE_FROM: Final = 8
COMMIT_TOPIC_IDS_FROM: Final = 10
COMMIT_THROTTLE_FROM: Final = 3

_NO_THROTTLE: Final = bytes(4)
_I64: Final = struct.Struct(">q")
_INDEX_OFFSET: Final = struct.Struct(">iq")
_INDEX_OFFSET_EPOCH: Final = struct.Struct(">iqi")
_INDEX_CODE: Final = struct.Struct(">ih")


class HeartbeatRequest(NamedTuple):
    """Heartbeat request, versions 0 to 4."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class CommittedPartition(NamedTuple):
    """One committed offset; ``leader_epoch`` is -1 where the request has none."""

    number: int
    offset: int
    leader_epoch: int
    metadata: str | None


class OffsetCommitRequest(NamedTuple):
    """OffsetCommit request, versions 2 to 10; ``retention_ms`` is -1 above version 4."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    topics: list[tuple[TopicRef, list[CommittedPartition]]]


def decode_heartbeat_request(
    version: int, body: memoryview, elements_max: int = ELEMENTS_MAX
) -> HeartbeatRequest:
    """Return a Heartbeat request, which has no elements."""
    del elements_max
    flexible = version >= HEARTBEAT_FLEXIBLE_FROM
    try:
        group_id, at = decode_string(body, 0, flexible=flexible)
        (generation,) = I32.unpack_from(body, at)
        member_id, at = decode_string(body, at + I32.size, flexible=flexible)
        instance_id = None
        if version >= HEARTBEAT_INSTANCE_FROM:
            instance_id, at = decode_string(body, at, flexible=flexible)
    except (struct.error, IndexError, ValueError) as error:
        raise PeerError(f"a Heartbeat request is garbled: {error}") from error
    return HeartbeatRequest(group_id or "", generation, member_id or "", instance_id)


def encode_heartbeat_response(version: int, error_code: int) -> bytes:
    r"""Return the body of a Heartbeat response.

    >>> encode_heartbeat_response(4, 27)
    b'\x00\x00\x00\x00\x00\x1b\x00'
    """
    body = I16.pack(error_code)
    if version >= HEARTBEAT_THROTTLE_FROM:
        body = _NO_THROTTLE + body
    return body + b"\x00" if version >= HEARTBEAT_FLEXIBLE_FROM else body


def decode_offset_commit_request(
    version: int, body: memoryview, elements_max: int = ELEMENTS_MAX
) -> OffsetCommitRequest:
    """Return an OffsetCommit request."""
    try:
        return _decode_commit(version, body, ElementBudget(elements_max))
    except (struct.error, IndexError, ValueError) as error:
        raise PeerError(f"an OffsetCommit request is garbled: {error}") from error


def _decode_commit(
    version: int, body: memoryview, elements: ElementBudget
) -> OffsetCommitRequest:
    flexible = version >= COMMIT_FLEXIBLE_FROM
    group_id, at = decode_string(body, 0, flexible=flexible)
    (generation,) = I32.unpack_from(body, at)
    member_id, at = decode_string(body, at + I32.size, flexible=flexible)
    instance_id = None
    if version >= COMMIT_INSTANCE_FROM:
        instance_id, at = decode_string(body, at, flexible=flexible)
    retention_ms = -1
    if version <= COMMIT_RETENTION_UP_TO:
        (retention_ms,) = _I64.unpack_from(body, at)
        at += _I64.size
    topic_count, at = decode_count(body, at, elements, flexible=flexible)
    topics = []
    by_id = version >= COMMIT_TOPIC_IDS_FROM
    for _ in range(topic_count):
        ref, at = decode_topic_ref(body, at, flexible=flexible, by_id=by_id)
        partition_count, at = decode_count(body, at, elements, flexible=flexible)
        partitions = []
        for _ in range(partition_count):
            partition, at = _decode_partition(version, body, at, elements)
            partitions.append(partition)
        topics.append((ref, partitions))
        if flexible:
            at = skip_tags(body, at, elements)
    return OffsetCommitRequest(
        group_id or "", generation, member_id or "", instance_id, retention_ms, topics
    )


def _decode_partition(
    version: int, body: memoryview, at: int, elements: ElementBudget
) -> tuple[CommittedPartition, int]:
    flexible = version >= COMMIT_FLEXIBLE_FROM
    if version >= COMMIT_EPOCH_FROM:
        number, offset, leader_epoch = _INDEX_OFFSET_EPOCH.unpack_from(body, at)
        at += _INDEX_OFFSET_EPOCH.size
    else:
        number, offset = _INDEX_OFFSET.unpack_from(body, at)
        leader_epoch = -1
        at += _INDEX_OFFSET.size
    metadata, at = decode_string(body, at, flexible=flexible)
    if flexible:
        at = skip_tags(body, at, elements)
    return CommittedPartition(number, offset, leader_epoch, metadata), at


def encode_offset_commit_response(
    version: int, topics: Sequence[tuple[TopicRef, Sequence[tuple[int, int]]]]
) -> bytes:
    """Return the body of an OffsetCommit response: (number, error code) of each partition."""
    flexible = version >= COMMIT_FLEXIBLE_FROM
    out = bytearray(_NO_THROTTLE if version >= COMMIT_THROTTLE_FROM else b"")
    out += encode_count(len(topics), flexible=flexible)
    for ref, partitions in topics:
        out += encode_topic_ref(ref, flexible=flexible)
        out += encode_count(len(partitions), flexible=flexible)
        for number, code in partitions:
            out += _INDEX_CODE.pack(number, code)
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    return bytes(out)
