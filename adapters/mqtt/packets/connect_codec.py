"""CONNECT -> wire (MQTT 5.0 section 3.1, and the same of 3.1.1 and 3.1)."""

from typing import Final

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.packets import properties as p
from adapters.mqtt.packets.primitives import (
    decode_binary,
    decode_text,
    decode_uint16,
    malformed,
    protocol_error,
)
from adapters.mqtt.packets.properties import (
    Properties,
    Property,
    decode_properties,
    publish_properties_of,
)
from adapters.mqtt.wire import (
    EXACTLY_ONCE,
    PACKET_ID_MAX,
    REMAINING_LENGTH_MAX,
    Connect,
    Version,
    Will,
)

_VERSIONS: Final = {
    (b"MQIsdp", 3): Version.V3_1,
    (b"MQTT", 4): Version.V3_1_1,
    (b"MQTT", 5): Version.V5,
}
_V5_HEAD: Final = b"\x00\x04MQTT\x05"
_RESERVED: Final = 0x01
_CLEAN_START: Final = 0x02
_WILL: Final = 0x04
_WILL_QOS_AND_RETAIN: Final = 0x38
_WILL_RETAIN: Final = 0x20
_PASSWORD: Final = 0x40
_USER_NAME: Final = 0x80


def decode_connect(body: bytes, user_properties_max: int = p.USER_PROPERTIES_MAX) -> Connect:
    """Return a CONNECT. What a client identifier must be like is for the handler to say.

    Errors: UNSUPPORTED_PROTOCOL_VERSION for a name or level that is not ours (MQTT-3.1.2-1,
    MQTT-3.1.2-2); TOPIC_NAME_INVALID for a will topic that is empty or has a wildcard;
    QUOTA_EXCEEDED for too many user properties; MALFORMED_PACKET, PROTOCOL_ERROR.
    """
    name, at = decode_binary(body, 0)
    if at + 2 > len(body):
        raise malformed("CONNECT ends before its flags")
    version = _VERSIONS.get((name, body[at]))
    if version is None:
        raise MqttError(
            ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
            f"protocol {name[:16]!r} level {body[at]} is not one of ours",
        )
    flags = body[at + 1]
    _check_flags(flags, version)
    keep_alive, at = decode_uint16(body, at + 2)
    found = Properties()
    if version == Version.V5:
        found, at = decode_properties(body, at, p.CONNECT, user_properties_max)
    client_id, at = decode_text(body, at)
    will = None
    if flags & _WILL:
        will, at = _decode_will(body, at, flags, version, user_properties_max)
    username, password = None, None
    # Section 3.1 of MQTT 3.1: the length takes precedence over the flags of these two.
    may_be_missing = version == Version.V3_1
    if flags & _USER_NAME and not (may_be_missing and at == len(body)):
        username, at = decode_text(body, at)
    if flags & _PASSWORD and not (may_be_missing and at == len(body)):
        password, at = decode_binary(body, at)
    if at != len(body):
        raise malformed("bytes follow the payload of CONNECT")
    return _connect(
        found,
        version=version,
        client_id=client_id,
        clean_start=bool(flags & _CLEAN_START),
        keep_alive=keep_alive,
        will=will,
        credentials=(username, password),
    )


def version_to_refuse(body: bytes) -> Version | None:
    """Return the version of a CONNECT with an error, if its CONNACK can say so (MQTT-3.1.4-1).

    3.x is closed without a word (3.1.1: MQTT-3.1.4-1).
    """
    return Version.V5 if body.startswith(_V5_HEAD) else None


def _check_flags(flags: int, version: Version) -> None:
    """Raise for flags that do not go together (section 3.1.2.3).

    MQTT 3.1 asks for nothing of bits that mean nothing, as those of a will that is not there.
    """
    if version == Version.V3_1:
        flags &= ~_RESERVED if flags & _WILL else ~(_RESERVED | _WILL_QOS_AND_RETAIN)
    if flags & _RESERVED:  # MQTT-3.1.2-3
        raise malformed("the reserved flag of CONNECT is set")
    if flags >> 3 & 3 > EXACTLY_ONCE:  # MQTT-3.1.2-12
        raise malformed("the will has QoS 3")
    if not flags & _WILL and flags & _WILL_QOS_AND_RETAIN:  # MQTT-3.1.2-11, MQTT-3.1.2-13
        raise protocol_error("there is no will, but its QoS or RETAIN")
    if version != Version.V5 and flags & (_USER_NAME | _PASSWORD) == _PASSWORD:
        # MQTT-3.1.2-22 of 3.1.1; 5.0 allows it.
        raise protocol_error("there is a password, but no user name")


def _decode_will(
    body: bytes, at: int, flags: int, version: Version, user_properties_max: int
) -> tuple[Will, int]:
    """Return the will and where it ends (section 3.1.3)."""
    found = Properties()
    if version == Version.V5:
        found, at = decode_properties(body, at, p.WILL, user_properties_max)
    topic, at = decode_text(body, at)
    if not topic or "+" in topic or "#" in topic:  # MQTT-4.7.3-1, MQTT-4.7.0-1
        raise MqttError(
            ReasonCode.TOPIC_NAME_INVALID, "the will topic is empty or has a wildcard"
        )
    payload, at = decode_binary(body, at)
    will = Will(
        topic=topic,
        payload=payload,
        qos=flags >> 3 & 3,
        retain=bool(flags & _WILL_RETAIN),
        properties=publish_properties_of(found),
        delay_interval=found.numbers.get(Property.WILL_DELAY_INTERVAL, 0),
    )
    return will, at


def _connect(  # noqa: PLR0913 - the fields of the packet
    found: Properties,
    *,
    version: Version,
    client_id: str,
    clean_start: bool,
    keep_alive: int,
    will: Will | None,
    credentials: tuple[str | None, bytes | None],
) -> Connect:
    numbers = found.numbers
    method = found.texts.get(Property.AUTHENTICATION_METHOD)
    data = found.binaries.get(Property.AUTHENTICATION_DATA)
    if data is not None and method is None:  # Section 3.1.2.11.10
        raise protocol_error("there is authentication data, but no method")
    return Connect(
        version=version,
        client_id=client_id,
        clean_start=clean_start,
        keep_alive=keep_alive,
        username=credentials[0],
        password=credentials[1],
        will=will,
        session_expiry_interval=numbers.get(Property.SESSION_EXPIRY_INTERVAL, 0),
        receive_maximum=numbers.get(Property.RECEIVE_MAXIMUM, PACKET_ID_MAX),
        maximum_packet_size=numbers.get(Property.MAXIMUM_PACKET_SIZE, REMAINING_LENGTH_MAX + 5),
        topic_alias_maximum=numbers.get(Property.TOPIC_ALIAS_MAXIMUM, 0),
        request_response_information=bool(
            numbers.get(Property.REQUEST_RESPONSE_INFORMATION, 0)
        ),
        request_problem_information=bool(numbers.get(Property.REQUEST_PROBLEM_INFORMATION, 1)),
        user_properties=tuple(found.user_properties),
        authentication_method=method,
        authentication_data=data,
    )
