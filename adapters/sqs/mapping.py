"""Mapping of SQS messages to records of the log and back. All units change here.

    SQS                        unit     record
    MessageBody                text     value, UTF-8
    MessageGroupId             text     key; null without one
    message attribute          bytes   header of its name: UTF-8, or the bytes of a Binary
    types that are not String  text     sqs.types, a JSON object of name to type
    AWSTraceHeader             text     sqs.trace
    SenderId                   text     sqs.sender, none for anonymous senders
    MessageDeduplicationId     text     dedup-id
    DelaySeconds               s        deliver-at, unix ms (time of the send + it)
    SentTimestamp              ms       the record's timestamp
    MessageId, SequenceNumber  -        from the offset; message-id once the record has moved

An attribute with a reserved name is stored as ``sqs.user.<name>``. Records of other protocols that
SQS cannot represent are shown as docs/protocols/sqs.md describes: text in place of bytes, with an
attribute that names the encoding.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import orjson

from adapters.sqs.message_attributes import (
    ATTRIBUTES_MAX,
    Attributes,
    MessageAttribute,
    is_legal_name,
    is_legal_type,
    is_number,
    size_bytes,
)
from adapters.sqs.text import to_text
from gateway.contributions import header_prefixes
from gateway.model import (
    DEDUP_ID,
    DELIVER_AT,
    DLQ_ATTEMPTS,
    DLQ_SOURCE_TOPIC,
    EXPIRES_AT,
    MESSAGE_ID,
    Record,
)
from gateway.records.codec import encode_headers
from gateway.records.runs import nullable

MESSAGE_BYTES_MAX: Final = 1_048_576  # of body and attributes together, as shown
MS_PER_S: Final = 1_000

SENDER: Final = "sqs.sender"
TRACE: Final = "sqs.trace"
TYPES: Final = "sqs.types"
USER_PREFIX: Final = "sqs.user."

# Attributes that name the encoding of a body or key that SQS cannot represent.
BODY_ENCODING: Final = "sqs.body"
KEY_ENCODING: Final = "sqs.key"
MORE_HEADERS: Final = "sqs.headers"
BASE64: Final = b"base64"
NULL: Final = b"null"

# Headers of the gateway, which a sender's attributes must not set.
BUILT_IN_PREFIXES: Final = header_prefixes()
RESERVED: Final = frozenset({MESSAGE_ID, DEDUP_ID, DELIVER_AT, EXPIRES_AT})

CACHED_BLOCKS_MAX: Final = 1_024
_MESSAGE_ID_CHARS_MAX: Final = 100
_ATTEMPTS_CHARS_MAX: Final = 9
_HIDDEN: Final = frozenset({MESSAGE_ID, SENDER, TRACE, TYPES, DEDUP_ID, DELIVER_AT})
_SURELY_SMALL_BYTES: Final = MESSAGE_BYTES_MAX // 2
_SHOWN_FACTOR: Final = 2  # upper bound for base64 in JSON
_SHOWN_OVERHEAD_BYTES: Final = 300

_EMPTY: Final = nullable(b"")

Header = tuple[str, bytes | None]


# --- into the log


@lru_cache(maxsize=CACHED_BLOCKS_MAX)
def plain_header_block(sender: str) -> bytes:
    """Return the encoded headers of a message that has a sender only."""
    return encode_headers(headers_of({}, sender=sender))


def fifo_header_block(sender: str, dedup_id: str) -> bytes:
    """Return the encoded headers of a message with a sender and a deduplication id."""
    return _before_dedup_id(sender) + nullable(dedup_id.encode())


@lru_cache(maxsize=CACHED_BLOCKS_MAX)
def _before_dedup_id(sender: str) -> bytes:
    """Return the encoded headers up to the value of the id. Saves 3 us of 18 for a send."""
    return encode_headers([*headers_of({}, sender=sender), (DEDUP_ID, b"")])[: -len(_EMPTY)]


def headers_of(  # noqa: PLR0913 - one argument per header
    attributes: Mapping[str, MessageAttribute],
    *,
    sender: str = "",
    trace: bytes | None = None,
    dedup_id: str | None = None,
    deliver_at_unix_ms: int | None = None,
    message_id: str | None = None,
    reserved_prefixes: tuple[str, ...] = BUILT_IN_PREFIXES,
) -> list[Header]:
    """Return the headers of a message: its attributes in order, then the known headers."""
    headers: list[Header] = [
        (
            USER_PREFIX + name
            if name in RESERVED or name.startswith(reserved_prefixes)
            else name,
            attribute.value,
        )
        for name, attribute in attributes.items()
    ]
    types = {
        name: attribute.data_type
        for name, attribute in attributes.items()
        if attribute.data_type != "String"
    }
    known: tuple[Header, ...] = (
        (TYPES, orjson.dumps(types) if types else None),
        (SENDER, sender.encode() if sender else None),
        (TRACE, trace),
        (DEDUP_ID, dedup_id.encode() if dedup_id else None),
        (DELIVER_AT, None if deliver_at_unix_ms is None else b"%d" % deliver_at_unix_ms),
        (MESSAGE_ID, message_id.encode() if message_id else None),
    )
    headers += [header for header in known if header[1] is not None]
    return headers


# --- out of the log


class StoredHeaders(NamedTuple):
    """The parsed headers of a record.

    ``others`` are shown as message attributes, ``dead_letter`` (``dlq.*``) only when named.
    """

    message_id: str | None = None
    sender: str | None = None
    trace: str | None = None
    dedup_id: str | None = None
    source_topic: str | None = None
    earlier_attempts: int = 0
    types: bytes | None = None
    others: Sequence[Header] = ()
    dead_letter: Sequence[Header] = ()


class Body(NamedTuple):
    """A body as it is shown, its bytes, and the name of its encoding if it is not text."""

    text: str
    data: bytes
    encoding: bytes | None = None


_NO_HEADERS: Final = StoredHeaders()


def read_headers(headers: Sequence[Header]) -> StoredHeaders:
    """Return the parsed headers of a record; the first of a repeated control header counts."""
    if not headers:
        return _NO_HEADERS
    known: dict[str, bytes] = {}
    others: list[Header] = []
    dead_letter: list[Header] = []
    for header in headers:
        name, value = header
        if name in _HIDDEN or name.startswith("dlq."):
            if value is not None and name not in known:
                known[name] = value
                if name not in _HIDDEN:
                    dead_letter.append(header)
        else:
            others.append(header)
    get = known.get
    attempts = get(DLQ_ATTEMPTS, b"")
    is_count = attempts.isdigit() and len(attempts) <= _ATTEMPTS_CHARS_MAX
    return StoredHeaders(
        _message_id(get(MESSAGE_ID)),
        _text_of(get(SENDER)),
        _text_of(get(TRACE)),
        _text_of(get(DEDUP_ID)),
        _text_of(get(DLQ_SOURCE_TOPIC)),
        int(attempts) if is_count else 0,
        get(TYPES),
        others,
        dead_letter,
    )


def body_of(value: bytes | None) -> Body:
    """Return the body for a value: as it is, or in base64 when it is no text of SQS."""
    if value is None:
        return Body("", b"", NULL)
    text = to_text(value)
    if text is not None:
        return Body(text, value)
    data = b64encode(value)
    return Body(data.decode(), data, BASE64)


def group_of(key: bytes | None) -> tuple[str | None, bytes | None]:
    """Return the MessageGroupId for a key, and the name of its encoding if it is not text."""
    if not key:
        return None, None
    text = to_text(key)
    return (text, None) if text is not None else (b64encode(key).decode(), BASE64)


def attributes_of(stored: StoredHeaders) -> Attributes:
    """Return the message attributes that show a record's headers.

    Up to ten headers have an attribute each. Further ones, and those that no attribute can show (a
    null or empty value, an illegal or repeated name), are in ``sqs.headers``, in their order.
    """
    attributes: Attributes = {}
    if not stored.others:
        return attributes
    types = _parse_types(stored.types)
    more: list[dict[str, str | None]] = []
    for header in stored.others:
        name = header[0].removeprefix(USER_PREFIX)
        attribute = None
        if len(attributes) < ATTRIBUTES_MAX and name not in attributes:
            attribute = _attribute(name, header[1], types.get(name))
        if attribute is None:
            more.append(_in_json(header))
        else:
            attributes[name] = attribute
    if more:
        attributes[MORE_HEADERS] = MessageAttribute("String", orjson.dumps(more))
    return attributes


def dead_letter_attributes_of(stored: StoredHeaders) -> Attributes:
    """Return the attributes with the reason and the source of a dead letter."""
    attributes: Attributes = {}
    for name, value in stored.dead_letter:
        attribute = _attribute(name, value, None)
        if attribute is not None:
            attributes[name] = attribute
    return attributes


def is_oversize(record: Record, body: Body, stored: StoredHeaders) -> bool:
    """Return whether a record, as shown, is larger than an SQS message may be."""
    size = len(body.data)
    if stored.others:
        raw_bytes = _SHOWN_OVERHEAD_BYTES * len(stored.others)
        for name, value in record.headers:
            raw_bytes += len(name) + (len(value) if value else 0)
        if size + _SHOWN_FACTOR * raw_bytes > _SURELY_SMALL_BYTES:
            size += size_bytes(attributes_of(stored))
    return size > MESSAGE_BYTES_MAX


def oversize_note(topic: str, number: int, record: Record) -> bytes:
    """Return the position of a record that is too large, for a Kafka client to read it."""
    return (
        f"oversize topic={topic} partition={number} offset={record.offset} "
        f"bytes={len(record.value or b'')}"
    ).encode()


def _attribute(
    name: str, value: bytes | None, data_type: str | None
) -> MessageAttribute | None:
    """Return the attribute for a header, or None when no attribute can show it."""
    if not value or not is_legal_name(name):
        return None
    if data_type is not None and data_type.startswith("Binary"):
        return MessageAttribute(data_type, value)
    if to_text(value) is None:
        return MessageAttribute("Binary", value)
    if data_type is None or (data_type.startswith("Number") and not is_number(value)):
        data_type = "String"
    return MessageAttribute(data_type, value)


def _parse_types(types: bytes | None) -> dict[str, str]:
    """Return types by attribute; illegal types are left out."""
    if types is None:
        return {}
    try:
        parsed = orjson.loads(types)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(parsed, dict):
        return {}
    return {
        name: data_type
        for name, data_type in parsed.items()
        if isinstance(data_type, str) and is_legal_type(data_type)
    }


def _in_json(header: Header) -> dict[str, str | None]:
    """Return a header for JSON: its value as text, in base64, or null."""
    value = header[1]
    # JSON escapes control characters but not these two, which XML cannot hold.
    name = header[0].replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")
    text = None if value is None else to_text(value)
    if value is not None and text is None:
        return {"name": name, "base64": b64encode(value).decode()}
    return {"name": name, "value": text}


def _message_id(value: bytes | None) -> str | None:
    """Return the id in a record's header, or None when a client could not use it."""
    if value is None or not value.isascii() or not value:
        return None
    text = value.decode()
    is_usable = len(text) <= _MESSAGE_ID_CHARS_MAX and text.isprintable() and " " not in text
    return text if is_usable else None


def _text_of(value: bytes | None) -> str | None:
    return None if value is None else to_text(value)
