"""Properties of MQTT 5.0 packets (section 2.2.2): bytes <-> values, with all their rules.

A property that its packet may not have, or an unknown one, is malformed (section 2.2.2.2); one
that comes twice, or whose value is not allowed, is a protocol error.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Final

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.packets.primitives import (
    decode_binary,
    decode_text,
    decode_whole_varint,
    encode_binary,
    encode_text,
    encode_varint,
    malformed,
    protocol_error,
)
from adapters.mqtt.wire import (
    NO_PROPERTIES,
    REMAINING_LENGTH_MAX,
    PublishProperties,
    UserProperties,
)

USER_PROPERTIES_MAX: Final = REMAINING_LENGTH_MAX  # no bound but the packet's size
USER_PROPERTIES_MAX_MIN: Final = 64  # the least bound there may be: more than is cached below
CACHED_COUNT_MAX: Final = 1_024
CACHED_BYTES_MAX: Final = 256
"""Properties of PUBLISH above this size are decoded each time: the cache stays below 16 MiB."""


class Property(IntEnum):
    """Table 2-4. ``WIDTHS`` and the sets below say what the values are."""

    PAYLOAD_FORMAT_INDICATOR = 1
    MESSAGE_EXPIRY_INTERVAL = 2
    CONTENT_TYPE = 3
    RESPONSE_TOPIC = 8
    CORRELATION_DATA = 9
    SUBSCRIPTION_IDENTIFIER = 11
    SESSION_EXPIRY_INTERVAL = 17
    ASSIGNED_CLIENT_IDENTIFIER = 18
    SERVER_KEEP_ALIVE = 19
    AUTHENTICATION_METHOD = 21
    AUTHENTICATION_DATA = 22
    REQUEST_PROBLEM_INFORMATION = 23
    WILL_DELAY_INTERVAL = 24
    REQUEST_RESPONSE_INFORMATION = 25
    RESPONSE_INFORMATION = 26
    SERVER_REFERENCE = 28
    REASON_STRING = 31
    RECEIVE_MAXIMUM = 33
    TOPIC_ALIAS_MAXIMUM = 34
    TOPIC_ALIAS = 35
    MAXIMUM_QOS = 36
    RETAIN_AVAILABLE = 37
    USER_PROPERTY = 38
    MAXIMUM_PACKET_SIZE = 39
    WILDCARD_SUBSCRIPTION_AVAILABLE = 40
    SUBSCRIPTION_IDENTIFIERS_AVAILABLE = 41
    SHARED_SUBSCRIPTION_AVAILABLE = 42


_P = Property

WIDTHS: Final[dict[int, int]] = {
    _P.PAYLOAD_FORMAT_INDICATOR: 1,
    _P.MESSAGE_EXPIRY_INTERVAL: 4,
    _P.SESSION_EXPIRY_INTERVAL: 4,
    _P.SERVER_KEEP_ALIVE: 2,
    _P.REQUEST_PROBLEM_INFORMATION: 1,
    _P.WILL_DELAY_INTERVAL: 4,
    _P.REQUEST_RESPONSE_INFORMATION: 1,
    _P.RECEIVE_MAXIMUM: 2,
    _P.TOPIC_ALIAS_MAXIMUM: 2,
    _P.TOPIC_ALIAS: 2,
    _P.MAXIMUM_QOS: 1,
    _P.RETAIN_AVAILABLE: 1,
    _P.MAXIMUM_PACKET_SIZE: 4,
    _P.WILDCARD_SUBSCRIPTION_AVAILABLE: 1,
    _P.SUBSCRIPTION_IDENTIFIERS_AVAILABLE: 1,
    _P.SHARED_SUBSCRIPTION_AVAILABLE: 1,
}
"""Bytes of the properties that are integers of a fixed width."""

_TEXTS: Final[frozenset[int]] = frozenset(
    {
        _P.CONTENT_TYPE,
        _P.RESPONSE_TOPIC,
        _P.ASSIGNED_CLIENT_IDENTIFIER,
        _P.AUTHENTICATION_METHOD,
        _P.RESPONSE_INFORMATION,
        _P.SERVER_REFERENCE,
        _P.REASON_STRING,
    }
)
_FLAGS: Final[frozenset[int]] = frozenset(
    {
        _P.PAYLOAD_FORMAT_INDICATOR,
        _P.REQUEST_PROBLEM_INFORMATION,
        _P.REQUEST_RESPONSE_INFORMATION,
    }
)
_NOT_ZERO: Final[frozenset[int]] = frozenset({_P.RECEIVE_MAXIMUM, _P.MAXIMUM_PACKET_SIZE})

# What a client may send, by packet (table 2-4).
CONNECT: Final[frozenset[int]] = frozenset(
    {
        _P.SESSION_EXPIRY_INTERVAL,
        _P.AUTHENTICATION_METHOD,
        _P.AUTHENTICATION_DATA,
        _P.REQUEST_PROBLEM_INFORMATION,
        _P.REQUEST_RESPONSE_INFORMATION,
        _P.RECEIVE_MAXIMUM,
        _P.TOPIC_ALIAS_MAXIMUM,
        _P.USER_PROPERTY,
        _P.MAXIMUM_PACKET_SIZE,
    }
)
_MESSAGE: Final[frozenset[int]] = frozenset(
    {
        _P.PAYLOAD_FORMAT_INDICATOR,
        _P.MESSAGE_EXPIRY_INTERVAL,
        _P.CONTENT_TYPE,
        _P.RESPONSE_TOPIC,
        _P.CORRELATION_DATA,
        _P.USER_PROPERTY,
    }
)
WILL: Final[frozenset[int]] = _MESSAGE | {_P.WILL_DELAY_INTERVAL}
PUBLISH: Final[frozenset[int]] = _MESSAGE | {_P.TOPIC_ALIAS, _P.SUBSCRIPTION_IDENTIFIER}
ACKNOWLEDGEMENT: Final[frozenset[int]] = frozenset({_P.REASON_STRING, _P.USER_PROPERTY})
SUBSCRIBE: Final[frozenset[int]] = frozenset({_P.SUBSCRIPTION_IDENTIFIER, _P.USER_PROPERTY})
UNSUBSCRIBE: Final[frozenset[int]] = frozenset({_P.USER_PROPERTY})
DISCONNECT: Final[frozenset[int]] = frozenset(
    {
        _P.SESSION_EXPIRY_INTERVAL,
        _P.SERVER_REFERENCE,
        _P.REASON_STRING,
        _P.USER_PROPERTY,
    }
)
AUTH: Final[frozenset[int]] = frozenset(
    {
        _P.AUTHENTICATION_METHOD,
        _P.AUTHENTICATION_DATA,
        _P.REASON_STRING,
        _P.USER_PROPERTY,
    }
)


@dataclass(slots=True)
class Properties:
    """Properties of a packet by kind of value; those that were not sent are absent."""

    numbers: dict[int, int] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    binaries: dict[int, bytes] = field(default_factory=dict)
    user_properties: list[tuple[str, str]] = field(default_factory=list)
    subscription_identifiers: list[int] = field(default_factory=list)


def decode_properties(
    data: bytes,
    at: int,
    allowed: Collection[int],
    user_properties_max: int = USER_PROPERTIES_MAX,
) -> tuple[Properties, int]:
    """Return the properties at ``at``, which begin with their length, and where they end.

    Error: QUOTA_EXCEEDED when there are more of those that may repeat (user properties and
    subscription identifiers) than ``user_properties_max``; the rest is not decoded.

    ``SUBSCRIPTION_IDENTIFIER`` may come again and again here, as in PUBLISH; SUBSCRIBE looks
    for itself.
    """
    size_bytes, at = decode_whole_varint(data, at)
    end = at + size_bytes
    if end > len(data):
        raise malformed("the properties are longer than their packet")
    section = data[at:end]
    found = Properties()
    identifiers = found.subscription_identifiers
    seen: set[int] = set()
    at = 0
    while at < size_bytes:
        # Identifiers are Variable Byte Integers; all that exist take one byte.
        identifier, at = decode_whole_varint(section, at)
        if identifier not in allowed:
            raise malformed(f"property {identifier} has no place in this packet")
        at = _decode_value(section, at, identifier, found, seen)
        if len(found.user_properties) + len(identifiers) > user_properties_max:
            msg = f"more than {user_properties_max} user properties"
            raise MqttError(ReasonCode.QUOTA_EXCEEDED, msg)
    return found, end


def _decode_value(
    section: bytes, at: int, identifier: int, found: Properties, seen: set[int]
) -> int:
    if identifier == Property.USER_PROPERTY:
        name, at = decode_text(section, at)
        value, at = decode_text(section, at)
        found.user_properties.append((name, value))
        return at
    if identifier == Property.SUBSCRIPTION_IDENTIFIER:
        number, at = decode_whole_varint(section, at)
        if not number:
            raise protocol_error("a subscription identifier is 0")
        found.subscription_identifiers.append(number)
        return at
    if identifier in seen:
        raise protocol_error(f"property {identifier} comes twice")
    seen.add(identifier)
    width = WIDTHS.get(identifier)
    if width is not None:
        end = at + width
        if end > len(section):
            raise malformed(f"property {identifier} is cut")
        number = int.from_bytes(section[at:end])
        _check_number(identifier, number)
        found.numbers[identifier] = number
        return end
    if identifier in _TEXTS:
        found.texts[identifier], at = decode_text(section, at)
        if identifier == Property.RESPONSE_TOPIC:
            _check_response_topic(found.texts[identifier])
    else:
        found.binaries[identifier], at = decode_binary(section, at)
    return at


def _check_number(identifier: int, number: int) -> None:
    if identifier in _FLAGS and number > 1:
        raise protocol_error(f"property {identifier} is {number}, not 0 or 1")
    if identifier in _NOT_ZERO and not number:
        raise protocol_error(f"property {identifier} is 0")
    if identifier == Property.TOPIC_ALIAS and not number:  # MQTT-3.3.2-8
        raise MqttError(ReasonCode.TOPIC_ALIAS_INVALID, "a topic alias is 0")


def _check_response_topic(topic: str) -> None:
    if not topic or "+" in topic or "#" in topic:  # MQTT-3.3.2-14, MQTT-4.7.3-1
        raise protocol_error("the response topic is empty or has a wildcard")


def decode_publish_properties(
    data: bytes, user_properties_max: int = USER_PROPERTIES_MAX
) -> PublishProperties:
    """Return the properties of a PUBLISH, whose length ``bytes`` begin with.

    Small ones are cached: publishers repeat them, and they have no more user properties than
    any ``user_properties_max`` allows. ``subscription_identifiers`` are decoded; that a client
    may not send them is for the caller to say. Error: as ``decode_properties``.
    """
    if data == b"\0":
        return NO_PROPERTIES
    if len(data) > CACHED_BYTES_MAX:
        return _decode_publish_properties(data, user_properties_max)
    return _cached_publish_properties(data)


def _decode_publish_properties(
    data: bytes, user_properties_max: int = USER_PROPERTIES_MAX
) -> PublishProperties:
    found, end = decode_properties(data, 0, PUBLISH, user_properties_max)
    if end != len(data):
        raise malformed("bytes follow the properties")
    return publish_properties_of(found)


_cached_publish_properties: Final[Callable[[bytes], PublishProperties]] = lru_cache(
    CACHED_COUNT_MAX
)(_decode_publish_properties)


def publish_properties_of(found: Properties) -> PublishProperties:
    """Return what of ``found`` belongs to a message (PUBLISH, or a will)."""
    numbers, texts = found.numbers, found.texts
    return PublishProperties(
        payload_format_indicator=numbers.get(Property.PAYLOAD_FORMAT_INDICATOR),
        message_expiry_interval=numbers.get(Property.MESSAGE_EXPIRY_INTERVAL),
        content_type=texts.get(Property.CONTENT_TYPE),
        response_topic=texts.get(Property.RESPONSE_TOPIC),
        correlation_data=found.binaries.get(Property.CORRELATION_DATA),
        user_properties=tuple(found.user_properties),
        topic_alias=numbers.get(Property.TOPIC_ALIAS),
        subscription_identifiers=tuple(found.subscription_identifiers),
    )


def encode_number(identifier: Property, value: int | None) -> bytes:
    """Return a property of a fixed width; nothing when ``value`` is None."""
    if value is None:
        return b""
    return bytes((identifier,)) + value.to_bytes(WIDTHS[identifier])


def encode_string(identifier: Property, value: str | None) -> bytes:
    """Return a property that is text; nothing when ``value`` is None."""
    return b"" if value is None else bytes((identifier,)) + encode_text(value)


def encode_bytes(identifier: Property, value: bytes | None) -> bytes:
    """Return a property that is binary data; nothing when ``value`` is None."""
    return b"" if value is None else bytes((identifier,)) + encode_binary(value)


def encode_user_properties(pairs: UserProperties) -> bytes:
    """Return the user properties, in their order (MQTT-3.3.2-18)."""
    return b"".join(b"\x26" + encode_text(name) + encode_text(value) for name, value in pairs)


def encode_publish_properties(properties: PublishProperties) -> bytes:
    """Return the properties of a PUBLISH, with their length in front."""
    if properties == NO_PROPERTIES:
        return b"\0"
    section = b"".join(
        (
            encode_number(
                Property.PAYLOAD_FORMAT_INDICATOR, properties.payload_format_indicator
            ),
            encode_number(Property.MESSAGE_EXPIRY_INTERVAL, properties.message_expiry_interval),
            encode_string(Property.CONTENT_TYPE, properties.content_type),
            encode_string(Property.RESPONSE_TOPIC, properties.response_topic),
            encode_bytes(Property.CORRELATION_DATA, properties.correlation_data),
            encode_user_properties(properties.user_properties),
            encode_number(Property.TOPIC_ALIAS, properties.topic_alias),
            *(b"\x0b" + encode_varint(one) for one in properties.subscription_identifiers),
        )
    )
    return encode_varint(len(section)) + section
