"""Codec of ShareFetch (API key 78) and ShareAcknowledge (79), versions 1 and 2 (KIP-932).

v2  the mode of acquiring (KIP-1206), renewed locks (KIP-1222)

Layout: the Kafka protocol guide. Batches are passed without a copy. Malformed input raises
``PeerError``.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from adapters.kafka.codec import (
    ELEMENTS_MAX,
    I32,
    UUID_BYTES,
    ElementBudget,
    decode_topics,
    skip_tags,
)
from adapters.kafka.codecs.current_leader import CurrentLeader
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
from adapters.kafka.codecs.metadata_codec import FLEXIBLE_FROM, BrokerAddress, encode_broker
from gateway.model import Buffer, decode_uvarint, encode_uvarint

RENEW_FROM: Final = 2
RECORD_LIMIT: Final = 1
"""Mode of acquiring in which the number of records is a hard limit."""

_FETCH_HEAD: Final = struct.Struct(
    ">iiiiii"
)  # epoch, wait, min, max bytes, records, batch size
_OFFSETS: Final = struct.Struct(">qq")
_ACQUIRED: Final = struct.Struct(">qqh")
_PARTITION: Final = struct.Struct(">ih")
_LEADER: Final = struct.Struct(">ii")
_NO_LEADER: Final = CurrentLeader(-1, -1)


class AcknowledgementBatch(NamedTuple):
    """Contiguous offsets and their acknowledge types: one for all, or one each."""

    first_offset: int
    last_offset: int
    types: bytes


class AcknowledgedPartition(NamedTuple):
    """Partition of a request, with what is acknowledged of it."""

    number: int
    batches: list[AcknowledgementBatch]


Topics = list[tuple[UUID, list[AcknowledgedPartition]]]


class ShareFetchRequest(NamedTuple):
    """ShareFetch request. ``records_max``: a bound that batches may exceed in mode 0."""

    group_id: str
    member_id: str
    epoch: int
    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    records_max: int
    batch_size: int
    acquire_mode: int
    renews: bool
    topics: Topics
    forgotten: list[tuple[UUID, list[int]]]


class ShareAcknowledgeRequest(NamedTuple):
    """ShareAcknowledge request."""

    group_id: str
    member_id: str
    epoch: int
    renews: bool
    topics: Topics


class AcquiredRange(NamedTuple):
    """Contiguous offsets that the member has now, and how often they were delivered."""

    first_offset: int
    last_offset: int
    delivery_count: int


class ShareFetchResult(NamedTuple):
    """Result for one partition: whole batches, as stored, and what is acquired of them."""

    number: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_code: int = 0
    acknowledge_message: str | None = None
    leader: CurrentLeader | None = None
    batches: Sequence[Buffer] = ()
    acquired: Sequence[AcquiredRange] = ()


class ShareAcknowledgeResult(NamedTuple):
    """Result for one partition of a ShareAcknowledge request."""

    number: int
    error_code: int = 0
    error_message: str | None = None
    leader: CurrentLeader | None = None


def decode_fetch(
    version: int, body: memoryview, elements_max: int = ELEMENTS_MAX
) -> ShareFetchRequest:
    """Return a ShareFetch request."""

    def decode() -> ShareFetchRequest:
        elements = ElementBudget(elements_max)
        group_id, at = decode_text(body, 0)
        member_id, at = decode_text(body, at)
        epoch, wait_ms, bytes_min, bytes_max, records_max, batch_size = _FETCH_HEAD.unpack_from(
            body, at
        )
        at += _FETCH_HEAD.size
        acquire_mode, renews = 0, False
        if version >= RENEW_FROM:
            acquire_mode, renews = body[at], bool(body[at + 1])
            at += 2
        topics, at = _decode_topics(body, at, elements)
        forgotten, at = decode_array(
            body, at, elements, lambda at: _decode_forgotten(body, at, elements)
        )
        skip_tags(body, at, elements)
        return ShareFetchRequest(
            group_id or "", member_id or "", epoch, wait_ms, bytes_min, bytes_max, records_max,
            batch_size, acquire_mode, renews, topics, forgotten,
        )  # fmt: skip

    return decode_whole("ShareFetch", decode)


def decode_acknowledge(
    version: int, body: memoryview, elements_max: int = ELEMENTS_MAX
) -> ShareAcknowledgeRequest:
    """Return a ShareAcknowledge request."""

    def decode() -> ShareAcknowledgeRequest:
        elements = ElementBudget(elements_max)
        group_id, at = decode_text(body, 0)
        member_id, at = decode_text(body, at)
        (epoch,) = I32.unpack_from(body, at)
        at += I32.size
        renews = False
        if version >= RENEW_FROM:
            renews = bool(body[at])
            at += 1
        topics, at = _decode_topics(body, at, elements)
        skip_tags(body, at, elements)
        return ShareAcknowledgeRequest(group_id or "", member_id or "", epoch, renews, topics)

    return decode_whole("ShareAcknowledge", decode)


def _decode_topics(body: memoryview, at: int, elements: ElementBudget) -> tuple[Topics, int]:
    def decode_partition(at: int) -> tuple[AcknowledgedPartition, int]:
        (number,) = I32.unpack_from(body, at)
        batches, at = decode_array(
            body, at + I32.size, elements, lambda at: _decode_acknowledged(body, at)
        )
        return AcknowledgedPartition(number, batches), at

    topics, at = decode_topics(body, at, elements, decode_partition, flexible=True, by_id=True)
    return [(ref, some) for ref, some in topics if isinstance(ref, UUID)], at


def _decode_acknowledged(body: memoryview, at: int) -> tuple[AcknowledgementBatch, int]:
    first_offset, last_offset = _OFFSETS.unpack_from(body, at)
    count, at = decode_uvarint(body, at + _OFFSETS.size)
    end = at + max(count - 1, 0)
    if end > len(body):
        msg = f"{count - 1} acknowledge types do not fit the frame"
        raise ValueError(msg)
    return AcknowledgementBatch(first_offset, last_offset, bytes(body[at:end])), end


def _decode_forgotten(
    body: memoryview, at: int, elements: ElementBudget
) -> tuple[tuple[UUID, list[int]], int]:
    topic = UUID(bytes=bytes(body[at : at + UUID_BYTES]))
    numbers, at = decode_numbers(body, at + UUID_BYTES, elements)
    return (topic, numbers), at


def encode_fetch_response(
    topics: Sequence[tuple[UUID, Sequence[ShareFetchResult]]],
    *,
    error_code: int = 0,
    error_message: str | None = None,
    lock_ms: int = 0,
    nodes: Sequence[BrokerAddress] = (),
) -> list[Buffer]:
    """Return the body of a ShareFetch response in pieces; batches are passed without a copy.

    ``lock_ms``: how long acquired records are locked. ``nodes``: addresses of other leaders.
    """
    head = bytearray(NO_THROTTLE)
    head += CODE.pack(error_code) + encode_text(error_message) + I32.pack(lock_ms)
    head += encode_uvarint(len(topics) + 1)
    pieces: list[Buffer] = []
    for topic, results in topics:
        head += topic.bytes + encode_uvarint(len(results) + 1)
        for result in results:
            head += _PARTITION.pack(result.number, result.error_code)
            head += encode_text(result.error_message)
            head += CODE.pack(result.acknowledge_code)
            head += encode_text(result.acknowledge_message)
            head += _encode_leader(result.leader)
            head += encode_uvarint(sum(map(len, result.batches)) + 1)
            if result.batches:
                pieces.append(head)
                pieces.extend(result.batches)
                head = bytearray()
            head += encode_array([_ACQUIRED.pack(*one) for one in result.acquired])
            head += NO_TAGS
        head += NO_TAGS
    leaders = [one.leader for _, results in topics for one in results if one.leader]
    head += _encode_nodes(leaders, nodes) + NO_TAGS
    pieces.append(head)
    return pieces


def encode_acknowledge_response(
    version: int,
    topics: Sequence[tuple[UUID, Sequence[ShareAcknowledgeResult]]],
    *,
    error_code: int = 0,
    error_message: str | None = None,
    lock_ms: int = 0,
    nodes: Sequence[BrokerAddress] = (),
) -> bytes:
    """Return the body of a ShareAcknowledge response; see ``encode_fetch_response``."""
    out = bytearray(NO_THROTTLE)
    out += CODE.pack(error_code) + encode_text(error_message)
    if version >= RENEW_FROM:
        out += I32.pack(lock_ms)
    out += encode_array(
        [
            topic.bytes
            + encode_array(
                [
                    _PARTITION.pack(one.number, one.error_code)
                    + encode_text(one.error_message)
                    + _encode_leader(one.leader)
                    for one in results
                ]
            )
            for topic, results in topics
        ]
    )
    leaders = [one.leader for _, results in topics for one in results if one.leader]
    out += _encode_nodes(leaders, nodes) + NO_TAGS
    return bytes(out)


def _encode_leader(leader: CurrentLeader | None) -> bytes:
    return _LEADER.pack(*(leader or _NO_LEADER)) + NO_TAGS


def _encode_nodes(leaders: Sequence[CurrentLeader], nodes: Sequence[BrokerAddress]) -> bytes:
    ids = {leader.leader_id for leader in leaders}
    named = [encode_broker(FLEXIBLE_FROM, node) for node in nodes if node.node_id in ids]
    return encode_uvarint(len(named) + 1) + b"".join(named)
