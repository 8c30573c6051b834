"""Codec of ConsumerGroupHeartbeat (API key 68) and ConsumerGroupDescribe (69), versions 0 and 1.

All versions are flexible. Layout: the Kafka protocol guide. Malformed input raises ``PeerError``.
"""

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from adapters.kafka.codec import (
    ELEMENTS_MAX,
    I32,
    ElementBudget,
    decode_count,
    encode_count,
    skip_tags,
)
from adapters.kafka.codecs.group_fields import (
    CODE,
    NO_TAGS,
    NO_THROTTLE,
    by_topic,
    decode_text,
    decode_texts,
    encode_numbers,
    encode_text,
)
from gateway.errors import PeerError
from gateway.groups.consumer.model import Partitions

API_KEYS: Final = frozenset({68, 69})

REGEX_FROM: Final = 1
MEMBER_TYPE_FROM: Final = 1

_NULL_STRUCT: Final = b"\xff"
_A_STRUCT: Final = b"\x01"
_EPOCH_INTERVAL: Final = struct.Struct(">ii")
_EPOCHS: Final = struct.Struct(">ii")
_UUID_BYTES: Final = 16


class ConsumerGroupHeartbeatRequest(NamedTuple):
    """ConsumerGroupHeartbeat request; None where a field has not changed."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    names: frozenset[str] | None
    regex: str | None
    assignor: str | None
    owned: Partitions | None


class DescribedMember(NamedTuple):
    """Member in a ConsumerGroupDescribe response."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    names: Collection[str]
    regex: str | None
    assignment: Partitions
    target: Partitions


class DescribedGroup(NamedTuple):
    """Group in a ConsumerGroupDescribe response; ``topic_names`` are those of all partitions."""

    error_code: int
    error_message: str | None
    group_id: str
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Sequence[DescribedMember] = ()
    topic_names: Mapping[UUID, str] = {}
    authorized_operations: int = -(1 << 31)


def decode_heartbeat(
    version: int, body: memoryview, elements_max: int = ELEMENTS_MAX
) -> ConsumerGroupHeartbeatRequest:
    """Return a ConsumerGroupHeartbeat request."""
    elements = ElementBudget(elements_max)
    try:
        group_id, at = decode_text(body, 0)
        member_id, at = decode_text(body, at)
        (member_epoch,) = I32.unpack_from(body, at)
        instance_id, at = decode_text(body, at + I32.size)
        rack_id, at = decode_text(body, at)
        (rebalance_timeout_ms,) = I32.unpack_from(body, at)
        names, at = decode_texts(body, at + I32.size, elements)
        regex = None
        if version >= REGEX_FROM:
            regex, at = decode_text(body, at)
        assignor, at = decode_text(body, at)
        owned, at = _decode_partitions(body, at, elements)
        skip_tags(body, at, elements)
    except (struct.error, IndexError, ValueError) as error:
        msg = f"a ConsumerGroupHeartbeat request is garbled: {error}"
        raise PeerError(msg) from error
    return ConsumerGroupHeartbeatRequest(
        group_id or "",
        member_id or "",
        member_epoch,
        instance_id,
        rack_id,
        rebalance_timeout_ms,
        None if names is None else frozenset(names),
        regex,
        assignor,
        owned,
    )


def _decode_partitions(
    body: memoryview, at: int, elements: ElementBudget
) -> tuple[Partitions | None, int]:
    if body[at] == 0:
        return None, at + 1
    topic_count, at = decode_count(body, at, elements, flexible=True)
    partitions = []
    for _ in range(topic_count):
        topic = UUID(bytes=bytes(body[at : at + _UUID_BYTES]))
        count, at = decode_count(body, at + _UUID_BYTES, elements, flexible=True)
        numbers = struct.unpack_from(f">{count}i", body, at)
        partitions += [(topic, number) for number in numbers]
        at = skip_tags(body, at + 4 * count, elements)
    return frozenset(partitions), at


def encode_heartbeat_response(  # noqa: PLR0917 - the fields of the response
    error_code: int,
    error_message: str | None,
    member_id: str | None,
    member_epoch: int,
    interval_ms: int,
    assignment: Partitions | None,
) -> bytes:
    r"""Return the body of a ConsumerGroupHeartbeat or ShareGroupHeartbeat response, of any version.

    >>> encode_heartbeat_response(0, None, "m", 1, 5000, None)
    b'\x00\x00\x00\x00\x00\x00\x00\x02m\x00\x00\x00\x01\x00\x00\x13\x88\xff\x00'
    """
    out = bytearray(NO_THROTTLE)
    out += CODE.pack(error_code)
    out += encode_text(error_message)
    out += encode_text(member_id)
    out += _EPOCH_INTERVAL.pack(member_epoch, interval_ms)
    if assignment is None:
        out += _NULL_STRUCT
    else:
        out += _A_STRUCT
        topics = by_topic(assignment)
        out += encode_count(len(topics), flexible=True)
        for topic, numbers in topics:
            out += topic.bytes + encode_numbers(numbers) + NO_TAGS
        out += NO_TAGS
    out += NO_TAGS
    return bytes(out)


class DescribeRequest(NamedTuple):
    """ConsumerGroupDescribe request."""

    group_ids: list[str]
    includes_operations: bool


def decode_describe(
    version: int,  # noqa: ARG001 - all versions are alike
    body: memoryview,
    elements_max: int = ELEMENTS_MAX,
) -> DescribeRequest:
    """Return a ConsumerGroupDescribe request."""
    elements = ElementBudget(elements_max)
    try:
        count, at = decode_count(body, 0, elements, flexible=True)
        group_ids = []
        for _ in range(count):
            group_id, at = decode_text(body, at)
            group_ids.append(group_id or "")
        includes_operations = bool(body[at])
        skip_tags(body, at + 1, elements)
    except (struct.error, IndexError, ValueError) as error:
        msg = f"a ConsumerGroupDescribe request is garbled: {error}"
        raise PeerError(msg) from error
    return DescribeRequest(group_ids, includes_operations)


def encode_describe_response(version: int, groups: Sequence[DescribedGroup]) -> bytes:
    """Return the body of a ConsumerGroupDescribe response."""
    out = bytearray(NO_THROTTLE)
    out += encode_count(len(groups), flexible=True)
    for group in groups:
        out += CODE.pack(group.error_code)
        out += encode_text(group.error_message)
        out += encode_text(group.group_id)
        out += encode_text(group.state)
        out += _EPOCHS.pack(group.epoch, group.assignment_epoch)
        out += encode_text(group.assignor)
        out += encode_count(len(group.members), flexible=True)
        for member in group.members:
            _encode_member(out, version, member, group.topic_names)
        out += I32.pack(group.authorized_operations)
        out += NO_TAGS
    out += NO_TAGS
    return bytes(out)


def _encode_member(
    out: bytearray, version: int, member: DescribedMember, names: Mapping[UUID, str]
) -> None:
    out += encode_text(member.member_id)
    out += encode_text(member.instance_id)
    out += encode_text(member.rack_id)
    out += I32.pack(member.member_epoch)
    out += encode_text(member.client_id)
    out += encode_text(member.client_host)
    out += encode_count(len(member.names), flexible=True)
    for name in sorted(member.names):
        out += encode_text(name)
    out += encode_text(member.regex)
    for partitions in (member.assignment, member.target):
        topics = by_topic(partitions)
        out += encode_count(len(topics), flexible=True)
        for topic, numbers in topics:
            out += (
                topic.bytes
                + encode_text(names.get(topic, ""))
                + encode_numbers(numbers)
                + NO_TAGS
            )
        out += NO_TAGS
    if version >= MEMBER_TYPE_FROM:
        out += b"\x01"  # a member of the new protocol
    out += NO_TAGS
