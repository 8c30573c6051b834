"""Decode PUBLISH packets of one read whose topics alternate (MQTT 5.0 section 3.3).

For example, a bridge or a device gateway publishes to one topic after the other. Its packets differ
in topic, payload and identifier only.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from adapters.mqtt.packets.primitives import find_varint
from adapters.mqtt.packets.topic_names import good_count
from adapters.mqtt.wire import MixedTopicPublishes, PublishRun

MIXED_TOPICS_MIN: Final = (
    4  # messages: what mixed topics costs at once is less than so many runs do
)
MIXED_TOPICS_MAX: Final = 256  # as many as a batch of the log takes
_MORE_BYTES: Final = 0x80


def decode_mixed_topics(
    data: bytes, at: int, run: PublishRun, properties: bytes, packet_bytes_max: int
) -> tuple[Sequence[PublishRun | MixedTopicPublishes], int]:
    """Return a mixed-topic batch that begins with ``run``, or a few runs, and where they end.

    ``run`` is one packet of QoS 0 or 1 without DUP, which ends at ``at``; ``properties`` are its
    bytes. The batch ends before a topic that comes twice in a row, which begins a run, and before
    any other packet: ``decode_publishes`` decodes that.
    """
    found = _columns(data, at, run, properties, (MIXED_TOPICS_MAX - 1, packet_bytes_max))
    good = good_count(found.topics)
    if good < len(found.topics):
        found = _columns(data, at, run, properties, (good, packet_bytes_max))
    elif found.topics and _has_topic(data, found.ends[-1], found.topics[-1]):
        for column in found:
            del column[-1:]  # a run begins with it
    if not found.topics:
        return (run,), at
    raw: list[bytes] = []
    ends = found.ends
    if run.data is not None:
        raw = [run.data, *[data[start:end] for start, end in pairwise(ends)]]
    mixed = MixedTopicPublishes(
        run,
        [run.topic, *found.topics],
        run.payloads + found.payloads,
        [*run.packet_ids, *found.packet_ids],
        raw,
    )
    is_worth_it = len(mixed.topics) >= MIXED_TOPICS_MIN
    return (mixed,) if is_worth_it else mixed.runs(), ends[-1]


class _Columns(NamedTuple):
    """Fields of packets in a row; ``ends``: of the packet before them, and of each."""

    topics: list[bytes]
    payloads: list[bytes]
    packet_ids: list[int]
    ends: list[int]


def _columns(
    data: bytes, at: int, run: PublishRun, properties: bytes, bounds: tuple[int, int]
) -> _Columns:
    """Return the fields of the packets from ``at`` on that fit to ``run``.

    ``bounds``: of their number, and of the bytes of each.
    """
    columns = topics, payloads, packet_ids, ends = _Columns([], [], [], [at])
    count_max, packet_bytes_max = bounds
    first, last_topic = data[at], run.topic
    size_bytes, tail_bytes = len(data), len(properties)
    id_bytes = 2 if run.qos else 0
    starts_with = data.startswith
    while len(topics) < count_max and at + 3 < size_bytes and data[at] == first:
        length, body_at = data[at + 1], at + 2
        if length >= _MORE_BYTES:
            found = find_varint(data, at + 1)
            if found is None:
                break
            length, body_at = found
        end = body_at + length
        if end > size_bytes or end - at > packet_bytes_max or length < 2:  # noqa: PLR2004
            break
        topic_end = body_at + 2 + (data[body_at] << 8 | data[body_at + 1])
        tail_at = topic_end + id_bytes
        payload_at = tail_at + tail_bytes
        if payload_at > end or (tail_bytes and not starts_with(properties, tail_at)):
            break
        topic = data[body_at + 2 : topic_end]
        if not topic or topic == last_topic:
            break
        if id_bytes:
            packet_id = data[topic_end] << 8 | data[topic_end + 1]
            if not packet_id:
                break
            packet_ids.append(packet_id)
        topics.append(topic)
        payloads.append(data[payload_at:end])
        ends.append(end)
        last_topic = topic
        at = end
    return columns


def _has_topic(data: bytes, at: int, topic: bytes) -> bool:
    """Return whether the bytes at ``at`` look like a packet with a topic."""
    found = find_varint(data, at + 1)
    return found is not None and data.startswith(len(topic).to_bytes(2) + topic, found[1])
