"""Codec of Heartbeat and OffsetCommit, the frequent group APIs.

Heartbeat (API key 12) in versions 0 to 4, OffsetCommit (API key 8) in versions 2 to 10. Layout:
the Kafka protocol guide. Malformed input raises ``PeerError``.
"""

import struct
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from adapters.kafka.codec import (
    ELEMENTS_MAX,
    I16,
    I32,
    ElementBudget,
    TopicRef,
    decode_string,
    decode_topics,
    encode_results,
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
        member, _ = _decode_member(
            body, flexible=flexible, has_instance=version >= HEARTBEAT_INSTANCE_FROM
        )
    except (struct.error, IndexError, ValueError) as error:
        raise PeerError(f"a Heartbeat request is garbled: {error}") from error
    return member


def _decode_member(
    body: memoryview, *, flexible: bool, has_instance: bool
) -> tuple[HeartbeatRequest, int]:
    """Return the fields that both requests begin with, as those of a Heartbeat; and their end."""
    group_id, at = decode_string(body, 0, flexible=flexible)
    (generation,) = I32.unpack_from(body, at)
    member_id, at = decode_string(body, at + I32.size, flexible=flexible)
    instance_id = None
    if has_instance:
        instance_id, at = decode_string(body, at, flexible=flexible)
    return HeartbeatRequest(group_id or "", generation, member_id or "", instance_id), at


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
    member, at = _decode_member(
        body, flexible=flexible, has_instance=version >= COMMIT_INSTANCE_FROM
    )
    retention_ms = -1
    if version <= COMMIT_RETENTION_UP_TO:
        (retention_ms,) = _I64.unpack_from(body, at)
        at += _I64.size
    topics, _ = decode_topics(
        body,
        at,
        elements,
        partial(_decode_partition, version, body),
        flexible=flexible,
        by_id=version >= COMMIT_TOPIC_IDS_FROM,
    )
    return OffsetCommitRequest(*member, retention_ms, topics)


def _decode_partition(
    version: int, body: memoryview, at: int
) -> tuple[CommittedPartition, int]:
    if version >= COMMIT_EPOCH_FROM:
        number, offset, leader_epoch = _INDEX_OFFSET_EPOCH.unpack_from(body, at)
        at += _INDEX_OFFSET_EPOCH.size
    else:
        number, offset = _INDEX_OFFSET.unpack_from(body, at)
        leader_epoch = -1
        at += _INDEX_OFFSET.size
    metadata, at = decode_string(body, at, flexible=version >= COMMIT_FLEXIBLE_FROM)
    return CommittedPartition(number, offset, leader_epoch, metadata), at


def encode_offset_commit_response(
    version: int, topics: Sequence[tuple[TopicRef, Sequence[tuple[int, int]]]]
) -> bytes:
    """Return the body of an OffsetCommit response: (number, error code) of each partition."""
    flexible = version >= COMMIT_FLEXIBLE_FROM
    tags = b"\0" if flexible else b""
    head = _NO_THROTTLE if version >= COMMIT_THROTTLE_FROM else b""
    results = encode_results(
        topics, lambda result: _INDEX_CODE.pack(*result) + tags, flexible=flexible
    )
    return head + results + tags
