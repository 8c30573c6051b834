"""Properties of a content (AMQP 0-9-1 section 4.2.6.1): typed, from and to bytes."""

import struct
from typing import Final, NamedTuple

from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.fields import (
    Table,
    decode_table,
    encode_shortstr,
    encode_table,
)

_SHORT: Final = struct.Struct(">H")
_LONGLONG: Final = struct.Struct(">Q")
_MORE_FLAGS: Final = 1
NO_PROPERTIES: Final = b"\0\0"
TRANSIENT: Final = 1
PERSISTENT: Final = 2


class Properties(NamedTuple):
    """Properties of a message, by the names of the specification; None: not set.

    ``timestamp`` counts seconds; ``expiration`` is a text of milliseconds, as sent.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None

    @property
    def table(self) -> Table:
        """The headers; an empty table without any."""
        return self.headers or Table()


_BYTES: Final = frozenset({"delivery_mode", "priority"})


def decode_properties(data: bytes) -> Properties:
    """Return properties of their bytes, flags first. Errors: ``AmqpFault`` 501 and 502."""
    try:
        return _decode(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise AmqpFault(ReplyCode.SYNTAX_ERROR, "content properties are damaged") from error


def _decode(data: bytes) -> Properties:
    [flags] = _SHORT.unpack_from(data)
    at = _SHORT.size
    more = flags
    while more & _MORE_FLAGS:  # further flags are of no property that is known
        [more] = _SHORT.unpack_from(data, at)
        at += _SHORT.size
    values: dict[str, str | int | Table] = {}
    for number, name in enumerate(Properties._fields):
        if not flags & 0x8000 >> number:
            continue
        if name == "headers":
            values[name], at = decode_table(data, at)
        elif name in _BYTES:
            values[name], at = data[at], at + 1
        elif name == "timestamp":
            [values[name]] = _LONGLONG.unpack_from(data, at)
            at += _LONGLONG.size
        else:
            stop = at + 1 + data[at]
            if stop > len(data):
                raise AmqpFault(ReplyCode.FRAME_ERROR, f"property {name} is cut off")
            values[name], at = data[at + 1 : stop].decode(), stop
    return Properties(**values)  # type: ignore[arg-type]  # each by its own type


def encode_properties(properties: Properties) -> bytes:
    """Return the bytes of properties, flags first."""
    flags = 0
    parts = []
    for number, (name, value) in enumerate(zip(Properties._fields, properties, strict=True)):
        if value is None:
            continue
        flags |= 0x8000 >> number
        if isinstance(value, Table):
            parts.append(encode_table(value))
        elif isinstance(value, str):
            parts.append(encode_shortstr(value))
        else:
            parts.append(bytes((value,)) if name in _BYTES else _LONGLONG.pack(value))
    return _SHORT.pack(flags) + b"".join(parts)
