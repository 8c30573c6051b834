"""Packets that refuse: the reason codes that each may have (section 2.4), and the reason string.

An error of the node becomes a code by ``errors.reason_code``; a packet that may not have that
code has the nearest one that it may have.
"""

from typing import Final

from adapters.mqtt.codec import encode_connack, encode_disconnect
from adapters.mqtt.errors import ReasonCode as Code
from adapters.mqtt.packets.primitives import encode_varint
from adapters.mqtt.packets.properties import Property, encode_string
from adapters.mqtt.wire import Connack, Disconnect, PacketType, Version

_COMMON: Final = frozenset(
    {Code.UNSPECIFIED_ERROR, Code.IMPLEMENTATION_SPECIFIC_ERROR, Code.NOT_AUTHORIZED}
)
ACK_CODES: Final = _COMMON | {
    Code.SUCCESS,
    Code.NO_MATCHING_SUBSCRIBERS,
    Code.TOPIC_NAME_INVALID,
    Code.PACKET_IDENTIFIER_IN_USE,
    Code.QUOTA_EXCEEDED,
    Code.PAYLOAD_FORMAT_INVALID,
}
"""PUBACK and PUBREC (sections 3.4.2.1 and 3.5.2.1)."""
SUBACK_CODES: Final = _COMMON | {
    Code.SUCCESS,
    Code.GRANTED_QOS_1,
    Code.GRANTED_QOS_2,
    Code.TOPIC_FILTER_INVALID,
    Code.PACKET_IDENTIFIER_IN_USE,
    Code.QUOTA_EXCEEDED,
    Code.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    Code.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    Code.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
}
"""Section 3.9.3."""
UNSUBACK_CODES: Final = _COMMON | {
    Code.SUCCESS,
    Code.NO_SUBSCRIPTION_EXISTED,
    Code.TOPIC_FILTER_INVALID,
    Code.PACKET_IDENTIFIER_IN_USE,
}
"""Section 3.11.3."""

_NOT_IN_CONNACK: Final = {
    Code.SERVER_SHUTTING_DOWN: Code.SERVER_UNAVAILABLE,
    Code.TOPIC_ALIAS_INVALID: Code.PROTOCOL_ERROR,
    Code.RECEIVE_MAXIMUM_EXCEEDED: Code.PROTOCOL_ERROR,
}
_NOT_IN_DISCONNECT: Final = {
    Code.SERVER_UNAVAILABLE: Code.SERVER_BUSY,
    Code.BAD_USER_NAME_OR_PASSWORD: Code.NOT_AUTHORIZED,
    Code.BAD_AUTHENTICATION_METHOD: Code.NOT_AUTHORIZED,
    Code.CLIENT_IDENTIFIER_NOT_VALID: Code.NOT_AUTHORIZED,
}


def within(codes: frozenset[Code], code: Code) -> Code:
    """Return ``code`` when a packet may bear it, else what comes nearest.

    >>> within(ACK_CODES, Code.PACKET_TOO_LARGE).name
    'QUOTA_EXCEEDED'
    """
    if code in codes:
        return code
    if code is Code.PACKET_TOO_LARGE and Code.QUOTA_EXCEEDED in codes:
        return Code.QUOTA_EXCEEDED
    return Code.IMPLEMENTATION_SPECIFIC_ERROR


def can_refuse(code: Code, version: Version | None) -> bool:
    """Say whether a CONNACK says so to a client whose CONNECT is of that version, if any was read.

    None has a code for a takeover; who has said nothing that we understand is not answered.
    """
    if code is Code.SESSION_TAKEN_OVER:
        return False
    return version is not None or code is Code.UNSUPPORTED_PROTOCOL_VERSION


def last_connack(
    code: Code, message: str, reference: str | None, version: Version, bytes_max: int
) -> bytes:
    """Return the CONNACK that says no (section 3.2.2.2), if any; "" is no message."""
    packet = Connack(
        reason_code=_NOT_IN_CONNACK.get(code, code),
        reason_string=message or None,
        server_reference=reference,
    )
    return encode_connack(packet, version, bytes_max)


def last_disconnect(
    code: Code, message: str, reference: str | None, version: Version, bytes_max: int
) -> bytes:
    """Return a server's DISCONNECT (section 3.14.2.1), if any; "" is no message."""
    packet = Disconnect(
        reason_code=_NOT_IN_DISCONNECT.get(code, code),
        reason_string=message or None,
        server_reference=reference,
    )
    return encode_disconnect(packet, version, bytes_max)


def encode_refusal(kind: PacketType, packet_id: int, code: Code, reason: str) -> bytes:
    """Return a 5.0 PUBACK or PUBREC with a Reason String (sections 3.4.2.2.2, 3.5.2.2.2)."""
    words = encode_string(Property.REASON_STRING, reason)
    body = packet_id.to_bytes(2) + bytes((code,)) + encode_varint(len(words)) + words
    return bytes((kind << 4,)) + encode_varint(len(body)) + body
