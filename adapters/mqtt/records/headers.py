"""Properties of PUBLISH to headers of records, and back.

docs/protocols/mqtt.md has the table, header by header. A user property that bears a reserved
name becomes ``mqtt.user.<name>``; a header whose value cannot be what its name says is shown to
subscribers as a user property. Headers are in order and may repeat.
"""

from base64 import b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from adapters.mqtt.subscriptions.filters import is_topic_name, is_utf8
from adapters.mqtt.wire import PublishProperties
from gateway.errors import CorruptBatch
from gateway.model import (
    DEDUP_ID,
    DELIVER_AT,
    EXPIRES_AT,
    MQTT_TOPIC,
    VARINT_CONTINUES,
    ZIGZAG,
    read_varint,
    unix_ms_in,
)

TOPIC: Final = MQTT_TOPIC
CLIENT: Final = "mqtt.client"
QOS: Final = "mqtt.qos"
RETAIN: Final = "mqtt.retain"
PAYLOAD_FORMAT: Final = "mqtt.payload-format-indicator"
CONTENT_TYPE: Final = "content-type"
REPLY_TO: Final = "reply-to"
CORRELATION_ID: Final = "correlation-id"

USER_PREFIX: Final = "mqtt.user."
NULL_VALUE: Final = ("mqtt.null", "1")  # the user property of a record whose value is null
NULL_SUFFIX: Final = ";null"  # of the name of a header whose value is null
BASE64_SUFFIX: Final = ";base64"  # of the name of a header whose value is no MQTT string

# What a publisher must not say by a user property: it means something to the gateway.
RESERVED: Final = frozenset(
    {CONTENT_TYPE, REPLY_TO, CORRELATION_ID, EXPIRES_AT, DELIVER_AT, DEDUP_ID}
)

STRING_BYTES_MAX: Final = 65_535  # MQTT 5.0 sections 1.5.4 and 1.5.6

Header = tuple[str, bytes | None]


class StoredHeaders(NamedTuple):
    """Decoded headers of a record; ``topic`` and ``qos`` are None when they have none."""

    topic: bytes | None
    client_id: str
    qos: int | None
    retain: bool
    expires_at_unix_ms: int
    properties: PublishProperties
    too_long_count: int  # headers that no user property can hold


def headers_of(
    topic: bytes | None,
    client_id: str,
    qos: int | None,
    retain: bool,  # noqa: FBT001 - the fields of a kind, in order
    properties: PublishProperties,
    *,
    reserved_prefixes: tuple[str, ...],
) -> list[Header]:
    """Return the headers in their order; what is absent, or the default, is left out.

    User properties whose names are reserved, or begin so, are stored apart.
    """
    content_type, reply_to = properties.content_type, properties.response_topic
    payload_format = properties.payload_format_indicator
    known: tuple[Header, ...] = (
        (TOPIC, topic),
        (CLIENT, client_id.encode() if client_id else None),
        (QOS, None if qos is None else b"%d" % qos),
        (RETAIN, b"1" if retain else None),
        (PAYLOAD_FORMAT, None if payload_format is None else b"%d" % payload_format),
        (CONTENT_TYPE, None if content_type is None else content_type.encode()),
        (REPLY_TO, None if reply_to is None else reply_to.encode()),
        (CORRELATION_ID, properties.correlation_data),
    )
    headers = [header for header in known if header[1] is not None]
    for name, value in properties.user_properties:
        is_reserved = name in RESERVED or name.startswith(reserved_prefixes)
        headers.append((USER_PREFIX + name if is_reserved else name, value.encode()))
    return headers


def parse_headers(block: bytes) -> StoredHeaders:
    """Return what an encoded block of headers says. Error: ``CorruptBatch``.

    Of a well-known header that is repeated the first one counts whose value can be what the
    name says; the others are user properties, unless they begin with ``mqtt.``.
    """
    known: dict[bytes, bytes] = {}
    user: list[tuple[str, str]] = []
    too_long_count = 0
    for name, value in _pairs(block):
        is_usable = _WELL_KNOWN.get(name)
        if is_usable is not None:
            if value is not None and name not in known and is_usable(value):
                known[name] = value
                continue
            if name in _HIDDEN:
                continue
        shown = _user_property(name, value)
        if shown is None:
            too_long_count += 1
        else:
            user.append(shown)
    return _stored(known, tuple(user), too_long_count)


def _stored(
    known: dict[bytes, bytes], user: tuple[tuple[str, str], ...], too_long_count: int
) -> StoredHeaders:
    content_type = known.get(CONTENT_TYPE.encode())
    reply_to = known.get(REPLY_TO.encode())
    payload_format = known.get(PAYLOAD_FORMAT.encode())
    qos = known.get(QOS.encode())
    expires_at = known.get(EXPIRES_AT.encode())
    properties = PublishProperties(
        payload_format_indicator=None if payload_format is None else int(payload_format),
        content_type=None if content_type is None else content_type.decode(),
        response_topic=None if reply_to is None else reply_to.decode(),
        correlation_data=known.get(CORRELATION_ID.encode()),
        user_properties=user,
    )
    return StoredHeaders(
        known.get(TOPIC.encode()),
        known.get(CLIENT.encode(), b"").decode(),
        None if qos is None else int(qos),
        known.get(RETAIN.encode()) == b"1",
        # A deadline of 0 is long over; 0 in a run would be none at all.
        0 if expires_at is None else max(int(expires_at), 1),
        properties,
        too_long_count,
    )


def _pairs(block: bytes) -> list[tuple[bytes, bytes | None]]:
    """Return the headers of a block, their names as they are. Error: ``CorruptBatch``."""
    pairs: list[tuple[bytes, bytes | None]] = []
    try:
        count, position = read_varint(block, 0)
        if count < 0:
            raise CorruptBatch(f"{count} headers")
        for _ in range(count):
            name, position = read_nullable(block, position)
            value, position = read_nullable(block, position)
            if name is None:
                raise CorruptBatch("a header without a name")
            pairs.append((name, value))
    except IndexError as error:
        raise CorruptBatch(f"headers: {error}") from None
    if position != len(block):
        raise CorruptBatch(f"headers of {len(block)} bytes end at {position}")
    return pairs


def read_nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Return bytes that follow their length, or None where it is negative; and their end.

    Bytes that are not all there are cut short: the end says so. Error: ``IndexError``.
    """
    if (size := data[position]) < VARINT_CONTINUES:
        size, position = ZIGZAG[size], position + 1
    else:
        size, position = read_varint(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size


def _user_property(name: bytes, value: bytes | None) -> tuple[str, str] | None:
    """Return the user property that shows a header, or None when it is too long for one.

    A value that is null or no MQTT string is told apart by a suffix of the name; bytes of a name
    that are no MQTT string are replaced (U+FFFD).
    """
    shown = name.removeprefix(USER_PREFIX.encode()).decode(errors="replace")
    shown = shown.replace("\x00", "\ufffd")
    if value is None:
        shown, text = shown + NULL_SUFFIX, ""
    elif _is_text(value):
        text = value.decode()
    else:
        shown, text = shown + BASE64_SUFFIX, b64encode(value).decode()
    if len(text) > STRING_BYTES_MAX or len(shown.encode()) > STRING_BYTES_MAX:
        return None
    return shown, text


def _is_text(value: bytes) -> bool:
    """Say whether bytes are an MQTT string: well-formed, without U+0000, not too long."""
    return len(value) <= STRING_BYTES_MAX and b"\x00" not in value and is_utf8(value)


def _is_response_topic(value: bytes) -> bool:
    """Say whether bytes are a topic name to answer to; ``$`` may begin it (MQTT-3.3.2-14)."""
    return bool(value) and _is_text(value) and b"+" not in value and b"#" not in value


def _is_digit(value: bytes) -> bool:
    return value in (b"0", b"1")


_WELL_KNOWN: Final[dict[bytes, Callable[[bytes], bool]]] = {
    TOPIC.encode(): is_topic_name,
    CLIENT.encode(): _is_text,
    QOS.encode(): lambda value: value in (b"0", b"1", b"2"),
    RETAIN.encode(): _is_digit,
    PAYLOAD_FORMAT.encode(): _is_digit,
    CONTENT_TYPE.encode(): _is_text,
    REPLY_TO.encode(): _is_response_topic,
    CORRELATION_ID.encode(): lambda value: len(value) <= STRING_BYTES_MAX,
    EXPIRES_AT.encode(): lambda value: unix_ms_in(value) is not None,
}
_HIDDEN: Final = frozenset(name for name in _WELL_KNOWN if name.startswith(b"mqtt."))
