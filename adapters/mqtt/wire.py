"""Packets of MQTT, with the specification's names.

Rare packets are frozen dataclasses. Frequent packets are runs: the PUBLISH packets of one read
with the same topic, flags and properties, or the acknowledgements of one kind. Times are in
seconds, as on the wire.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from adapters.mqtt.errors import ReasonCode

PACKET_ID_MAX: Final = 65_535
REMAINING_LENGTH_MAX: Final = 268_435_455
EXACTLY_ONCE: Final = 2
"""The highest QoS."""
UserProperties = tuple[tuple[str, str], ...]


class Version(IntEnum):
    """The protocol level of CONNECT."""

    V3_1 = 3
    V3_1_1 = 4
    V5 = 5


class PacketType(IntEnum):
    """Bits 7 to 4 of the first byte (MQTT 5.0 section 2.1.2)."""

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


class PublishProperties(NamedTuple):
    """The properties of PUBLISH and of a will (MQTT 5.0 sections 3.3.2.3 and 3.1.3.2).

    ``None`` is absent. ``topic_alias`` and ``subscription_identifiers`` belong to one hop and
    are never stored.
    """

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: UserProperties = ()
    topic_alias: int | None = None
    subscription_identifiers: tuple[int, ...] = ()


NO_PROPERTIES: Final = PublishProperties()


class PublishRun:
    """Consecutive PUBLISH packets that differ in payload and packet identifier only.

    After decoding: ``topic`` is checked UTF-8, empty when only an alias was sent. ``data`` holds
    the packets as they came if they may be sent unchanged to a receiver of ``version`` (QoS 0,
    not retained, no property of one hop), else None.

    After reading from the log: ``base_offset`` is the offset of the first payload; the others
    follow without a gap. ``client_id`` is the publisher's, "" when unknown. ``expires_at_unix_ms``
    is 0 for never, and counts by ``Clock.steady_unix_ms`` once the run is delivered.

    ``live_number``: for messages of QoS 0 that were delivered before the log had them, the number
    of the first one (see ``reading.slow_receivers``); else 0.
    """

    __slots__ = (
        "base_offset",
        "client_id",
        "data",
        "dup",
        "expires_at_unix_ms",
        "forms",
        "live_number",
        "packet_ids",
        "payloads",
        "properties",
        "qos",
        "retain",
        "topic",
        "version",
    )

    # Hot paths pass these by position: a call with names takes 0.35 us more.
    def __init__(  # noqa: PLR0913, PLR0917 - the fields of a packet
        self,
        topic: bytes,
        payloads: list[bytes],
        qos: int = 0,
        retain: bool = False,  # noqa: FBT001, FBT002
        dup: bool = False,  # noqa: FBT001, FBT002
        packet_ids: Sequence[int] = (),
        properties: PublishProperties = NO_PROPERTIES,
        version: Version = Version.V5,
        data: bytes | None = None,
        client_id: str = "",
    ) -> None:
        self.topic = topic
        self.payloads = payloads
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_ids = packet_ids
        self.properties = properties
        self.version = version
        self.data = data
        self.client_id = client_id
        self.base_offset = -1
        self.expires_at_unix_ms = 0
        self.live_number = 0
        self.forms: dict[tuple[object, ...], object] | None = None  # encoded: see publish_forms

    def part(self, payloads: list[bytes], *, qos: int) -> "PublishRun":
        """Return some of the messages as a run of their own, without an offset."""
        part = PublishRun(
            self.topic,
            payloads,
            qos=qos,
            retain=self.retain,
            properties=self.properties,
            version=self.version,
            client_id=self.client_id,
        )
        part.expires_at_unix_ms = self.expires_at_unix_ms
        return part

    def packets(self, start: int, stop: int) -> "PublishRun":
        """Return the packets from ``start`` to ``stop`` as a run, as they were decoded."""
        part = self.part(self.payloads[start:stop], qos=self.qos)
        part.dup = self.dup
        part.packet_ids = self.packet_ids[start:stop]
        return part


class MixedTopicPublishes:
    """Consecutive PUBLISH packets that differ in topic, payload and packet identifier only.

    Their topics alternate, so each ``PublishRun`` would have one message. ``like`` is one of the
    messages, and has the fields that all share; QoS 2, DUP, an alias and an expiry are excluded.
    ``data``: the bytes of each packet, where a ``PublishRun`` has them, else empty.
    ``live_number``: as in a ``PublishRun``; it is set before ``runs`` is called.
    """

    __slots__ = (
        "_runs",
        "data",
        "like",
        "live_number",
        "packet_ids",
        "payloads",
        "qos",
        "topics",
    )

    def __init__(
        self,
        like: PublishRun,
        topics: list[bytes],
        payloads: list[bytes],
        packet_ids: list[int],
        data: list[bytes],
    ) -> None:
        self.like = like
        self.qos = like.qos
        self.topics = topics
        self.payloads = payloads
        self.packet_ids = packet_ids
        self.data = data
        self.live_number = 0
        self._runs: list[PublishRun] | None = None

    def part(self, place: slice) -> "MixedTopicPublishes":
        """Return some of the messages, without their packet identifiers."""
        topics, payloads, data = self.topics, self.payloads, self.data
        return MixedTopicPublishes(self.like, topics[place], payloads[place], [], data[place])

    def runs(self) -> list[PublishRun]:
        """Return the packets as runs of one message each, the same ones each time."""
        if self._runs is None:
            like = self.like
            found = self._runs = [
                PublishRun(
                    topic,
                    [payload],
                    like.qos,
                    like.retain,
                    properties=like.properties,
                    version=like.version,
                    client_id=like.client_id,
                )
                for topic, payload in zip(self.topics, self.payloads, strict=True)
            ]
            for run, packet_id in zip(found, self.packet_ids, strict=False):
                run.packet_ids = [packet_id]
            for run, data in zip(found, self.data, strict=False):
                run.data = data
            if self.live_number:
                for number, run in enumerate(found, self.live_number):
                    run.live_number = number
        return self._runs


PUBLISHES: Final = (PublishRun, MixedTopicPublishes)


class AckRun:
    """Consecutive PUBACK, PUBREC, PUBREL or PUBCOMP packets of one connection.

    ``reason_codes`` is None when all are 0 (always so in 3.x); reason strings and user
    properties of acknowledgements are checked and dropped.
    """

    __slots__ = ("kind", "packet_ids", "reason_codes")

    def __init__(
        self,
        kind: PacketType,
        packet_ids: Sequence[int],
        reason_codes: Sequence[int] | None = None,
    ) -> None:
        self.kind = kind
        self.packet_ids = packet_ids
        self.reason_codes = reason_codes


@dataclass(frozen=True, slots=True)
class Will:
    """Message published for a client that leaves without DISCONNECT (section 3.1.2.5)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: PublishProperties = NO_PROPERTIES
    delay_interval: int = 0


@dataclass(frozen=True, slots=True)
class Connect:
    """CONNECT (section 3.1). In 3.x ``clean_start`` is Clean Session; there are no properties.

    ``receive_maximum``, ``maximum_packet_size`` and ``topic_alias_maximum`` bind what we send.
    """

    version: Version
    client_id: str
    clean_start: bool = True
    keep_alive: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    session_expiry_interval: int = 0
    receive_maximum: int = PACKET_ID_MAX
    maximum_packet_size: int = REMAINING_LENGTH_MAX + 5
    topic_alias_maximum: int = 0
    request_response_information: bool = False
    request_problem_information: bool = True
    user_properties: UserProperties = ()
    authentication_method: str | None = None
    authentication_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Connack:
    """CONNACK (section 3.2). ``None`` omits a property; 3.x has a return code only."""

    reason_code: ReasonCode = ReasonCode.SUCCESS
    session_present: bool = False
    session_expiry_interval: int | None = None
    receive_maximum: int | None = None
    maximum_qos: int | None = None
    retain_available: bool | None = None
    maximum_packet_size: int | None = None
    assigned_client_identifier: str | None = None
    topic_alias_maximum: int | None = None
    reason_string: str | None = None
    user_properties: UserProperties = ()
    wildcard_subscription_available: bool | None = None
    subscription_identifiers_available: bool | None = None
    shared_subscription_available: bool | None = None
    server_keep_alive: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """One topic filter of SUBSCRIBE with its options (section 3.8.3.1)."""

    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUBSCRIBE (section 3.8)."""

    packet_id: int
    requests: tuple[SubscriptionRequest, ...]
    subscription_identifier: int | None = None
    user_properties: UserProperties = ()


@dataclass(frozen=True, slots=True)
class Suback:
    """SUBACK (section 3.9). Codes 0 to 2 are the granted QoS."""

    packet_id: int
    reason_codes: tuple[int, ...]
    reason_string: str | None = None
    user_properties: UserProperties = ()


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """UNSUBSCRIBE (section 3.10)."""

    packet_id: int
    topic_filters: tuple[str, ...]
    user_properties: UserProperties = ()


@dataclass(frozen=True, slots=True)
class Unsuback:
    """UNSUBACK (section 3.11). 3.x has no reason codes on the wire."""

    packet_id: int
    reason_codes: tuple[int, ...]
    reason_string: str | None = None
    user_properties: UserProperties = ()


@dataclass(frozen=True, slots=True)
class Pingreq:
    """PINGREQ (section 3.12)."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """DISCONNECT (section 3.14). A server does not send one in 3.x."""

    reason_code: ReasonCode = ReasonCode.SUCCESS
    session_expiry_interval: int | None = None
    reason_string: str | None = None
    user_properties: UserProperties = ()
    server_reference: str | None = None


@dataclass(frozen=True, slots=True)
class Auth:
    """AUTH (section 3.15); 5.0 only."""

    reason_code: ReasonCode = ReasonCode.SUCCESS
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    reason_string: str | None = None
    user_properties: UserProperties = ()


Packet = (
    Connect
    | Subscribe
    | Unsubscribe
    | Pingreq
    | Disconnect
    | Auth
    | PublishRun
    | MixedTopicPublishes
    | AckRun
)
