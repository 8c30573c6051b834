"""Stored form of a consumer group, so that members continue after a restart.

    key    0x02, group (see ``gateway.groups.cursors``)
    value  version u8 = 0, generation i32, state time i64 (unix ms; since when it is empty),
           protocol type, protocol name, leader id (texts that may be null), member count u32,
           then per member: member id, instance id (may be null), client id, client host
           (texts), session timeout u32 ms, rebalance timeout u32 ms, assignment (bytes),
           protocol count u32, per protocol: name (text), metadata (bytes)

Integers are big-endian. Bytes and UTF-8 texts stand behind their length (u32; 0xFFFFFFFF:
null).
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from gateway.errors import CorruptBatch, GatewayError, StorageUnavailable
from gateway.groups.cursor_keys import GROUP_KEY, group_key, parse_group_key
from gateway.groups.fields import U32, FieldReader, encode_data, encode_text
from gateway.groups.group import Group
from gateway.groups.model import GroupName, GroupState, JoinRequest, Member
from gateway.sharded_stream import ShardedStream
from gateway.storage import OnDone

_VERSION: Final = 0
_HEAD: Final = struct.Struct(">Biq")
_TIMEOUTS: Final = struct.Struct(">II")


class GroupStore:
    """Groups in the stream that holds the committed positions, too."""

    def __init__(self, stream: ShardedStream) -> None:
        self._stream = stream

    def stored(self) -> Iterator[tuple[GroupName, bytes]]:
        """Yield all groups with their values."""
        for key, value in self._stream.values.items():
            if key.startswith(GROUP_KEY):
                yield parse_group_key(key, len(GROUP_KEY))[0], value

    def put(self, group: Group, now_unix_ms: int, on_done: OnDone) -> None:
        """Store a group as it is now; ``on_done`` runs later, once, also with a refusal."""
        value = encode_group(group, group.empty_since_unix_ms or now_unix_ms)
        try:
            self._stream.put([(stored_key(group.name), value)], on_done)
        except GatewayError as error:  # Larger than a record may be.
            failure = StorageUnavailable(str(error))
            self._stream.put([], lambda _: on_done(failure))


def stored_key(name: GroupName) -> bytes:
    """Return the key of a stored group."""
    return GROUP_KEY + group_key(name)


class StoredGroup(NamedTuple):
    """Decoded value of a stored group."""

    generation: int
    state_unix_ms: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str | None
    members: list[Member]


def encode_group(group: Group, state_unix_ms: int) -> bytes:
    """Return the value for a group as it is now."""
    parts = [_HEAD.pack(_VERSION, group.generation, state_unix_ms)]
    texts = (group.protocol_type, group.protocol_name, group.members.leader_id)
    parts += map(encode_text, texts)
    parts.append(U32.pack(len(group.members)))
    for member in group.members:
        own = (member.member_id, member.instance_id, member.client_id, member.client_host)
        parts += map(encode_text, own)
        parts.append(_TIMEOUTS.pack(member.session_timeout_ms, member.rebalance_timeout_ms))
        parts.append(encode_data(member.assignment))
        parts.append(U32.pack(len(member.protocols)))
        for name, metadata in member.protocols:
            parts.append(encode_text(name))
            parts.append(encode_data(metadata))
    return b"".join(parts)


def decode_group(value: bytes) -> StoredGroup:
    """Return the group that ``encode_group`` encoded. Error: ``CorruptBatch``."""
    reader = FieldReader(value)
    try:
        version, generation, state_unix_ms = reader.unpack(_HEAD)
        if version != _VERSION:
            raise CorruptBatch(f"a consumer group is stored in version {version}")
        protocol_type, protocol_name, leader_id = reader.text(), reader.text(), reader.text()
        (count,) = reader.unpack(U32)
        members = [_decode_member(reader, protocol_type or "") for _ in range(count)]
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptBatch(f"a consumer group as it was stored: {error}") from None
    return StoredGroup(
        generation, state_unix_ms, protocol_type, protocol_name, leader_id, members
    )


def restore_group(group: Group, value: bytes, now_ms: int) -> None:
    """Restore a new group from its stored value. Error: ``CorruptBatch``."""
    stored = decode_group(value)
    group.restore(stored.members, now_ms)
    group.generation = stored.generation
    group.protocol_name = stored.protocol_name
    group.members.protocol_type = stored.protocol_type
    group.members.leader_id = stored.leader_id
    if group.state is GroupState.EMPTY:
        group.empty_since_unix_ms = stored.state_unix_ms


def _decode_member(reader: FieldReader, protocol_type: str) -> Member:
    member_id, instance_id = reader.text() or "", reader.text()
    client_id, client_host = reader.text() or "", reader.text() or ""
    session_timeout_ms, rebalance_timeout_ms = reader.unpack(_TIMEOUTS)
    assignment = reader.data() or b""
    (count,) = reader.unpack(U32)
    protocols = tuple((reader.text() or "", reader.data() or b"") for _ in range(count))
    request = JoinRequest(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout_ms,
        rebalance_timeout_ms,
        protocol_type,
        protocols,
    )
    member = Member(member_id, request)
    member.assignment = assignment
    return member
