"""Stored form of groups of the new protocol (KIP-848), in the stream ``__cursors``.

    group key     0x03, group (see ``gateway.groups.cursors``); of a share group 0x06
    group value   version u8 = 0, epoch i32, assignment epoch i32, hash of the topics (8 bytes),
                  time since when it is empty i64 (unix ms; -1: it has members), assignor (text)
    member key    0x04, group, member id (the rest of the key); in a share group 0x07
    member value  version u8 = 0, epoch i32, previous epoch i32, state u8, rebalance timeout
                  i32 ms, then texts: instance id, rack id, assignor (all may be null), client
                  id, client host, pattern; names (count u32, texts); and the partitions in use,
                  to be given up, and of the target, each as: topic count u32, per topic the
                  uuid (16 bytes), number count u32, numbers u32

Integers are big-endian. UTF-8 texts stand behind their length (u32; 0xFFFFFFFF: null).
"""

import struct
from collections import defaultdict
from typing import Final, NamedTuple
from uuid import UUID

from gateway.errors import CorruptBatch
from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.consumer.model import ConsumerMember, MemberState, Partitions
from gateway.groups.consumer.protocol import MemberProtocol
from gateway.groups.cursor_keys import group_key, parse_group_key
from gateway.groups.fields import U32, FieldReader, encode_text
from gateway.groups.model import GroupName

KIND_BYTES: Final = 1
_VERSION: Final = 0
_HASH_BYTES: Final = 8
_GROUP: Final = struct.Struct(f">Bii{_HASH_BYTES}sq")
_MEMBER: Final = struct.Struct(">BiiBi")
_UUID: Final = struct.Struct(">16s")


class StoredConsumerGroup(NamedTuple):
    """Decoded value of a group, without its members."""

    epoch: int
    assignment_epoch: int
    topics_hash: bytes
    empty_since_unix_ms: int | None
    assignor: str


def record_key(name: GroupName, protocol: MemberProtocol) -> bytes:
    """Return the key of a group."""
    return protocol.group_key + group_key(name)


def member_key(name: GroupName, member_id: str, protocol: MemberProtocol) -> bytes:
    """Return the key of a member."""
    return protocol.member_key + group_key(name) + member_id.encode()


def parse_member_key(key: bytes) -> tuple[GroupName, str]:
    """Return the group and the member id of a key that ``member_key`` made."""
    name, end = parse_group_key(key, KIND_BYTES)
    return name, key[end:].decode()


def encode_consumer_group(group: ConsumerGroup) -> bytes:
    """Return the value of a group as it is now."""
    since = group.empty_since_unix_ms
    head = _GROUP.pack(
        _VERSION,
        group.epoch,
        group.assignment_epoch,
        group.topics_hash or bytes(_HASH_BYTES),
        -1 if since is None else since,
    )
    return head + encode_text(group.protocol_name)


def decode_consumer_group(value: bytes) -> StoredConsumerGroup:
    """Return the group that ``encode_consumer_group`` encoded. Error: ``CorruptBatch``."""
    reader = FieldReader(value)
    try:
        version, epoch, assignment_epoch, topics_hash, since = reader.unpack(_GROUP)
        _check_version(version)
        assignor = reader.text() or ""
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptBatch(f"a consumer group as it was stored: {error}") from None
    return StoredConsumerGroup(
        epoch, assignment_epoch, topics_hash, None if since < 0 else since, assignor
    )


def encode_member(member: ConsumerMember) -> bytes:
    """Return the value of a member as it is now."""
    parts = [
        _MEMBER.pack(
            _VERSION,
            member.epoch,
            member.previous_epoch,
            member.state.value,
            member.rebalance_timeout_ms,
        )
    ]
    parts += map(encode_text, _texts(member))
    parts.append(U32.pack(len(member.names)))
    parts += map(encode_text, sorted(member.names))
    for partitions in (member.assigned, member.pending, member.target):
        parts.append(_encode_partitions(partitions))
    return b"".join(parts)


def _texts(member: ConsumerMember) -> tuple[str | None, ...]:
    return (
        member.instance_id,
        member.rack_id,
        member.assignor,
        member.client_id,
        member.client_host,
        member.regex,
    )


def decode_member(member_id: str, value: bytes) -> ConsumerMember:
    """Return the member that ``encode_member`` encoded. Error: ``CorruptBatch``."""
    reader = FieldReader(value)
    try:
        version, epoch, previous_epoch, state, rebalance_timeout_ms = reader.unpack(_MEMBER)
        _check_version(version)
        member = ConsumerMember(member_id, reader.text())
        member.epoch = epoch
        member.previous_epoch = previous_epoch
        member.state = MemberState(state)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.rack_id = reader.text()
        member.assignor = reader.text()
        member.client_id = reader.text() or ""
        member.client_host = reader.text() or ""
        member.regex = reader.text() or ""
        (count,) = reader.unpack(U32)
        member.names = frozenset(reader.text() or "" for _ in range(count))
        member.assigned = _decode_partitions(reader)
        member.pending = _decode_partitions(reader)
        member.target = _decode_partitions(reader)
    except (struct.error, ValueError) as error:
        raise CorruptBatch(f"a group member as it was stored: {error}") from None
    return member


def _check_version(version: int) -> None:
    if version != _VERSION:
        raise CorruptBatch(f"a consumer group is stored in version {version}")


def _encode_partitions(partitions: Partitions) -> bytes:
    by_topic: defaultdict[UUID, list[int]] = defaultdict(list)
    for topic, number in partitions:
        by_topic[topic].append(number)
    parts = [U32.pack(len(by_topic))]
    for topic, numbers in sorted(by_topic.items()):
        parts.append(topic.bytes + struct.pack(f">I{len(numbers)}I", len(numbers), *numbers))
    return b"".join(parts)


def _decode_partitions(reader: FieldReader) -> Partitions:
    (topic_count,) = reader.unpack(U32)
    partitions = []
    for _ in range(topic_count):
        (topic_bytes,) = reader.unpack(_UUID)
        (count,) = reader.unpack(U32)
        numbers = reader.unpack(struct.Struct(f">{count}I"))
        topic = UUID(bytes=topic_bytes)
        partitions += [(topic, number) for number in numbers]
    return frozenset(partitions)
