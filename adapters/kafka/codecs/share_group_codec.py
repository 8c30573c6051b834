"""Codec of ShareGroupHeartbeat (API key 76) and ShareGroupDescribe (77), version 1 (KIP-932).

Layout: the Kafka protocol guide. Malformed input raises ``PeerError``.
"""

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from adapters.kafka.codec import ELEMENTS_MAX, I32, ElementBudget, skip_tags
from adapters.kafka.codecs.group_fields import (
    CODE,
    NO_TAGS,
    NO_THROTTLE,
    by_topic,
    decode_text,
    decode_texts,
    decode_whole,
    encode_array,
    encode_numbers,
    encode_text,
)
from gateway.groups.consumer.model import Partitions
from gateway.model import encode_uvarint

_EPOCHS: Final = struct.Struct(">ii")


class ShareGroupHeartbeatRequest(NamedTuple):
    """ShareGroupHeartbeat request; None where a field has not changed."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    names: frozenset[str] | None


class DescribedShareMember(NamedTuple):
    """Member in a ShareGroupDescribe response."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    names: Collection[str]
    assignment: Partitions


class DescribedShareGroup(NamedTuple):
    """Group in a ShareGroupDescribe response; ``topic_names`` are those of all partitions."""

    error_code: int
    error_message: str | None
    group_id: str
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Sequence[DescribedShareMember] = ()
    topic_names: Mapping[UUID, str] = {}
    authorized_operations: int = -(1 << 31)


def decode_heartbeat(
    version: int,  # noqa: ARG001 - there is one
    body: memoryview,
    elements_max: int = ELEMENTS_MAX,
) -> ShareGroupHeartbeatRequest:
    """Return a ShareGroupHeartbeat request."""

    def decode() -> ShareGroupHeartbeatRequest:
        elements = ElementBudget(elements_max)
        group_id, at = decode_text(body, 0)
        member_id, at = decode_text(body, at)
        (member_epoch,) = I32.unpack_from(body, at)
        rack_id, at = decode_text(body, at + I32.size)
        names, at = decode_texts(body, at, elements)
        skip_tags(body, at, elements)
        return ShareGroupHeartbeatRequest(
            group_id or "",
            member_id or "",
            member_epoch,
            rack_id,
            None if names is None else frozenset(names),
        )

    return decode_whole("ShareGroupHeartbeat", decode)


class ShareGroupDescribeRequest(NamedTuple):
    """ShareGroupDescribe request."""

    group_ids: list[str]
    includes_operations: bool


def decode_describe(
    version: int,  # noqa: ARG001 - there is one
    body: memoryview,
    elements_max: int = ELEMENTS_MAX,
) -> ShareGroupDescribeRequest:
    """Return a ShareGroupDescribe request."""

    def decode() -> ShareGroupDescribeRequest:
        elements = ElementBudget(elements_max)
        group_ids, at = decode_texts(body, 0, elements)
        includes_operations = bool(body[at])
        skip_tags(body, at + 1, elements)
        return ShareGroupDescribeRequest(group_ids or [], includes_operations)

    return decode_whole("ShareGroupDescribe", decode)


def encode_describe_response(groups: Sequence[DescribedShareGroup]) -> bytes:
    """Return the body of a ShareGroupDescribe response."""
    out = bytearray(NO_THROTTLE)
    out += encode_array([_encode_group(group) for group in groups])
    out += NO_TAGS
    return bytes(out)


def _encode_group(group: DescribedShareGroup) -> bytes:
    members = [_encode_member(member, group.topic_names) for member in group.members]
    return b"".join(
        (
            CODE.pack(group.error_code),
            encode_text(group.error_message),
            encode_text(group.group_id),
            encode_text(group.state),
            _EPOCHS.pack(group.epoch, group.assignment_epoch),
            encode_text(group.assignor),
            encode_array(members),
            I32.pack(group.authorized_operations),
        )
    )


def _encode_member(member: DescribedShareMember, names: Mapping[UUID, str]) -> bytes:
    subscribed = sorted(member.names)
    assigned = [
        topic.bytes + encode_text(names.get(topic, "")) + encode_numbers(numbers)
        for topic, numbers in by_topic(member.assignment)
    ]
    return b"".join(
        (
            encode_text(member.member_id),
            encode_text(member.rack_id),
            I32.pack(member.member_epoch),
            encode_text(member.client_id),
            encode_text(member.client_host),
            encode_uvarint(len(subscribed) + 1),
            *map(encode_text, subscribed),
            encode_array(assigned),
            NO_TAGS,  # of the assignment
        )
    )
