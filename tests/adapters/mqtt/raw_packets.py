"""Packets as bytes, put together by hand, and what a client may say, for hypothesis."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import strategies as st

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.packets.framing import PacketReader
from adapters.mqtt.wire import (
    AckRun,
    MixedTopicPublishes,
    Packet,
    PublishProperties,
    PublishRun,
    Version,
)

MALFORMED = ReasonCode.MALFORMED_PACKET
PROTOCOL = ReasonCode.PROTOCOL_ERROR
PACKET_BYTES_MAX = 1 << 20

V3_AND_5 = (Version.V3_1, Version.V3_1_1, Version.V5)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
topics = st.text(
    st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=12
)
user_properties = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
uint32 = st.integers(0, 0xFFFFFFFF)
packet_ids = st.integers(1, 65_535)
publish_properties = st.builds(
    PublishProperties,
    payload_format_indicator=st.none() | st.integers(0, 1),
    message_expiry_interval=st.none() | uint32,
    content_type=st.none() | texts,
    response_topic=st.none() | topics,
    correlation_data=st.none() | st.binary(max_size=12),
    user_properties=user_properties,
    topic_alias=st.none(),
    subscription_identifiers=st.just(()),
)


def data(*parts: bytes | int | str) -> bytes:
    """Return the parts in a row: a number is one byte, text has its length in front."""
    out = bytearray()
    for part in parts:
        if isinstance(part, int):
            out.append(part)
        elif isinstance(part, str):
            out += len(part.encode()).to_bytes(2) + part.encode()
        else:
            out += part
    return bytes(out)


def varint(value: int) -> bytes:
    """Return a Variable Byte Integer as section 1.5.5 computes it."""
    out = bytearray()
    while True:
        value, byte = divmod(value, 128)
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)


def packet(first: int, *parts: bytes | int | str) -> bytes:
    """Return a packet: its first byte, the length, the parts."""
    body = data(*parts)
    return data(first, varint(len(body)), body)


def properties(*parts: bytes | int | str) -> bytes:
    """Return properties with their length."""
    section = data(*parts)
    return varint(len(section)) + section


def publish(
    topic: bytes | str,
    payload: bytes = b"",
    *,
    first: int = 0x30,
    packet_id: int = 7,
    section: bytes = b"\0",
) -> bytes:
    """Return a PUBLISH of 5.0 (of 3.x with an empty ``section``)."""
    name = topic.encode() if isinstance(topic, str) else topic
    middle = packet_id.to_bytes(2) if first & 6 else b""
    return packet(first, len(name).to_bytes(2), name, middle, section, payload)


def connected(version: Version = Version.V5, bytes_max: int = PACKET_BYTES_MAX) -> PacketReader:
    """Return a reader that has had its CONNECT."""
    reader = PacketReader(packet_bytes_max=bytes_max)
    reader.version = version
    return reader


def described(packets: Sequence[Packet]) -> list[Any]:
    """Return packets one by one in a form that compares; runs are taken apart."""
    out: list[Any] = []
    for one in packets:
        if isinstance(one, MixedTopicPublishes):
            out += described(one.runs())
        elif isinstance(one, PublishRun):
            ids = one.packet_ids or [0] * len(one.payloads)
            out += [
                (one.topic, payload, packet_id, one.qos, one.retain, one.dup, one.properties)
                for payload, packet_id in zip(one.payloads, ids, strict=True)
            ]
        elif isinstance(one, AckRun):
            codes = one.reason_codes or [0] * len(one.packet_ids)
            pairs = zip(one.packet_ids, codes, strict=True)
            out += [(one.kind, packet_id, code) for packet_id, code in pairs]
        else:
            out.append(one)
    return out


@contextmanager
def refused(code: ReasonCode) -> Iterator[None]:
    """Expect an ``MqttError`` with exactly this reason code."""
    with pytest.raises(MqttError) as caught:
        yield
    assert caught.value.reason_code == code, caught.value
