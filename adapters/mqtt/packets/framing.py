"""The stream of bytes of one client -> packets (MQTT 5.0 section 2.1): any cut, any order.

What one read brought comes out as runs and rare packets in the order of the stream.
"""

from struct import unpack
from typing import Final, NamedTuple

from adapters.mqtt.codec import (
    FILTERS_MAX,
    decode_ack,
    decode_auth,
    decode_connect,
    decode_disconnect,
    decode_subscribe,
    decode_unsubscribe,
    version_to_refuse,
)
from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.packets.primitives import (
    decode_varint,
    malformed,
    protocol_error,
)
from adapters.mqtt.packets.properties import USER_PROPERTIES_MAX
from adapters.mqtt.packets.publish_codec import (
    PUBLISH_MAX,
    PUBLISH_MIN,
    WORK_BYTES,
    Likeness,
    decode_publishes,
)
from adapters.mqtt.wire import AckRun, Packet, PacketType, Pingreq, PublishRun, Version
from gateway.errors import as_value

_FLAGS: Final[dict[int, int]] = {
    PacketType.CONNECT: 0,
    PacketType.PUBACK: 0,
    PacketType.PUBREC: 0,
    PacketType.PUBREL: 2,
    PacketType.PUBCOMP: 0,
    PacketType.SUBSCRIBE: 2,
    PacketType.UNSUBSCRIBE: 2,
    PacketType.PINGREQ: 0,
    PacketType.DISCONNECT: 0,
    PacketType.AUTH: 0,
}
"""Bits 3 to 0 of what a client may send, but PUBLISH (table 2-2)."""
_QOS: Final = 0x06
_USED_IN_V3_1: Final = {
    PacketType.PUBREL: _QOS,
    PacketType.SUBSCRIBE: _QOS,
    PacketType.UNSUBSCRIBE: _QOS,
}
"""Bits that must be as in ``_FLAGS``. MQTT 3.1 (section 2.1) calls the others not used, and has
DUP here, which says nothing that matters."""
_BEFORE_LOGIN: Final = frozenset({PacketType.AUTH, PacketType.DISCONNECT})  # behind CONNECT
_ACKS: Final = range(PacketType.PUBACK, PacketType.PUBCOMP + 1)
_SHORT_ACK_BYTES: Final = 4
_LIKENESS_BYTES_MAX: Final = 512  # of headers that are remembered for each connection
_CONNECT_HEAD_BYTES: Final = 7  # the protocol's name and its level
SLICE_WORK: Final = 128
"""Bounds of one decoding: runs, other packets and each ``WORK_BYTES`` count as one."""
_STRETCH_MIN: Final = 64
_STRETCH_GROWTH: Final = 4
"""Acknowledgements looked at in one go, at first, and how that grows while all of them fit."""


class ConnectMax(NamedTuple):
    """Bounds of CONNECT, which anybody may send."""

    packet_bytes: int
    properties: int = USER_PROPERTIES_MAX  # user properties, of CONNECT and of the will each


class PacketReader:
    """Packets out of a client's bytes.

    ``version`` is None until CONNECT was decoded (who says 5.0 is told what is wrong with it);
    the first packet must be CONNECT (MQTT-3.1.0-1) and no other may be (MQTT-3.1.0-2).
    ``has_partial``: bytes of a packet that is not there in whole are kept. ``error`` is set by
    the first packet at fault: handle what ``receive`` returned, then raise it; nothing more is
    decoded. ``likeness``: what packets are like that come one at a time.

    With a ``connect_max`` nothing is decoded between CONNECT and ``admit``, but for one AUTH or
    DISCONNECT after each ``expect_auth``. ``is_cut``: there are bytes to be looked at then, by
    ``receive(b"")``; after the login they are what is left of a read with more work in it than
    one slice has (``SLICE_WORK``).
    """

    __slots__ = (
        "_connect_max",
        "_filters_max",
        "_is_admitted",
        "_last_topic",
        "_packet_bytes_max",
        "_partial",
        "_properties_max",
        "_wanted_bytes",
        "error",
        "expects_auth",
        "has_partial",
        "is_cut",
        "likeness",
        "version",
    )

    def __init__(
        self,
        packet_bytes_max: int,
        filters_max: int = FILTERS_MAX,
        *,
        connect_max: "ConnectMax | None" = None,
        properties_max: int = USER_PROPERTIES_MAX,
    ) -> None:
        """``packet_bytes_max`` bounds one packet, its fixed header with it.

        ``filters_max`` bounds the filters of one SUBSCRIBE or UNSUBSCRIBE, ``properties_max``
        (``USER_PROPERTIES_MAX_MIN`` or more) the user properties of a packet after the login.
        """
        self._properties_max = properties_max
        self._filters_max = filters_max
        self._connect_max = connect_max or ConnectMax(packet_bytes_max)
        self._is_admitted = connect_max is None
        self.expects_auth = False
        self.is_cut = False
        self._packet_bytes_max = packet_bytes_max
        self._partial = bytearray()
        self._wanted_bytes = 0  # Of ``_partial``, before it is worth looking at again.
        self._last_topic: bytes | None = None  # of a PUBLISH that came alone
        self.likeness: Likeness | None = None
        self.has_partial = False
        self.version: Version | None = None
        self.error: MqttError | None = None

    @property
    def partial_bytes(self) -> int:
        """Bytes kept of a packet that is not complete."""
        return len(self._partial)

    def admit(self) -> None:
        """Decode all from now on: the client is who it should be."""
        self._is_admitted = True

    def expect_auth(self) -> None:
        """Decode one packet more: the client was asked to show who it is."""
        self.expects_auth = True

    def receive(self, data: bytes) -> list[Packet]:
        """Return the packets that ``data`` completes, in order.

        Error: none; ``error`` has what the peer did wrong. PACKET_TOO_LARGE comes as soon as
        the length is known.
        """
        packets: list[Packet] = []
        if self.error is not None:
            return packets
        if self._partial:
            self._partial += data
            if len(self._partial) < self._wanted_bytes:
                return packets
            data = bytes(self._partial)
            self._partial.clear()
            self.has_partial = self.is_cut = False
        elif self.likeness is not None and len(data) <= self._packet_bytes_max:
            run = self.likeness.decode(data)
            if run is not None:
                packets.append(run)
                return packets
        try:
            at = self._decode(data, packets)
        except MqttError as error:
            self.error = as_value(error)
        else:
            if at < len(data):
                self._partial += data[at:]
                self.has_partial = True
            elif len(packets) == 1 and type(packets[0]) is PublishRun:
                self._learn(data, packets[0])
        return packets

    def _learn(self, data: bytes, run: PublishRun) -> None:
        """Remember what packets are like when a second one comes alone with the same topic."""
        topic, last_topic = run.topic, self._last_topic
        self._last_topic = None
        if len(run.payloads) == 1 and len(data) - len(run.payloads[0]) <= _LIKENESS_BYTES_MAX:
            self._last_topic = topic
            if topic == last_topic:
                self.likeness = Likeness(data, run)

    def _decode(self, data: bytes, packets: list[Packet]) -> int:
        """Append what is complete; return where the first packet begins that is not."""
        if not self._is_admitted:
            return self._decode_before_login(data, packets)
        at, work = 0, 0
        while at < len(data):
            start, count, first = at, len(packets), data[at]
            if PUBLISH_MIN <= first <= PUBLISH_MAX and self.version is not None:
                if work < SLICE_WORK:
                    at = decode_publishes(
                        data,
                        at,
                        self.version,
                        packets,
                        self._packet_bytes_max,
                        self._properties_max,
                        count + SLICE_WORK - work,
                    )
            else:
                self._check_first_byte(first)
            if at == start:
                bounds = self._bounds(data, at)
                if bounds is None:
                    break
                if work >= SLICE_WORK:
                    self.is_cut, self._wanted_bytes = True, 0
                    break
                at = self._decode_one(data, at, bounds, packets)
            work += len(packets) - count + (at - start) // WORK_BYTES
        return at

    def _decode_before_login(self, data: bytes, packets: list[Packet]) -> int:
        """Append the first packet if it may be looked at; return where it ends."""
        if self.version is not None and not self.expects_auth:
            self.is_cut, self._wanted_bytes = True, 0
            return 0
        self._check_first_byte(data[0])
        kind = PacketType(data[0] >> 4)
        if self.version is not None and kind not in _BEFORE_LOGIN:
            raise protocol_error(f"{kind.name} instead of AUTH")
        bounds = self._bounds(data, 0)
        if bounds is None:
            return 0
        self.expects_auth = False
        at = self._decode_one(data, 0, bounds, packets)
        self.is_cut, self._wanted_bytes = at < len(data), 0
        return at

    def _bounds(self, data: bytes, at: int) -> tuple[int, int] | None:
        """Return where a packet's body begins and ends, or None when it is not all there."""
        found = decode_varint(data, at + 1)
        if found is None:
            self._wanted_bytes = len(data) - at + 1
            return None
        length, body_at = found
        end = body_at + length
        if not self._is_admitted and end - at > self._connect_max.packet_bytes:
            head = data[body_at : body_at + _CONNECT_HEAD_BYTES]
            self.version = self.version or version_to_refuse(head)
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, "a packet is above connect_bytes_max")
        if end - at > self._packet_bytes_max:
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, "a packet is above the maximum")
        if end > len(data):
            self._wanted_bytes = end - at
            return None
        return body_at, end

    def _check_first_byte(self, first: int) -> None:
        """Raise when a client may not send a packet with this byte, or not now."""
        kind, flags = first >> 4, first & 0x0F
        if (self.version is None) != (kind == PacketType.CONNECT):
            raise protocol_error("the first packet, and no other, must be CONNECT")
        if not kind or (kind == PacketType.AUTH and self.version != Version.V5):
            raise malformed(f"packet type {kind} is reserved")
        if kind not in _FLAGS:
            raise protocol_error(f"a client sent {PacketType(kind).name}")
        if kind != PacketType.CONNECT:  # which says of what version it is
            self._check_flags(PacketType(kind), flags, self.version)

    @staticmethod
    def _check_flags(kind: PacketType, flags: int, version: Version | None) -> None:
        if version == Version.V3_1:
            flags &= _USED_IN_V3_1.get(kind, 0)
        if flags != _FLAGS[kind]:  # MQTT-2.1.3-1
            raise malformed(f"{kind.name} has flags {flags:04b}")

    def _decode_one(
        self, data: bytes, at: int, bounds: tuple[int, int], packets: list[Packet]
    ) -> int:
        """Append the packet at ``at``, or a run of acknowledgements; return where it ends."""
        body_at, end = bounds
        kind = data[at] >> 4
        if kind in _ACKS and end - at == _SHORT_ACK_BYTES:
            return _take_acks(data, at, packets)
        body = data[body_at:end]
        version = self.version
        if version is None:
            try:
                connect = decode_connect(body, self._connect_max.properties)
                self._check_flags(PacketType.CONNECT, data[at] & 0x0F, connect.version)
            except MqttError:
                self.version = version_to_refuse(body)
                raise
            self.version = connect.version
            packets.append(connect)
        else:
            packets.append(self._decode_body(PacketType(kind), body, version))
        return end

    def _decode_body(self, kind: PacketType, body: bytes, version: Version) -> Packet:
        properties_max = self._properties_max
        if kind in _ACKS:
            return decode_ack(kind, body, version, properties_max)
        if kind == PacketType.PINGREQ:
            if body:
                raise malformed("PINGREQ has a body")
            return Pingreq()
        if kind == PacketType.SUBSCRIBE:
            return decode_subscribe(body, version, self._filters_max, properties_max)
        if kind == PacketType.UNSUBSCRIBE:
            return decode_unsubscribe(body, version, self._filters_max, properties_max)
        if not self._is_admitted:
            properties_max = self._connect_max.properties
        if kind == PacketType.DISCONNECT:
            return decode_disconnect(body, version, properties_max)
        assert kind == PacketType.AUTH
        return decode_auth(body, version, properties_max)


def _take_acks(data: bytes, at: int, packets: list[Packet]) -> int:
    """Append the run of short acknowledgements at ``at``; return where it ends."""
    wanted = data[at] << 8 | 2
    packet_ids: list[int] = []
    count_max = _STRETCH_MIN
    while True:
        count = min((len(data) - at) // _SHORT_ACK_BYTES, count_max)
        words = unpack(f">{2 * count}H", data[at : at + _SHORT_ACK_BYTES * count])
        heads, found = words[0::2], words[1::2]
        if heads.count(wanted) != count:
            count = next(i for i, head in enumerate(heads) if head != wanted)
        at += _SHORT_ACK_BYTES * count
        packet_ids += found[:count]
        if count < count_max:
            break
        count_max *= _STRETCH_GROWTH
    if 0 in packet_ids:  # MQTT-2.2.1-3
        packet_ids = packet_ids[: packet_ids.index(0)]
        _append_acks(wanted, packet_ids, packets)
        raise protocol_error("a packet identifier is 0")
    _append_acks(wanted, packet_ids, packets)
    return at


def _append_acks(head: int, packet_ids: list[int], packets: list[Packet]) -> None:
    if packet_ids:
        packets.append(AckRun(PacketType(head >> 12), packet_ids))
