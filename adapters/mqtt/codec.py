"""Rare packets and acknowledgements: bytes <-> wire (MQTT 5.0, 3.1.1 and 3.1, chapter 3).

Decoders take a packet's body, what follows the fixed header, and raise ``MqttError`` with the
exact reason code. Encoders give whole packets. Those with a reason string or user properties
take ``bytes_max``, the client's Maximum Packet Size: user properties, then the reason string,
are left out when the packet would be larger (MQTT-3.2.2-19, MQTT-3.2.2-20 and their like).
CONNECT is in ``connect_codec``, PUBLISH in ``publish_codec`` and ``publish_forms``.
"""

from collections.abc import Sequence
from struct import Struct, pack
from typing import Final

from adapters.mqtt.errors import MqttError, ReasonCode, return_code
from adapters.mqtt.packets import properties as p
from adapters.mqtt.packets.connect_codec import decode_connect, version_to_refuse
from adapters.mqtt.packets.primitives import (
    VARINT_MAX,
    decode_text,
    decode_uint16,
    encode_varint,
    malformed,
    protocol_error,
)
from adapters.mqtt.packets.properties import (
    USER_PROPERTIES_MAX,
    Properties,
    Property,
    decode_properties,
    encode_bytes,
    encode_number,
    encode_string,
    encode_user_properties,
)
from adapters.mqtt.wire import (
    EXACTLY_ONCE,
    AckRun,
    Auth,
    Connack,
    Disconnect,
    PacketType,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    UserProperties,
    Version,
)

__all__ = [
    "FILTERS_MAX",
    "PACKET_BYTES_MAX",
    "PINGRESP",
    "decode_ack",
    "decode_auth",
    "decode_connect",
    "decode_disconnect",
    "decode_subscribe",
    "decode_unsubscribe",
    "encode_acks",
    "encode_auth",
    "encode_connack",
    "encode_disconnect",
    "encode_suback",
    "encode_unsuback",
    "version_to_refuse",
]

PINGRESP: Final = b"\xd0\x00"
PACKET_BYTES_MAX: Final = VARINT_MAX + 5
FILTERS_MAX: Final = 10_000
_FAILURE: Final = 0x80
_RETAIN_HANDLING_MAX: Final = 2
_SHARED: Final = "$share/"
_SHORT_ACK: Final = Struct(">HH")
_SHORT_ACK_HEADS: Final = tuple(  # by packet type
    kind << 12 | (0x0202 if kind is PacketType.PUBREL else 0x0002) for kind in (0, *PacketType)
)

_PUBLISH_ACK_CODES: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_RELEASE_CODES: Final = frozenset({0x00, 0x92})
_ACK_CODES: Final[dict[int, frozenset[int]]] = {
    PacketType.PUBACK: _PUBLISH_ACK_CODES,
    PacketType.PUBREC: _PUBLISH_ACK_CODES,
    PacketType.PUBREL: _RELEASE_CODES,
    PacketType.PUBCOMP: _RELEASE_CODES,
}
"""MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-3.6.2-1, MQTT-3.7.2-1."""

_CLIENT_DISCONNECT_CODES: Final = frozenset(
    {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99}
)
"""MQTT-3.14.2-1: the values of table 3-10 that a client may send."""
_CLIENT_AUTH_CODES: Final = frozenset(
    {ReasonCode.CONTINUE_AUTHENTICATION, ReasonCode.RE_AUTHENTICATE}
)


def decode_ack(
    kind: PacketType, body: bytes, version: Version, properties_max: int = USER_PROPERTIES_MAX
) -> AckRun:
    """Return one acknowledgement of any length, a run of one (sections 3.4 to 3.7)."""
    packet_id, at = _packet_id(body)
    code = 0
    if at < len(body) and version == Version.V5:
        code, at = body[at], at + 1
        if at < len(body):
            _, at = decode_properties(body, at, p.ACKNOWLEDGEMENT, properties_max)
    if at != len(body):
        raise malformed("bytes follow an acknowledgement")
    if code not in _ACK_CODES[kind]:
        raise protocol_error(f"{kind.name} has reason code {code:#x}")
    return AckRun(kind, [packet_id], [code] if code else None)


def encode_acks(
    kind: PacketType,
    packet_ids: Sequence[int],
    version: Version,
    reason_codes: Sequence[int] | None = None,
) -> bytes:
    """Return PUBACK, PUBREC, PUBREL or PUBCOMP packets, one for each identifier.

    Reason code 0 is left out (section 3.4.2.1), and 3.x has none.
    """
    if reason_codes is None and len(packet_ids) == 1:  # who waits for each gets one at a time
        return _SHORT_ACK.pack(_SHORT_ACK_HEADS[kind], packet_ids[0])
    first = kind << 4 | (2 if kind is PacketType.PUBREL else 0)
    if reason_codes is None or version != Version.V5 or not any(reason_codes):
        words = [first << 8 | 2] * (2 * len(packet_ids))
        words[1::2] = packet_ids
        return pack(f">{len(words)}H", *words)
    return b"".join(
        pack(">BBHB", first, 3, packet_id, code) if code else pack(">BBH", first, 2, packet_id)
        for packet_id, code in zip(packet_ids, reason_codes, strict=True)
    )


def decode_subscribe(
    body: bytes,
    version: Version,
    filters_max: int = FILTERS_MAX,
    properties_max: int = USER_PROPERTIES_MAX,
) -> Subscribe:
    """Return a SUBSCRIBE (section 3.8); the syntax of its filters is for ``filters`` to say."""
    packet_id, at = _packet_id(body)
    found = Properties()
    if version == Version.V5:
        found, at = decode_properties(body, at, p.SUBSCRIBE, properties_max)
    if len(found.subscription_identifiers) > 1:
        raise protocol_error("SUBSCRIBE has two subscription identifiers")
    requests = []
    while at < len(body):
        topic_filter, at = decode_text(body, at)
        if at == len(body):
            raise malformed("SUBSCRIBE ends before the options of a filter")
        requests.append(_subscription_request(topic_filter, body[at], version))
        at += 1
        if len(requests) > filters_max:
            raise _too_many_filters(filters_max)
    if not requests:  # MQTT-3.8.3-2
        raise protocol_error("SUBSCRIBE has no topic filter")
    return Subscribe(
        packet_id,
        tuple(requests),
        next(iter(found.subscription_identifiers), None),
        tuple(found.user_properties),
    )


def _subscription_request(
    topic_filter: str, options: int, version: Version
) -> SubscriptionRequest:
    """Return a filter with its options (section 3.8.3.1); of 3.1 all but QoS is ignored."""
    if version == Version.V3_1:
        options &= 3
    reserved = 0xC0 if version == Version.V5 else 0xFC
    if options & reserved:  # MQTT-3.8.3-5
        raise malformed("reserved bits of the subscription options are set")
    request = SubscriptionRequest(
        topic_filter=topic_filter,
        qos=options & 3,
        no_local=bool(options & 4),
        retain_as_published=bool(options & 8),
        retain_handling=options >> 4,
    )
    if request.qos > EXACTLY_ONCE or request.retain_handling > _RETAIN_HANDLING_MAX:
        raise protocol_error("QoS or Retain Handling of a subscription is 3")
    if request.no_local and topic_filter.startswith(_SHARED):  # MQTT-3.8.3-4
        raise protocol_error("a shared subscription has No Local")
    return request


def decode_unsubscribe(
    body: bytes,
    version: Version,
    filters_max: int = FILTERS_MAX,
    properties_max: int = USER_PROPERTIES_MAX,
) -> Unsubscribe:
    """Return an UNSUBSCRIBE (section 3.10)."""
    packet_id, at = _packet_id(body)
    found = Properties()
    if version == Version.V5:
        found, at = decode_properties(body, at, p.UNSUBSCRIBE, properties_max)
    filters = []
    while at < len(body):
        topic_filter, at = decode_text(body, at)
        filters.append(topic_filter)
        if len(filters) > filters_max:
            raise _too_many_filters(filters_max)
    if not filters:  # MQTT-3.10.3-2
        raise protocol_error("UNSUBSCRIBE has no topic filter")
    return Unsubscribe(packet_id, tuple(filters), tuple(found.user_properties))


def _too_many_filters(filters_max: int) -> MqttError:
    return MqttError(ReasonCode.QUOTA_EXCEEDED, f"a packet has more than {filters_max} filters")


def decode_disconnect(
    body: bytes, version: Version, user_properties_max: int = USER_PROPERTIES_MAX
) -> Disconnect:
    """Return a DISCONNECT of a client (section 3.14); no bytes mean reason code 0."""
    if not body:
        return Disconnect()
    if version != Version.V5:
        raise malformed("DISCONNECT has a body")
    code, found = _code_and_properties(body, p.DISCONNECT, user_properties_max)
    if code not in _CLIENT_DISCONNECT_CODES:
        raise protocol_error(f"a client's DISCONNECT has reason code {code:#x}")
    if Property.SERVER_REFERENCE in found.texts:
        raise protocol_error("a client's DISCONNECT has a server reference")
    return Disconnect(
        ReasonCode(code),
        found.numbers.get(Property.SESSION_EXPIRY_INTERVAL),
        found.texts.get(Property.REASON_STRING),
        tuple(found.user_properties),
    )


def decode_auth(
    body: bytes, version: Version = Version.V5, properties_max: int = USER_PROPERTIES_MAX
) -> Auth:
    """Return an AUTH of a client (section 3.15): it goes on, or authenticates again."""
    if version != Version.V5:
        raise malformed("there is no AUTH before 5.0")
    code, found = 0, Properties()
    if body:
        code, found = _code_and_properties(body, p.AUTH, properties_max)
    if code not in _CLIENT_AUTH_CODES:  # MQTT-3.15.2-1
        raise protocol_error(f"a client's AUTH has reason code {code:#x}")
    method = found.texts.get(Property.AUTHENTICATION_METHOD)
    if method is None:  # Section 3.15.2.2.2
        raise protocol_error("AUTH has no authentication method")
    return Auth(
        ReasonCode(code),
        method,
        found.binaries.get(Property.AUTHENTICATION_DATA),
        found.texts.get(Property.REASON_STRING),
        tuple(found.user_properties),
    )


def _packet_id(body: bytes) -> tuple[int, int]:
    packet_id, at = decode_uint16(body, 0)
    if not packet_id:  # MQTT-2.2.1-3
        raise protocol_error("a packet identifier is 0")
    return packet_id, at


def _code_and_properties(
    body: bytes, allowed: frozenset[int], user_properties_max: int
) -> tuple[int, Properties]:
    """Return a reason code and properties, which may be missing, from a body of both."""
    found, end = Properties(), 1
    if len(body) > 1:
        found, end = decode_properties(body, 1, allowed, user_properties_max)
    if end != len(body):
        raise malformed("bytes follow the properties")
    return body[0], found


def encode_connack(
    connack: Connack, version: Version, bytes_max: int = PACKET_BYTES_MAX
) -> bytes:
    """Return a CONNACK (section 3.2); nothing where 3.x has no code and only closes.

    Session Present is 0 with every code but 0 (MQTT-3.2.2-6), and in 3.1.
    """
    present = connack.session_present and connack.reason_code == ReasonCode.SUCCESS
    if version != Version.V5:
        code = return_code(connack.reason_code)
        if code is None:
            return b""
        return bytes((0x20, 2, present and version == Version.V3_1_1, code))
    fixed = b"".join(
        (
            encode_number(Property.SESSION_EXPIRY_INTERVAL, connack.session_expiry_interval),
            encode_number(Property.RECEIVE_MAXIMUM, connack.receive_maximum),
            encode_number(Property.MAXIMUM_QOS, connack.maximum_qos),
            encode_number(Property.RETAIN_AVAILABLE, connack.retain_available),
            encode_number(Property.MAXIMUM_PACKET_SIZE, connack.maximum_packet_size),
            encode_string(
                Property.ASSIGNED_CLIENT_IDENTIFIER, connack.assigned_client_identifier
            ),
            encode_number(Property.TOPIC_ALIAS_MAXIMUM, connack.topic_alias_maximum),
            encode_number(
                Property.WILDCARD_SUBSCRIPTION_AVAILABLE,
                connack.wildcard_subscription_available,
            ),
            encode_number(
                Property.SUBSCRIPTION_IDENTIFIERS_AVAILABLE,
                connack.subscription_identifiers_available,
            ),
            encode_number(
                Property.SHARED_SUBSCRIPTION_AVAILABLE, connack.shared_subscription_available
            ),
            encode_number(Property.SERVER_KEEP_ALIVE, connack.server_keep_alive),
            encode_string(Property.RESPONSE_INFORMATION, connack.response_information),
            encode_string(Property.SERVER_REFERENCE, connack.server_reference),
            encode_string(Property.AUTHENTICATION_METHOD, connack.authentication_method),
            encode_bytes(Property.AUTHENTICATION_DATA, connack.authentication_data),
        )
    )
    head = bytes((present, connack.reason_code))
    notes = (connack.reason_string, connack.user_properties)
    return _packet(0x20, head, fixed, notes, b"", bytes_max)


def encode_suback(suback: Suback, version: Version, bytes_max: int = PACKET_BYTES_MAX) -> bytes:
    """Return a SUBACK (section 3.9); 3.x knows one code for all failures (MQTT-3.9.3-2)."""
    packet_id = suback.packet_id.to_bytes(2)
    if version != Version.V5:
        return _body(0x90, packet_id + bytes(min(x, _FAILURE) for x in suback.reason_codes))
    notes = (suback.reason_string, suback.user_properties)
    return _packet(0x90, packet_id, b"", notes, bytes(suback.reason_codes), bytes_max)


def encode_unsuback(
    unsuback: Unsuback, version: Version, bytes_max: int = PACKET_BYTES_MAX
) -> bytes:
    """Return an UNSUBACK (section 3.11), in 3.x without codes."""
    packet_id = unsuback.packet_id.to_bytes(2)
    if version != Version.V5:
        return _body(0xB0, packet_id)
    notes = (unsuback.reason_string, unsuback.user_properties)
    return _packet(0xB0, packet_id, b"", notes, bytes(unsuback.reason_codes), bytes_max)


def encode_disconnect(
    disconnect: Disconnect, version: Version, bytes_max: int = PACKET_BYTES_MAX
) -> bytes:
    """Return a server's DISCONNECT (section 3.14); nothing in 3.x, where servers only close."""
    if version != Version.V5:
        return b""
    head = bytes((disconnect.reason_code,))
    fixed = encode_string(Property.SERVER_REFERENCE, disconnect.server_reference)
    notes = (disconnect.reason_string, disconnect.user_properties)
    return _packet(0xE0, head, fixed, notes, b"", bytes_max)


def encode_auth(
    auth: Auth, version: Version = Version.V5, bytes_max: int = PACKET_BYTES_MAX
) -> bytes:
    """Return an AUTH (section 3.15); 5.0 only."""
    assert version == Version.V5, version
    fixed = encode_string(Property.AUTHENTICATION_METHOD, auth.authentication_method)
    fixed += encode_bytes(Property.AUTHENTICATION_DATA, auth.authentication_data)
    notes = (auth.reason_string, auth.user_properties)
    return _packet(0xF0, bytes((auth.reason_code,)), fixed, notes, b"", bytes_max)


def _packet(  # noqa: PLR0917 - the parts of a packet, in their order
    first: int,
    head: bytes,
    fixed: bytes,
    notes: tuple[str | None, UserProperties],
    payload: bytes,
    bytes_max: int,
) -> bytes:
    """Return a packet with as many of its notes (reason string, user properties) as fit.

    ``fixed`` are its other properties. A packet too large without notes is given all the same:
    leaving it out is for who sends it.
    """
    reason = encode_string(Property.REASON_STRING, notes[0])
    users = encode_user_properties(notes[1])
    packet = b""
    for extra in (reason + users, reason, b""):
        section = fixed + extra
        packet = _body(first, head + encode_varint(len(section)) + section + payload)
        if len(packet) <= bytes_max:
            break
    return packet


def _body(first: int, body: bytes) -> bytes:
    return bytes((first,)) + encode_varint(len(body)) + body
