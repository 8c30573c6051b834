"""MQTT's bytes, written and read without any codec of ours: what conformance is judged by.

Encoders take what a test wants to send, right or wrong, and check nothing. ``Received`` gives
what a server sent with the specification's words.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

V3_1: Final = 3
V3_1_1: Final = 4
V5: Final = 5

CLEAN: Final = 0x02
CONNECT_RESERVED: Final = 0x01


class Kind(IntEnum):
    """Bits 7 to 4 of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Prop(IntEnum):
    """Property identifiers (MQTT 5.0 section 2.2.2.2)."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTH_METHOD = 0x15
    AUTH_DATA = 0x16
    REQUEST_PROBLEM_INFO = 0x17
    WILL_DELAY = 0x18
    REQUEST_RESPONSE_INFO = 0x19
    RESPONSE_INFO = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_AVAILABLE = 0x28
    SUBSCRIPTION_ID_AVAILABLE = 0x29
    SHARED_AVAILABLE = 0x2A


Value = int | str | bytes | tuple[str, str]
Properties = Sequence[tuple[int, Value]]

_BYTE: Final = {0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A}
_TWO: Final = {0x13, 0x21, 0x22, 0x23}
_FOUR: Final = {0x02, 0x11, 0x18, 0x27}
_TEXT: Final = {0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, 0x1F}
_BINARY: Final = {0x09, 0x16}


def varint(value: int) -> bytes:
    """Encode a Variable Byte Integer, section 1.5.5."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | 0x80 if value else low)
        if not value:
            return bytes(out)


def text(value: str | bytes) -> bytes:
    """Encode a UTF-8 Encoded String, or bytes that only claim to be one."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(data)) + data


def packet(kind: int, body: bytes = b"", *, flags: int = 0) -> bytes:
    """Return a whole packet."""
    return bytes([kind << 4 | flags]) + varint(len(body)) + body


def one_property(number: int, value: Value) -> bytes:
    """Encode one property."""
    if number == Prop.SUBSCRIPTION_ID and isinstance(value, int):
        return bytes([number]) + varint(value)
    if isinstance(value, int):
        size = 1 if number in _BYTE else 2 if number in _TWO else 4
        return bytes([number]) + value.to_bytes(size, "big")
    if isinstance(value, tuple):
        return bytes([number]) + text(value[0]) + text(value[1])
    return bytes([number]) + text(value)


def properties(found: Properties = ()) -> bytes:
    """Encode properties with their length."""
    body = b"".join(one_property(number, value) for number, value in found)
    return varint(len(body)) + body


@dataclass(frozen=True)
class WillMessage:
    """The will of a CONNECT; ``qos`` 3 can be sent too."""

    topic: str | bytes
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = ()


def connect(
    client_id: str | bytes = "",
    *,
    version: int = V5,
    clean: bool = True,
    keep_alive_s: int = 0,
    found: Properties = (),
    will: WillMessage | None = None,
    username: str | bytes | None = None,
    password: bytes | None = None,
    extra_flags: int = 0,
    name: str | None = None,
) -> bytes:
    """Return a CONNECT; ``extra_flags`` are added to the flags that the fields give."""
    flags = (CLEAN if clean else 0) | extra_flags
    payload = text(client_id)
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        payload += properties(will.properties) if version == V5 else b""
        payload += text(will.topic) + text(will.payload)
    if username is not None:
        flags |= 0x80
        payload += text(username)
    if password is not None:
        flags |= 0x40
        payload += text(password)
    head = text(name or ("MQIsdp" if version == V3_1 else "MQTT"))
    head += struct.pack(">BBH", version, flags, keep_alive_s)
    head += properties(found) if version == V5 else b""
    return packet(Kind.CONNECT, head + payload)


def publish(
    topic: str | bytes,
    payload: bytes = b"",
    *,
    qos: int = 0,
    packet_id: int | None = None,
    retain: bool = False,
    dup: bool = False,
    found: Properties = (),
    version: int = V5,
) -> bytes:
    """Return a PUBLISH; ``packet_id`` is 1 unless given, and left out at QoS 0."""
    body = text(topic)
    if qos:
        body += struct.pack(">H", 1 if packet_id is None else packet_id)
    body += properties(found) if version == V5 else b""
    return packet(Kind.PUBLISH, body + payload, flags=dup << 3 | qos << 1 | retain)


def ack(kind: Kind, packet_id: int, code: int | None = None) -> bytes:
    """Return a PUBACK, PUBREC, PUBREL or PUBCOMP, short when there is no code."""
    body = struct.pack(">H", packet_id) + (b"" if code is None else bytes([code]))
    return packet(kind, body, flags=2 if kind is Kind.PUBREL else 0)


def subscribe(
    packet_id: int,
    filters: Sequence[tuple[str | bytes, int]],
    *,
    found: Properties = (),
    version: int = V5,
) -> bytes:
    """Return a SUBSCRIBE of (filter, options byte) pairs."""
    body = struct.pack(">H", packet_id) + (properties(found) if version == V5 else b"")
    body += b"".join(text(name) + bytes([options]) for name, options in filters)
    return packet(Kind.SUBSCRIBE, body, flags=2)


def unsubscribe(packet_id: int, filters: Sequence[str | bytes], *, version: int = V5) -> bytes:
    """Return an UNSUBSCRIBE."""
    body = struct.pack(">H", packet_id) + (properties() if version == V5 else b"")
    return packet(Kind.UNSUBSCRIBE, body + b"".join(text(name) for name in filters), flags=2)


def disconnect(code: int = 0, *, found: Properties = (), version: int = V5) -> bytes:
    """Return a DISCONNECT; the reason code is left out when it is 0 and nothing follows."""
    if version != V5 or (code == 0 and not found):
        return packet(Kind.DISCONNECT)
    return packet(Kind.DISCONNECT, bytes([code]) + properties(found))


def auth(code: int, found: Properties) -> bytes:
    """Return an AUTH."""
    return packet(Kind.AUTH, bytes([code]) + properties(found))


PINGREQ: Final = packet(Kind.PINGREQ)


class Received:
    """A packet as it came, with its fields; those that its kind does not have stay empty."""

    def __init__(self, first: int, body: bytes, version: int) -> None:
        self.kind = Kind(first >> 4)
        self.flags = first & 0x0F
        self.body = body
        self.version = version
        self.code = 0
        self.codes: list[int] = []
        self.packet_id = 0
        self.session_present = False
        self.topic = ""
        self.payload = b""
        self.properties: list[tuple[int, Value]] = []
        self._at = 0
        _READERS.get(self.kind, Received._nothing)(self)

    def __repr__(self) -> str:
        return f"{self.kind.name} flags={self.flags:04b} {self.body[:80]!r}"

    @property
    def qos(self) -> int:
        """QoS of a PUBLISH."""
        return self.flags >> 1 & 3

    @property
    def dup(self) -> bool:
        """DUP flag of a PUBLISH."""
        return bool(self.flags & 8)

    @property
    def retain(self) -> bool:
        """RETAIN flag of a PUBLISH."""
        return bool(self.flags & 1)

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole packet."""
        return 1 + len(varint(len(self.body))) + len(self.body)

    def values(self, number: int) -> list[Value]:
        """Return all values of a property, in order."""
        return [value for found, value in self.properties if found == number]

    def value(self, number: int) -> Value | None:
        """Return the value of a property that comes once, or None."""
        values = self.values(number)
        assert len(values) <= 1, f"property {number:#x} came {len(values)} times: {self}"
        return values[0] if values else None

    def number(self, number: int, default: int) -> int:
        """Return the value of a numeric property."""
        value = self.value(number)
        return value if isinstance(value, int) else default

    def _take(self, size: int) -> bytes:
        data = self.body[self._at : self._at + size]
        assert len(data) == size, f"{self} ends too early"
        self._at += size
        return data

    def _int(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _data(self) -> bytes:
        return self._take(self._int(2))

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._int(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _one_value(self, number: int) -> Value:
        if number == Prop.SUBSCRIPTION_ID:
            return self._varint()
        if number == Prop.USER:
            return self._data().decode(), self._data().decode()
        if number in _BINARY:
            return self._data()
        if number in _TEXT:
            return self._data().decode()
        return self._int(1 if number in _BYTE else 2 if number in _TWO else 4)

    def _properties(self) -> None:
        if self.version != V5 or self._at == len(self.body):
            return
        end = self._varint()
        end += self._at
        while self._at < end:
            number = self._varint()
            self.properties.append((number, self._one_value(number)))
        assert self._at == end, f"properties of {self} do not fill their length"

    def _nothing(self) -> None:
        assert not self.body, f"{self} has a body"

    def _connack(self) -> None:
        flags, self.code = self._int(1), self._int(1)
        assert flags in {0, 1}, f"reserved bits of {self}"
        self.session_present = bool(flags)
        self._properties()
        self._end()

    def _publish(self) -> None:
        self.topic = self._data().decode()
        if self.qos:
            self.packet_id = self._int(2)
        self._properties()
        self.payload = self.body[self._at :]

    def _ack(self) -> None:
        self.packet_id = self._int(2)
        if self._at < len(self.body):
            self.code = self._int(1)
            self._properties()
        self._end()

    def _several(self) -> None:
        self.packet_id = self._int(2)
        self._properties()
        self.codes = list(self.body[self._at :])

    def _reason(self) -> None:
        if self.body:
            self.code = self._int(1)
            self._properties()
        self._end()

    def _end(self) -> None:
        assert self._at == len(self.body), f"bytes are left over in {self}"


_READERS: Final = {
    Kind.CONNACK: Received._connack,
    Kind.PUBLISH: Received._publish,
    Kind.PUBACK: Received._ack,
    Kind.PUBREC: Received._ack,
    Kind.PUBREL: Received._ack,
    Kind.PUBCOMP: Received._ack,
    Kind.SUBACK: Received._several,
    Kind.UNSUBACK: Received._several,
    Kind.DISCONNECT: Received._reason,
    Kind.AUTH: Received._reason,
}
