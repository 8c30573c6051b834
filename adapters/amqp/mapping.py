"""Properties of AMQP 0-9-1 as headers of records, and back.

Every property and text header is a header that any protocol reads. Where these cannot restore the
properties (typed values, repeated names, names that have a meaning here), the record also keeps
the properties' own bytes in ``amqp.properties``, which AMQP clients then get unchanged.

The time to live of a message is stored as the time at which it ends (``expires-at``), which all
protocols share, beside the publisher's own text.
"""

import base64
import json
from decimal import Decimal
from typing import Final

from adapters.amqp.deaths import with_deaths
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.properties import (
    NO_PROPERTIES,
    PERSISTENT,
    Properties,
    decode_properties,
    encode_properties,
)
from features.dead_letter_history import HISTORY_HEADER, history_of
from features.routing.delayed import X_DELAY
from gateway.model import EXPIRES_AT, Headers

EXCHANGE: Final = "amqp.exchange"  # missing: the default one, and the queue's name is the key
PROPERTIES: Final = "amqp.properties"
_DELIVERY_MODE: Final = "amqp.delivery-mode"  # missing: persistent; empty: not set
_EXPIRATION: Final = "amqp.expiration"
_TIMESTAMP: Final = "amqp.timestamp"
_CLUSTER_ID: Final = "amqp.cluster-id"

_TEXTS: Final = (
    ("content_type", "content-type"),
    ("content_encoding", "content-encoding"),
    ("correlation_id", "correlation-id"),
    ("reply_to", "reply-to"),
    ("expiration", _EXPIRATION),
    ("message_id", "message-id"),
    ("type", "type"),
    ("user_id", "user-id"),
    ("app_id", "app-id"),
    ("cluster_id", _CLUSTER_ID),
)
_NUMBERS: Final = (("priority", "priority"), ("timestamp", _TIMESTAMP))
_PROPERTY_OF: Final = {header: name for name, header in (*_TEXTS, *_NUMBERS)}
_EXPIRATION_MS_MAX: Final = 315_360_000_000  # ten years, RabbitMQ's bound
_DIGITS_MAX: Final = 20  # of a number in a header
_PRIORITY_MAX: Final = 255
_TIMESTAMP_MAX: Final = (1 << 64) - 1
_SHORTSTR_BYTES_MAX: Final = 255
_SIGNED: Final = {"B": "s", "u": "I", "i": "l"}  # types that hold the negative of any value


def parse_expiration(text: str) -> int:
    """Return the milliseconds of an ``expiration``. Error: ``AmqpFault`` 406.

    >>> parse_expiration("1500")
    1500
    """
    if not text.isascii() or not text.isdigit():
        number = text[: len(text) - len(text.lstrip("0123456789"))]
        why = f'leftover_string,"{text[len(number) :]}"' if number else "no_integer"
        why = "{" + why + "}" if number else why
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, f"invalid expiration '{text}': {why}")
    value = int(text) if len(text) <= _DIGITS_MAX else _EXPIRATION_MS_MAX + 1
    if value > _EXPIRATION_MS_MAX:
        raise AmqpFault(
            ReplyCode.PRECONDITION_FAILED,
            f"invalid expiration '{text}': {{value_too_large,{text}}}",
        )
    return value


def to_headers(
    properties: Properties,
    raw: bytes,
    *,
    exchange: str | None,
    now_unix_ms: int,
    reserved: tuple[str, ...],
) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record.

    ``raw``: the bytes of the properties. ``exchange``: None for the default exchange, where the
    routing key is the queue's name. ``reserved``: prefixes of headers that no client sets.
    Error: ``AmqpFault`` 406 for an ``expiration`` that is no number.
    """
    found: list[tuple[str, bytes | None]] = []
    for name, header in _TEXTS:
        if (text := getattr(properties, name)) is not None:
            found.append((header, text.encode()))
    for name, header in _NUMBERS:
        if (number := getattr(properties, name)) is not None:
            found.append((header, b"%d" % number))
    if properties.delivery_mode != PERSISTENT:
        mode = properties.delivery_mode
        found.append((_DELIVERY_MODE, b"" if mode is None else b"%d" % mode))
    if properties.expiration is not None:
        ends_unix_ms = now_unix_ms + parse_expiration(properties.expiration)
        found.append((EXPIRES_AT, b"%d" % ends_unix_ms))
    if exchange is not None:
        found.append((EXCHANGE, exchange.encode()))
    is_plain = _add_table(found, properties.headers, reserved)
    if not is_plain:
        found.append((PROPERTIES, raw))
    return found


def _add_table(
    found: list[tuple[str, bytes | None]], table: Table | None, reserved: tuple[str, ...]
) -> bool:
    """Add the headers of a table; return whether they alone restore it."""
    if table is None:
        return True
    is_plain = bool(table)  # an empty table is not the same as none
    names = {name for name, _ in found}
    for name, field in table:
        if name in names or name == EXPIRES_AT or not name or name.startswith(reserved):
            is_plain = False
            continue
        names.add(name)
        found.append((name, to_plain(field)))
        if name in _PROPERTY_OF or field.kind != "S" or not isinstance(field.value, str):
            is_plain = False
    return is_plain


def to_plain(field: Field) -> bytes | None:
    """Return a field as the value of a header that other protocols read.

    Text is UTF-8, numbers are decimal, a boolean is ``true`` or ``false``, a table or an array is
    JSON, in which bytes are base64.
    """
    value = field.value
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, tuple):
        return json.dumps(to_json(field), separators=(",", ":")).encode()
    return str(value).encode()


def to_json(field: Field) -> object:
    """Return a field as a value of JSON; bytes are base64, decimals are text."""
    value = field.value
    if isinstance(value, Table):
        return {name: to_json(one) for name, one in value}
    if isinstance(value, tuple):
        return [to_json(one) for one in value if isinstance(one, Field)]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value) if isinstance(value, Decimal) else value


def to_properties(headers: Headers, hidden: tuple[str, ...]) -> bytes:
    """Return the bytes of the properties of a record, from whatever protocol it comes.

    ``hidden``: prefixes of headers that are not shown. A dead letter shows its deaths.
    """
    names = {name for name, _ in headers}
    if HISTORY_HEADER in names and (history := history_of(headers)):
        return encode_properties(with_deaths(_properties_of(headers, hidden), history))
    if PROPERTIES in names:
        raw = next(value or NO_PROPERTIES for name, value in headers if name == PROPERTIES)
        return _with_past_delay(raw, headers) if X_DELAY in names else raw
    return encode_properties(_from_plain(headers, hidden))


def _with_past_delay(raw: bytes, headers: Headers) -> bytes:
    """Return properties with the negative ``x-delay`` of a message that has waited."""
    value = next(value for name, value in headers if name == X_DELAY)
    if value is None or not value.startswith(b"-"):
        return raw
    properties = decode_properties(raw)
    table = Table(
        (name, _negative(field) if name == X_DELAY else field)
        for name, field in properties.table
    )
    return encode_properties(properties._replace(headers=table))


def _negative(field: Field) -> Field:
    kind, value = field
    if isinstance(value, str) and not value.startswith("-"):
        return Field(kind, f"-{value}")
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return field
    return Field(_SIGNED.get(kind, kind), -value)


def _properties_of(headers: Headers, hidden: tuple[str, ...]) -> Properties:
    for name, value in headers:
        if name == PROPERTIES and value is not None:
            return decode_properties(value)
    return _from_plain(headers, hidden)


def _from_plain(headers: Headers, hidden: tuple[str, ...]) -> Properties:
    values: dict[str, str | int] = {"delivery_mode": PERSISTENT}
    pairs: list[tuple[str, Field]] = []
    for name, value in headers:
        if name == _DELIVERY_MODE:
            _set_delivery_mode(values, value or b"")
        elif (known := _PROPERTY_OF.get(name)) is not None:
            if (made := _to_property(known, value)) is not None:
                values[known] = made
        elif _is_shown(name, hidden):
            pairs.append((name, _to_shown(value)))
    table = Table(pairs) if pairs else None
    return Properties(**values, headers=table)  # type: ignore[arg-type]  # each by its own type


def _is_shown(name: str, hidden: tuple[str, ...]) -> bool:
    return (
        name not in {EXPIRES_AT, EXCHANGE}
        and not name.startswith(hidden)
        and len(name.encode()) <= _SHORTSTR_BYTES_MAX
    )


def _set_delivery_mode(values: dict[str, str | int], value: bytes) -> None:
    if value.isdigit() and len(value) == 1:
        values["delivery_mode"] = int(value)
    else:
        values.pop("delivery_mode")


def _to_property(name: str, value: bytes | None) -> str | int | None:
    """Return a header's value as a property; None where it cannot be one."""
    if value is None:
        return None
    if name in {"priority", "timestamp"}:
        if not value.isdigit() or len(value) > _DIGITS_MAX:
            return None
        number = int(value)
        return (
            number
            if number <= (_PRIORITY_MAX if name == "priority" else _TIMESTAMP_MAX)
            else None
        )
    if len(value) > _SHORTSTR_BYTES_MAX:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _to_shown(value: bytes | None) -> Field:
    if value is None:
        return Field("V", None)
    try:
        return Field("S", value.decode())
    except UnicodeDecodeError:
        return Field("x", value)


def find_exchange(headers: Headers) -> str | None:
    """Return the exchange that a record was published to, by which its key is the routing key.

    None: the default exchange or another protocol, and the routing key is the queue's name.
    """
    for name, value in headers:
        if name == EXCHANGE:
            return (value or b"").decode(errors="replace")
    return None


def without_bcc(properties: Properties) -> Properties:
    """Return properties without the header BCC, which no receiver sees."""
    table = properties.table
    if table.find("BCC") is None:
        return properties
    kept = Table(pair for pair in table if pair[0] != "BCC")
    return properties._replace(headers=kept)
