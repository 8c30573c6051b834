"""Codec of Produce (API key 0), versions 3 to 13; batches are slices of the frame.

Layout: the Kafka protocol guide, ProduceRequest and ProduceResponse. Malformed input
raises ``PeerError``.
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
    decode_records,
    decode_string,
    decode_topics,
    encode_results,
)
from adapters.kafka.codecs.current_leader import (
    PRODUCE_LEADER_TAG,
    PRODUCE_LEADERS_FROM,
    CurrentLeader,
    encode_leader,
    encode_nodes,
)
from adapters.kafka.codecs.metadata_codec import BrokerAddress
from gateway.errors import PeerError
from gateway.model import encode_uvarint

FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13

ProducedPartition = tuple[int, memoryview | None]
"""(partition index, record batch or None): the batch is a slice of the frame."""


class ProduceRequest(NamedTuple):
    """Produce request, versions 3 to 13."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[TopicRef, list[ProducedPartition]]]


class ProducedResult(NamedTuple):
    """Result for one partition; ``error_message`` is sent from version 8 on (KIP-467)."""

    number: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None
    leader: CurrentLeader | None = None
    """Sent from version 10 on, with an error that says that another node leads (KIP-951)."""


def decode_produce_request(
    version: int, body: memoryview, elements_max: int = ELEMENTS_MAX
) -> ProduceRequest:
    """Return a Produce request; its batches are slices of ``body``."""
    try:
        return _decode_produce(version, body, ElementBudget(elements_max))
    except (struct.error, IndexError, ValueError) as error:
        msg = f"a Produce request is garbled: {error}"
        raise PeerError(msg) from error


def _decode_produce(version: int, body: memoryview, elements: ElementBudget) -> ProduceRequest:
    flexible = version >= FLEXIBLE_FROM
    transactional_id, at = decode_string(body, 0, flexible=flexible)
    acks, timeout_ms = _ACKS.unpack_from(body, at)

    def partition_at(at: int) -> tuple[ProducedPartition, int]:
        (number,) = I32.unpack_from(body, at)
        batch, end = decode_records(body, at + I32.size, flexible=flexible)
        return (number, batch), end

    topics, _ = decode_topics(
        body,
        at + _ACKS.size,
        elements,
        partition_at,
        flexible=flexible,
        by_id=version >= TOPIC_IDS_FROM,
    )
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


_ACKS: Final = struct.Struct(">hi")


_PRODUCED_V3: Final = struct.Struct(">ihqq")
_PRODUCED_V5: Final = struct.Struct(">ihqqq")


def encode_produce_response(
    version: int,
    topics: Sequence[tuple[TopicRef, Sequence[ProducedResult]]],
    nodes: Sequence[BrokerAddress] = (),
    throttle_ms: int = 0,
) -> bytes:
    """Return the body of a Produce response.

    ``nodes``: where the current leaders that results name are found.
    """
    flexible = version >= FLEXIBLE_FROM
    out = encode_results(topics, partial(_encode_produced, version), flexible=flexible)
    out += I32.pack(throttle_ms)
    if flexible:
        out += encode_nodes(nodes if version >= PRODUCE_LEADERS_FROM else (), topics)
    return bytes(out)


def _encode_produced(version: int, result: ProducedResult) -> bytes:
    index, error_code, base_offset, append_time_ms, log_start_offset, message, leader = result
    if version < 5:  # noqa: PLR2004 - the version that added log_start_offset
        return _PRODUCED_V3.pack(index, error_code, base_offset, append_time_ms)
    fixed = _PRODUCED_V5.pack(index, error_code, base_offset, append_time_ms, log_start_offset)
    if version < 8:  # noqa: PLR2004 - the version that added errors per record
        return fixed
    text = None if message is None else message.encode()
    if version < FLEXIBLE_FROM:
        no_records = bytes(4)
        tail = b"\xff\xff" if text is None else I16.pack(len(text)) + text
        return fixed + no_records + tail
    tail = b"\x00" if text is None else encode_uvarint(len(text) + 1) + text
    if leader is not None and version >= PRODUCE_LEADERS_FROM:
        return fixed + b"\x01" + tail + encode_leader(PRODUCE_LEADER_TAG, leader)
    return fixed + b"\x01" + tail + b"\x00"
