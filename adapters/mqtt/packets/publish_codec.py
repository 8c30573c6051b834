"""PUBLISH packets of one read -> runs (MQTT 5.0 section 3.3; 3.1 and 3.1.1 alike).

This is the hot path. Consecutive packets with the same first byte, topic and properties become one
``PublishRun``; those whose topics alternate become ``MixedTopicPublishes`` where they may. Packets
of a run that have the same size are decoded by one ``struct`` for all of them, the others by a flat
loop that compares each with the common bytes of the run.
"""

import sys
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Final, cast

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.packets.mixed_topics_codec import decode_mixed_topics
from adapters.mqtt.packets.primitives import (
    VARINT_MAX,
    decode_varint,
    find_varint,
    malformed,
    protocol_error,
)
from adapters.mqtt.packets.properties import USER_PROPERTIES_MAX, decode_publish_properties
from adapters.mqtt.packets.topic_names import check_topic
from adapters.mqtt.wire import (
    EXACTLY_ONCE,
    NO_PROPERTIES,
    Packet,
    PublishProperties,
    PublishRun,
    Version,
)

PUBLISH_MIN: Final = 0x30
PUBLISH_MAX: Final = 0x3F
_DUP: Final = 0x08
_QOS_1: Final = 0x32  # the first byte, neither DUP nor RETAIN
_RETAIN: Final = 0x01
_NOT_IN_MIXED_TOPICS: Final = 0x0C  # DUP, QoS 2
_NOT_AS_IT_CAME: Final = 0x0F  # DUP, QoS 1 and 2, and retained messages, leave in another form
_MORE_BYTES: Final = 0x80
WORK_BYTES: Final = 256  # of properties, or of filters, take about as long as a run does

_LAYOUTS_CACHED_MAX: Final = 1_024
_V3_1: Final = Version.V3_1
_V5: Final = Version.V5  # a name is found faster than a member of an enum

_STRETCH_MIN: Final = 16
_STRETCH_GROWTH: Final = 4
"""Packets looked at in one go for the fast way, at first, and how that grows while all of them
fit: what is looked at in vain stays within a constant factor of what was taken."""

Common = tuple[bytes, bytes]
"""Parts that the packets of a run have in common: the topic, with its length in front, and the
properties, with theirs (nothing in 3.x)."""


class Likeness:
    """Common bytes of one publisher's packets: all but payload and identifier.

    A client that waits for each acknowledgement sends one packet at a time, so there are no runs.
    But the checks of one packet hold for the next one with the same bytes.
    ``may_be_one_in_flight``: QoS 1, no DUP, RETAIN, alias or expiry; see ``one_in_flight_batches``.
    """

    __slots__ = (
        "_first",
        "_leaves_as_it_came",
        "_payload_offset",
        "_properties",
        "_qos",
        "_tail_offset",
        "_version",
        "may_be_one_in_flight",
        "tail",
        "topic",
        "topic_data",
    )

    def __init__(self, data: bytes, run: PublishRun) -> None:
        """``run`` is what was decoded of ``data``, one packet."""
        topic_bytes = 2 + len(run.topic)
        payload_at = len(data) - len(run.payloads[0])
        _, body_at = decode_varint(data, 1) or (0, 0)
        self._first = data[0]
        self._qos = run.qos
        self.topic = run.topic
        self.topic_data = data[body_at : body_at + topic_bytes]
        self._tail_offset = topic_bytes + (2 if run.qos else 0)
        self.tail = data[body_at + self._tail_offset : payload_at]
        self._payload_offset = payload_at - body_at
        self._properties = run.properties
        self._version = run.version
        self._leaves_as_it_came = run.data is not None
        self.may_be_one_in_flight = (
            data[0] == _QOS_1
            and run.properties.topic_alias is None
            and run.properties.message_expiry_interval is None
        )

    def message(self, payload: bytes, client_id: str) -> PublishRun:
        """Return a message with these common bytes as a run, for its subscribers."""
        return PublishRun(
            self.topic,
            [payload],
            self._qos,
            properties=self._properties,
            version=self._version,
            client_id=client_id,
        )

    def decode(self, data: bytes) -> PublishRun | None:
        """Return the run of ``data`` if it is exactly one packet with these common bytes."""
        size_bytes = len(data)
        if size_bytes < 2 + self._payload_offset or data[0] != self._first:
            return None
        length, body_at = data[1], 2
        if length >= _MORE_BYTES:
            high, body_at = data[2], 3
            if not 0 < high < _MORE_BYTES:  # a longer one, or one that is not minimal
                return None
            length += (high << 7) - _MORE_BYTES
        payload_at = body_at + self._payload_offset
        tail_at = body_at + self._tail_offset
        if (
            not payload_at <= body_at + length == size_bytes
            or not data.startswith(self.topic_data, body_at)
            or not data.startswith(self.tail, tail_at)
        ):
            return None
        packet_ids: list[int] = []
        if self._qos:
            packet_id = data[tail_at - 2] << 8 | data[tail_at - 1]
            if not packet_id:
                return None
            packet_ids.append(packet_id)
        first = self._first
        return PublishRun(
            self.topic,
            [data[payload_at:]],
            self._qos,
            first & _RETAIN != 0,
            first & _DUP != 0,
            packet_ids,
            self._properties,
            self._version,
            data if self._leaves_as_it_came else None,
        )


def decode_publishes(  # noqa: PLR0913, PLR0917 - a call with names takes longer
    data: bytes,
    at: int,
    version: Version,
    packets: list[Packet],
    packet_bytes_max: int = VARINT_MAX + 5,
    user_properties_max: int = USER_PROPERTIES_MAX,
    packets_max: int = sys.maxsize,
) -> int:
    """Append the runs of the PUBLISH packets that begin at ``at`` to ``packets``.

    Returns where the first packet begins that is no PUBLISH, or not there in whole, or when
    ``packets`` has ``packets_max`` runs: each ``WORK_BYTES`` of properties count as one. Error:
    ``MqttError``; ``packets`` then has what came before the faulty packet. A packet above
    ``packet_bytes_max`` is PACKET_TOO_LARGE, one with more than ``user_properties_max``
    QUOTA_EXCEEDED; QoS 3, DUP with QoS 0, text that is not UTF-8,
    U+0000 and lengths that do not fit are MALFORMED_PACKET; packet identifier 0, a subscription
    identifier, an empty topic without an alias are PROTOCOL_ERROR; a wildcard in the topic is
    TOPIC_NAME_INVALID, alias 0 TOPIC_ALIAS_INVALID. The connection knows the other aliases.
    """
    size_bytes = len(data)
    while (
        at + 1 < size_bytes
        and PUBLISH_MIN <= data[at] <= PUBLISH_MAX
        and len(packets) < packets_max
    ):
        length, body_at = data[at + 1], at + 2
        if length >= _MORE_BYTES:
            found = decode_varint(data, at + 1)
            if found is None:
                return at
            length, body_at = found
        end = body_at + length
        if end - at > packet_bytes_max:
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, "a PUBLISH is above the maximum")
        if end > size_bytes:
            return at
        start = at
        run, common = _decode_first(data, at, body_at, end, version, user_properties_max)
        at = end
        if at < size_bytes and data[at] == data[start]:
            if data.startswith(common[0], at + body_at - start):
                at = _take_equal_sizes(run, data, start, at, common[1])
            at = _take_others(run, data, at, common, packet_bytes_max)
        if not (data[start] & _NOT_AS_IT_CAME or _belongs_to_one_hop(run.properties)):
            run.data = data[start:at]
        if _begins_mixed_topics(run, data, start, at):
            found_runs, at = decode_mixed_topics(data, at, run, common[1], packet_bytes_max)
            packets += found_runs
        else:
            packets.append(run)
        packets_max -= len(common[1]) // WORK_BYTES
    return at


def _decode_first(  # noqa: PLR0917 - a call with names takes longer
    data: bytes, start: int, at: int, end: int, version: Version, user_properties_max: int
) -> tuple[PublishRun, Common]:
    """Return a run of the one packet at ``start`` whose body is ``data[at:end]``."""
    first = data[start]
    qos = first >> 1 & 3
    if qos > EXACTLY_ONCE:  # MQTT-3.3.1-4
        raise malformed("a PUBLISH has QoS 3")
    if first & _DUP and not qos and version is not _V3_1:  # MQTT-3.3.1-2
        raise malformed("a PUBLISH with QoS 0 has DUP")
    # Read ahead without looking at ``end``, and look once: a slice of a body is a copy.
    packet_ids: list[int] = []
    try:
        topic_at = at + 2
        tail_at = topic_end = topic_at + (data[at] << 8 | data[at + 1])
        if qos:
            tail_at += 2
            packet_ids.append(data[topic_end] << 8 | data[topic_end + 1])
        payload_at = tail_at
        if version is _V5:
            payload_at = _properties_end(data, tail_at) if data[tail_at] else tail_at + 1
    except IndexError:
        payload_at = end + 1
    if payload_at > end:
        raise malformed("a topic or the properties are longer than their packet")
    if qos and not packet_ids[0]:  # MQTT-2.2.1-3
        raise protocol_error("a packet identifier is 0")
    topic = data[topic_at:topic_end]
    check_topic(topic)
    raw = data[tail_at:payload_at]
    properties = NO_PROPERTIES
    if len(raw) > 1:
        properties = _checked_properties(raw, user_properties_max)
    if not topic and properties.topic_alias is None:  # MQTT-4.7.3-1
        raise protocol_error("a topic is empty and there is no alias")
    run = PublishRun(
        topic,
        [data[payload_at:end]],
        qos,
        first & _RETAIN != 0,
        first & _DUP != 0,
        packet_ids,
        properties,
        version,
    )
    return run, (data[at:topic_end], raw)


def _properties_end(data: bytes, at: int) -> int:
    """Return where the properties at ``at`` end; it may be behind the end of ``data``."""
    found = decode_varint(data, at)
    if found is None:
        raise malformed("a packet ends before its properties")
    return found[1] + found[0]


def _checked_properties(data: bytes, user_properties_max: int) -> PublishProperties:
    properties = decode_publish_properties(data, user_properties_max)
    if properties.subscription_identifiers:  # MQTT-3.3.4-6
        raise protocol_error("a client sent a subscription identifier with a PUBLISH")
    return properties


def _begins_mixed_topics(run: PublishRun, data: bytes, start: int, at: int) -> bool:
    """Say whether another packet with the flags of this one follows, and may go with it."""
    return (
        not data[start] & _NOT_IN_MIXED_TOPICS
        and len(run.payloads) == 1
        and at < len(data)
        and data[at] == data[start]
        and not _belongs_to_one_hop(run.properties)
    )


def _belongs_to_one_hop(properties: PublishProperties) -> bool:
    """Return whether a receiver must be told something else (an expiry is counted down)."""
    return properties.topic_alias is not None or properties.message_expiry_interval is not None


def _take_equal_sizes(run: PublishRun, data: bytes, start: int, at: int, tail: bytes) -> int:
    """Add the packets at ``at`` that are like the one at ``start`` and as long.

    Returns where they end. Any other packet ends the run: ``decode_publishes`` decodes it.
    """
    packet_bytes = at - start
    payload_bytes = len(run.payloads[0])
    head_bytes = packet_bytes - payload_bytes
    if run.qos:
        head_bytes -= 2 + len(tail)
    head = data[start : start + head_bytes]
    if not data.startswith(head, at):
        return at
    if run.qos:
        layout = _acknowledged_layout(head_bytes, len(tail), payload_bytes)
    else:
        layout = _layout(head_bytes, payload_bytes)
    view = memoryview(data)  # The bytes are copied once, into the payloads.
    count_max = _STRETCH_MIN
    while True:
        count = min((len(data) - at) // packet_bytes, count_max)
        stretch = view[at : at + count * packet_bytes]
        columns = list(chain.from_iterable(layout.iter_unpack(stretch)))
        taken = _equal_count(columns[0 :: 4 if run.qos else 2], head)
        if run.qos:
            taken = _take_ids(run, columns, taken, tail)
            run.payloads += columns[3 : 4 * taken : 4]
        else:
            run.payloads += columns[1 : 2 * taken : 2]
        at += taken * packet_bytes
        if taken < count_max:
            return at
        count_max *= _STRETCH_GROWTH


def _take_ids(run: PublishRun, columns: list[bytes], count: int, tail: bytes) -> int:
    """Add the identifiers of the first ``count`` packets; return how many of them are good."""
    count = _equal_count(columns[2 : 4 * count : 4], tail)
    packet_ids = cast("list[int]", columns[1 : 4 * count : 4])
    if 0 in packet_ids:
        count = packet_ids.index(0)
    cast("list[int]", run.packet_ids).extend(packet_ids[:count])
    return count


def _equal_count(column: list[bytes], wanted: bytes) -> int:
    """Return how many values from the first on are ``wanted``."""
    count = column.count(wanted)  # Compares in C; nearly always all are.
    if count == len(column):
        return count
    return next(index for index, value in enumerate(column) if value != wanted)


@lru_cache(_LAYOUTS_CACHED_MAX)
def _layout(head_bytes: int, payload_bytes: int) -> Struct:
    return Struct(f"{head_bytes}s{payload_bytes}s")


@lru_cache(_LAYOUTS_CACHED_MAX)
def _acknowledged_layout(head_bytes: int, tail_bytes: int, payload_bytes: int) -> Struct:
    return Struct(f">{head_bytes}sH{tail_bytes}s{payload_bytes}s")


def _take_others(
    run: PublishRun, data: bytes, at: int, common: Common, packet_bytes_max: int
) -> int:
    """Add the packets at ``at`` that differ from ``run`` in size, payload and identifier only.

    Returns where they end. Any other packet ends the run: ``decode_publishes`` decodes it.
    """
    topic_data, tail = common
    id_bytes = 2 if run.qos else 0
    tail_offset = len(topic_data) + id_bytes
    payload_offset = tail_offset + len(tail)
    first = PUBLISH_MIN | run.dup << 3 | run.qos << 1 | run.retain
    payloads = run.payloads
    packet_ids = cast("list[int]", run.packet_ids)
    size_bytes = len(data)
    starts_with = data.startswith
    while at + 1 < size_bytes and data[at] == first:
        length, body_at = data[at + 1], at + 2
        if length >= _MORE_BYTES:
            found = find_varint(data, at + 1)
            if found is None:
                break
            length, body_at = found
        end = body_at + length
        tail_at = body_at + tail_offset
        if (
            end > size_bytes
            or length < payload_offset
            or end - at > packet_bytes_max
            or not starts_with(topic_data, body_at)
            or not starts_with(tail, tail_at)
        ):
            break
        if id_bytes:
            packet_id = data[tail_at - 2] << 8 | data[tail_at - 1]
            if not packet_id:
                break
            packet_ids.append(packet_id)
        payloads.append(data[body_at + payload_offset : end])
        at = end
    return at
