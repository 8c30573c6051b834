"""Codec of Fetch (API key 1), versions 4 to 18; batches are passed without a copy.

Layout: the Kafka protocol guide, FetchRequest and FetchResponse. Malformed
input raises ``PeerError``.
"""

import struct
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from adapters.kafka.codec import (
    ELEMENTS_MAX,
    I8,
    I32,
    ElementBudget,
    TopicRef,
    decode_count,
    decode_topic_ref,
    decode_topics,
    encode_count,
    encode_topic_ref,
    skip_tags,
)
from adapters.kafka.codecs.current_leader import (
    FETCH_LEADER_TAG,
    FETCH_NODES_FROM,
    CurrentLeader,
    encode_leader,
    encode_nodes,
)
from adapters.kafka.codecs.metadata_codec import BrokerAddress
from features.open_transactions import AbortedTransaction
from gateway.errors import PeerError
from gateway.model import Buffer, encode_uvarint

FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13


class FetchPartition(NamedTuple):
    """One partition of a Fetch request."""

    number: int
    leader_epoch: int
    offset: int
    bytes_max: int


class FetchRequest(NamedTuple):
    """Fetch request, versions 4 to 18."""

    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicRef, list[FetchPartition]]]
    forgotten: list[tuple[TopicRef, list[int]]]


class FetchResult(NamedTuple):
    """Result for one partition: whole batches, as stored."""

    number: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    batches: Sequence[Buffer]
    leader: CurrentLeader | None = None
    """Sent from version 12 on, with an error that says that another node leads (KIP-951)."""
    aborted: Sequence[AbortedTransaction] | None = None
    """Aborted transactions among the batches; None unless only committed data is read."""


_FETCH_HEAD: Final = struct.Struct(">iii")
_FETCH_SESSION: Final = struct.Struct(">ii")
_FETCH_PARTITION: Final = {  # by the version that brought the layout
    4: struct.Struct(">iqi"),  # partition, offset, max bytes
    5: struct.Struct(">iqqi"),  # + log start offset
    9: struct.Struct(">iiqqi"),  # + current leader epoch
    12: struct.Struct(">iiqiqi"),  # + last fetched epoch
}


def decode_fetch_request(
    version: int, body: memoryview, elements_max: int = ELEMENTS_MAX
) -> FetchRequest:
    """Return a Fetch request; rack and cluster id are not decoded."""
    try:
        return _decode_fetch(version, body, ElementBudget(elements_max))
    except (struct.error, IndexError, ValueError) as error:
        msg = f"a Fetch request is garbled: {error}"
        raise PeerError(msg) from error


def _decode_fetch(version: int, body: memoryview, elements: ElementBudget) -> FetchRequest:
    flexible = version >= FLEXIBLE_FROM
    at = 0 if version >= 15 else 4  # noqa: PLR2004 - replica_id became a tagged field
    max_wait_ms, bytes_min, bytes_max = _FETCH_HEAD.unpack_from(body, at)
    (isolation_level,) = I8.unpack_from(body, at + 12)
    at += 13
    session_id, session_epoch = 0, -1
    if version >= 7:  # noqa: PLR2004 - KIP-227
        session_id, session_epoch = _FETCH_SESSION.unpack_from(body, at)
        at += 8
    topics, at = decode_topics(
        body,
        at,
        elements,
        partial(_fetched_partition, version, body),
        flexible=flexible,
        by_id=version >= TOPIC_IDS_FROM,
    )
    forgotten = []
    if version >= 7:  # noqa: PLR2004 - KIP-227
        forgotten = _forgotten_topics(version, body, at, elements)
    return FetchRequest(
        max_wait_ms, bytes_min, bytes_max, isolation_level, session_id, session_epoch, topics,
        forgotten,
    )  # fmt: skip


def _forgotten_topics(
    version: int, body: memoryview, at: int, elements: ElementBudget
) -> list[tuple[TopicRef, list[int]]]:
    flexible = version >= FLEXIBLE_FROM
    topic_count, at = decode_count(body, at, elements, flexible=flexible)
    forgotten = []
    for _ in range(topic_count):
        ref, at = decode_topic_ref(body, at, flexible=flexible, by_id=version >= TOPIC_IDS_FROM)
        count, at = decode_count(body, at, elements, flexible=flexible)
        numbers = list(struct.unpack_from(f">{count}i", body, at))
        at += 4 * count
        if flexible:
            at = skip_tags(body, at, elements)
        forgotten.append((ref, numbers))
    return forgotten


def _fetched_partition(version: int, body: memoryview, at: int) -> tuple[FetchPartition, int]:
    if version >= FLEXIBLE_FROM:
        layout = _FETCH_PARTITION[12]
        index, epoch, offset, _, _, bytes_max = layout.unpack_from(body, at)
    elif version >= 9:  # noqa: PLR2004
        layout = _FETCH_PARTITION[9]
        index, epoch, offset, _, bytes_max = layout.unpack_from(body, at)
    elif version >= 5:  # noqa: PLR2004
        layout = _FETCH_PARTITION[5]
        (index, offset, _, bytes_max), epoch = layout.unpack_from(body, at), -1
    else:
        layout = _FETCH_PARTITION[4]
        (index, offset, bytes_max), epoch = layout.unpack_from(body, at), -1
    return FetchPartition(index, epoch, offset, bytes_max), at + layout.size


_FETCHED_SESSION: Final = struct.Struct(">hi")
# Up to the log start offset; without aborted transactions (null), what follows them, too.
_FETCHED_V4: Final = struct.Struct(">ihqq")
_FETCHED_V5: Final = struct.Struct(">ihqqq")
_PLAIN_V4: Final = struct.Struct(">ihqqii")  # ..., records
_PLAIN_V5: Final = struct.Struct(">ihqqqii")
_PLAIN_V11: Final = struct.Struct(">ihqqqiii")  # + preferred read replica
_PLAIN_V12: Final = struct.Struct(">ihqqqBi")
_ABORTED: Final = struct.Struct(">qq")
_TWO_INTS: Final = struct.Struct(">ii")
_NO_REPLICA: Final = -1


def encode_fetch_response(
    version: int,
    topics: Sequence[tuple[TopicRef, Sequence[FetchResult]]],
    *,
    error_code: int = 0,
    session_id: int = 0,
    nodes: Sequence[BrokerAddress] = (),
) -> list[Buffer]:
    """Return the body of a Fetch response in pieces; batches are passed on without a copy.

    ``nodes``: where the current leaders that results name are found.
    """
    flexible = version >= FLEXIBLE_FROM
    head = bytearray(4)
    if version >= 7:  # noqa: PLR2004 - KIP-227
        head += _FETCHED_SESSION.pack(error_code, session_id)
    head += encode_count(len(topics), flexible=flexible)
    pieces: list[Buffer] = []
    for ref, results in topics:
        head += encode_topic_ref(ref, flexible=flexible)
        head += encode_count(len(results), flexible=flexible)
        for result in results:
            size_bytes = sum(map(len, result.batches))
            head += _encode_fetched(version, result, size_bytes)
            if size_bytes:
                pieces.append(head)
                pieces.extend(result.batches)
                head = bytearray()
            if flexible:
                leader = result.leader
                head += b"\0" if leader is None else encode_leader(FETCH_LEADER_TAG, leader)
        if flexible:
            head.append(0)
    if flexible:
        head += encode_nodes(nodes if version >= FETCH_NODES_FROM else (), topics)
    if head:
        pieces.append(head)
    return pieces


def _encode_fetched(version: int, result: FetchResult, size_bytes: int) -> bytes:
    fixed = result[:5]  # up to the log start offset
    if result.aborted is not None:
        return _encode_committed(version, result, result.aborted, size_bytes)
    if version >= FLEXIBLE_FROM:
        return _PLAIN_V12.pack(*fixed, 0, _NO_REPLICA) + encode_uvarint(size_bytes + 1)
    if version >= 11:  # noqa: PLR2004 - KIP-392
        return _PLAIN_V11.pack(*fixed, -1, _NO_REPLICA, size_bytes)
    if version >= 5:  # noqa: PLR2004 - KIP-107
        return _PLAIN_V5.pack(*fixed, -1, size_bytes)
    return _PLAIN_V4.pack(*fixed[:4], -1, size_bytes)


def _encode_committed(
    version: int, result: FetchResult, aborted: Sequence[AbortedTransaction], size_bytes: int
) -> bytes:
    fixed = result[:5]
    flexible = version >= FLEXIBLE_FROM
    out = bytearray(
        _FETCHED_V5.pack(*fixed)
        if version >= 5  # noqa: PLR2004 - KIP-107
        else _FETCHED_V4.pack(*fixed[:4])
    )
    out += encode_count(len(aborted), flexible=flexible)
    for one in aborted:
        out += _ABORTED.pack(one.producer_id, one.first_offset)
        if flexible:
            out.append(0)
    if flexible:
        out += I32.pack(_NO_REPLICA)
        return bytes(out) + encode_uvarint(size_bytes + 1)
    if version >= 11:  # noqa: PLR2004 - KIP-392
        return bytes(out) + _TWO_INTS.pack(_NO_REPLICA, size_bytes)
    return bytes(out) + I32.pack(size_bytes)
