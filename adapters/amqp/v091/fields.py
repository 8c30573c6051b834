"""Field tables: names with typed values (AMQP 0-9-1 section 4.2.5, with RabbitMQ's types).

The letters are those that RabbitMQ reads, which differ from the specification's:
https://www.rabbitmq.com/docs/amqp-0-9-1-errata section 3. Order and repeated names are kept.
"""

import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Final, NamedTuple, TypeAlias

from adapters.amqp.v091.errors import FrameFault
from gateway.model import Buffer

DEPTH_MAX: Final = 64  # tables and arrays within each other

FieldValue: TypeAlias = (
    "bool | int | float | str | bytes | Decimal | tuple[Field, ...] | Table | None"
)


class Field(NamedTuple):
    """Typed value. ``kind`` is its letter on the wire.

    ``S`` is a ``str``, or ``bytes`` where it is not UTF-8; ``x`` is ``bytes``; ``T`` counts
    seconds; ``F`` is a ``Table``, ``A`` a tuple of fields; ``V`` has no value.
    """

    kind: str
    value: FieldValue


class Table(tuple[tuple[str, Field], ...]):
    """Field table: pairs of name and field, in the order of the wire."""

    __slots__ = ()

    def find(self, name: str) -> Field | None:
        """Return the first field of that name."""
        return next((field for key, field in self if key == name), None)

    def value(self, name: str) -> FieldValue:
        """Return the value of the first field of that name; None without one."""
        field = self.find(name)
        return None if field is None else field.value


EMPTY: Final = Table()

_NUMBERS: Final = {
    "b": struct.Struct(">b"),
    "B": struct.Struct(">B"),
    "s": struct.Struct(">h"),
    "u": struct.Struct(">H"),
    "I": struct.Struct(">i"),
    "i": struct.Struct(">I"),
    "l": struct.Struct(">q"),
    "L": struct.Struct(">q"),
    "T": struct.Struct(">Q"),
    "d": struct.Struct(">d"),
    "f": struct.Struct(">f"),
}
_DECIMAL: Final = struct.Struct(">BI")
_LONG: Final = struct.Struct(">I")
_SHORTSTR_BYTES_MAX: Final = 255


class _Open:
    """Table or array that is being decoded: where it ends, and the name it goes by."""

    __slots__ = ("end", "is_table", "items", "name")

    def __init__(self, end: int, name: str, *, is_table: bool) -> None:
        self.end = end
        self.name = name
        self.is_table = is_table
        self.items: list[tuple[str, Field]] = []

    def field(self) -> Field:
        if self.is_table:
            return Field("F", Table(self.items))
        return Field("A", tuple(field for _, field in self.items))


def decode_table(data: Buffer, start: int = 0) -> tuple[Table, int]:
    """Decode a table with its length, and return it with the index behind it.

    Error: ``FrameFault`` for lengths that contradict each other, unknown types, or more than
    ``DEPTH_MAX`` tables and arrays within each other.
    """
    try:
        [size] = _LONG.unpack_from(data, start)
        return _decode(bytes(data), start + _LONG.size, size)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise FrameFault("field table is damaged") from error


def _decode(data: bytes, at: int, size: int) -> tuple[Table, int]:
    if at + size > len(data):
        raise FrameFault("field table is longer than its frame")
    stack = [_Open(at + size, "", is_table=True)]
    while True:
        top = stack[-1]
        if at >= top.end:
            if at > top.end:
                raise FrameFault("field is longer than its table")
            stack.pop()
            if not stack:
                return Table(top.items), at
            stack[-1].items.append((top.name, top.field()))
            continue
        name = ""
        if top.is_table:
            stop = at + 1 + data[at]
            name = data[at + 1 : stop].decode()
            at = stop
        kind = chr(data[at])
        at += 1
        if kind in "FA":
            [size] = _LONG.unpack_from(data, at)
            at += _LONG.size
            if at + size > top.end or len(stack) >= DEPTH_MAX:
                raise FrameFault("field table is damaged, or nested too deeply")
            stack.append(_Open(at + size, name, is_table=kind == "F"))
            continue
        field, at = _decode_scalar(data, at, kind)
        top.items.append((name, field))


def _decode_scalar(data: bytes, at: int, kind: str) -> tuple[Field, int]:
    number = _NUMBERS.get(kind)
    if number is not None:
        return Field(kind, number.unpack_from(data, at)[0]), at + number.size
    if kind in "Sx":
        [size] = _LONG.unpack_from(data, at)
        at += _LONG.size
        value = data[at : at + size]
        if len(value) != size:
            raise FrameFault("field is longer than its table")
        return Field(kind, value if kind == "x" else _as_text(value)), at + size
    if kind == "t":
        return Field(kind, data[at] != 0), at + 1
    if kind == "V":
        return Field(kind, None), at
    if kind == "D":
        scale, digits = _DECIMAL.unpack_from(data, at)
        return Field(kind, Decimal(digits).scaleb(-scale)), at + _DECIMAL.size
    raise FrameFault(f"unknown field type {kind!r}")


def _as_text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def encode_table(table: Table) -> bytes:
    """Encode a table with its length; at most ``DEPTH_MAX`` deep."""
    body = b"".join(
        part for name, field in table for part in (encode_shortstr(name), _encode_field(field))
    )
    return _LONG.pack(len(body)) + body


def encode_shortstr(text: str | bytes) -> bytes:
    """Encode a short string; what is above 255 bytes is cut off."""
    data = text if isinstance(text, bytes) else text.encode()
    if len(data) > _SHORTSTR_BYTES_MAX:
        data = data[:_SHORTSTR_BYTES_MAX].decode(errors="ignore").encode()
    return bytes((len(data),)) + data


def encode_longstr(text: str | bytes) -> bytes:
    """Encode a long string."""
    data = text if isinstance(text, bytes) else text.encode()
    return _LONG.pack(len(data)) + data


def _encode_field(field: Field) -> bytes:
    kind, value = field
    number = _NUMBERS.get(kind)
    letter = kind.encode()
    if number is not None:
        return letter + number.pack(value)
    if isinstance(value, Table):
        return letter + encode_table(value)
    if isinstance(value, tuple):
        body = b"".join(map(_encode_field, value))
        return letter + _LONG.pack(len(body)) + body
    if isinstance(value, str | bytes):
        return letter + encode_longstr(value)
    if isinstance(value, Decimal):
        exponent = -int(value.as_tuple().exponent)
        return letter + _DECIMAL.pack(exponent, int(value.scaleb(exponent)))
    return letter + (b"" if kind == "V" else bytes((bool(value),)))


def to_field(value: object) -> Field:
    """Return a plain value as a field, typed as RabbitMQ types what its HTTP API takes."""
    if isinstance(value, dict):
        return Field("F", to_table(value))
    if isinstance(value, list | tuple):
        return Field("A", tuple(to_field(one) for one in value))
    if isinstance(value, bytes):
        return Field("x", value)
    kind = _PLAIN_KINDS.get(type(value))
    return Field("S", str(value)) if kind is None else Field(kind, value)  # type: ignore[arg-type]


_PLAIN_KINDS: Final = {type(None): "V", bool: "t", int: "l", float: "d"}


def to_table(values: Mapping[str, object]) -> Table:
    """Return plain values as a table; see ``to_field``."""
    return Table((name, to_field(value)) for name, value in values.items())
