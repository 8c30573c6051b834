"""Codec of the positions of share groups, API keys 90 to 92 (KIP-932).

DescribeShareGroupOffsets (90) has versions 0 and 1, with the lag (KIP-1226);
AlterShareGroupOffsets (91) and DeleteShareGroupOffsets (92) have version 0.

Layout: the Kafka protocol guide. Malformed input raises ``PeerError``.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from adapters.kafka.codec import ELEMENTS_MAX, ElementBudget, decode_topics, skip_tags
from adapters.kafka.codecs.group_fields import (
    CODE,
    NO_TAGS,
    NO_THROTTLE,
    decode_array,
    decode_numbers,
    decode_text,
    decode_whole,
    encode_array,
    encode_text,
)

LAG_FROM: Final = 1
NO_TOPIC_ID: Final = UUID(int=0)

_START: Final = struct.Struct(">iqi")  # partition, start offset, leader epoch
_LAG: Final = struct.Struct(">q")
_PARTITION: Final = struct.Struct(">ih")
_ALTERED: Final = struct.Struct(">iq")


class GroupOffsetsRequest(NamedTuple):
    """A group whose positions are to be described; ``topics`` is None for all."""

    group_id: str
    topics: list[tuple[str, list[int]]] | None


class DescribeOffsetsRequest(NamedTuple):
    """DescribeShareGroupOffsets request."""

    groups: list[GroupOffsetsRequest]


class AlterOffsetsRequest(NamedTuple):
    """AlterShareGroupOffsets request: new start offsets of partitions, by topic."""

    group_id: str
    topics: list[tuple[str, list[tuple[int, int]]]]


class DeleteOffsetsRequest(NamedTuple):
    """DeleteShareGroupOffsets request."""

    group_id: str
    topics: list[str]


class StartOffset(NamedTuple):
    """Position in a partition; ``lag``: messages that are not done, -1 if not known."""

    number: int
    offset: int
    leader_epoch: int
    lag: int
    error_code: int = 0
    error_message: str | None = None


class TopicOffsets(NamedTuple):
    """Positions in a topic."""

    name: str
    topic_id: UUID
    partitions: list[StartOffset]


class GroupOffsets(NamedTuple):
    """Positions of a group."""

    group_id: str
    topics: list[TopicOffsets]
    error_code: int = 0
    error_message: str | None = None


class AlteredTopic(NamedTuple):
    """Result for a topic of AlterShareGroupOffsets: partition, error code, message."""

    name: str
    topic_id: UUID
    partitions: Sequence[tuple[int, int, str | None]]


class DeletedTopic(NamedTuple):
    """Result for a topic of DeleteShareGroupOffsets."""

    name: str
    topic_id: UUID
    error_code: int
    error_message: str | None


def decode_describe(
    version: int,  # noqa: ARG001 - all versions are alike
    body: memoryview,
    elements_max: int = ELEMENTS_MAX,
) -> DescribeOffsetsRequest:
    """Return a DescribeShareGroupOffsets request."""

    def decode() -> DescribeOffsetsRequest:
        elements = ElementBudget(elements_max)
        groups, at = decode_array(
            body, 0, elements, lambda at: _decode_group(body, at, elements)
        )
        skip_tags(body, at, elements)
        return DescribeOffsetsRequest(groups)

    return decode_whole("DescribeShareGroupOffsets", decode)


def _decode_group(
    body: memoryview, at: int, elements: ElementBudget
) -> tuple[GroupOffsetsRequest, int]:
    group_id, at = decode_text(body, at)
    if body[at] == 0:
        return GroupOffsetsRequest(group_id or "", None), at + 1

    def decode_topic(at: int) -> tuple[tuple[str, list[int]], int]:
        name, at = decode_text(body, at)
        numbers, at = decode_numbers(body, at, elements)
        return (name or "", numbers), at

    topics, at = decode_array(body, at, elements, decode_topic)
    return GroupOffsetsRequest(group_id or "", topics), at


def decode_alter(
    version: int,  # noqa: ARG001 - there is one
    body: memoryview,
    elements_max: int = ELEMENTS_MAX,
) -> AlterOffsetsRequest:
    """Return an AlterShareGroupOffsets request."""

    def decode_partition(at: int) -> tuple[tuple[int, int], int]:
        number, offset = _ALTERED.unpack_from(body, at)
        return (number, offset), at + _ALTERED.size

    def decode() -> AlterOffsetsRequest:
        elements = ElementBudget(elements_max)
        group_id, at = decode_text(body, 0)
        topics, at = decode_topics(
            body, at, elements, decode_partition, flexible=True, by_id=False
        )
        skip_tags(body, at, elements)
        return AlterOffsetsRequest(
            group_id or "", [(str(name), partitions) for name, partitions in topics]
        )

    return decode_whole("AlterShareGroupOffsets", decode)


def decode_delete(
    version: int,  # noqa: ARG001 - there is one
    body: memoryview,
    elements_max: int = ELEMENTS_MAX,
) -> DeleteOffsetsRequest:
    """Return a DeleteShareGroupOffsets request."""

    def decode_topic(at: int) -> tuple[str, int]:
        name, at = decode_text(body, at)
        return name or "", at

    def decode() -> DeleteOffsetsRequest:
        elements = ElementBudget(elements_max)
        group_id, at = decode_text(body, 0)
        topics, at = decode_array(body, at, elements, decode_topic)
        skip_tags(body, at, elements)
        return DeleteOffsetsRequest(group_id or "", topics)

    return decode_whole("DeleteShareGroupOffsets", decode)


def encode_describe_response(version: int, groups: Sequence[GroupOffsets]) -> bytes:
    """Return the body of a DescribeShareGroupOffsets response."""
    encoded = [
        encode_text(group.group_id)
        + encode_array(
            [
                encode_text(topic.name)
                + topic.topic_id.bytes
                + encode_array([_encode_start(version, one) for one in topic.partitions])
                for topic in group.topics
            ]
        )
        + CODE.pack(group.error_code)
        + encode_text(group.error_message)
        for group in groups
    ]
    return NO_THROTTLE + encode_array(encoded) + NO_TAGS


def _encode_start(version: int, one: StartOffset) -> bytes:
    lag = _LAG.pack(one.lag) if version >= LAG_FROM else b""
    return (
        _START.pack(one.number, one.offset, one.leader_epoch)
        + lag
        + CODE.pack(one.error_code)
        + encode_text(one.error_message)
    )


def encode_alter_response(
    topics: Sequence[AlteredTopic], *, error_code: int = 0, error_message: str | None = None
) -> bytes:
    """Return the body of an AlterShareGroupOffsets response."""
    encoded = [
        encode_text(topic.name)
        + topic.topic_id.bytes
        + encode_array(
            [
                _PARTITION.pack(number, code) + encode_text(message)
                for number, code, message in topic.partitions
            ]
        )
        for topic in topics
    ]
    head = NO_THROTTLE + CODE.pack(error_code) + encode_text(error_message)
    return head + encode_array(encoded) + NO_TAGS


def encode_delete_response(
    topics: Sequence[DeletedTopic], *, error_code: int = 0, error_message: str | None = None
) -> bytes:
    """Return the body of a DeleteShareGroupOffsets response."""
    encoded = [
        encode_text(topic.name)
        + topic.topic_id.bytes
        + CODE.pack(topic.error_code)
        + encode_text(topic.error_message)
        for topic in topics
    ]
    head = NO_THROTTLE + CODE.pack(error_code) + encode_text(error_message)
    return head + encode_array(encoded) + NO_TAGS
