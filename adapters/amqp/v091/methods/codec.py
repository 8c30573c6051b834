"""Bytes of methods, and back (AMQP 0-9-1 section 4.2.4)."""

import struct
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final, get_type_hints

from adapters.amqp.v091.errors import AmqpFault, FrameFault, ReplyCode
from adapters.amqp.v091.fields import (
    Table,
    decode_table,
    encode_longstr,
    encode_shortstr,
    encode_table,
)
from adapters.amqp.v091.methods import (  # noqa: F401 - each registers its methods
    basic,
    channel,
    confirm,
    connection,
    exchange,
    queue,
    tx,
)
from adapters.amqp.v091.methods.model import METHODS, Method

_BITS: Final = 8  # of a byte
_INDEX: Final = struct.Struct(">HH")
_NUMBERS: Final = {
    "byte": struct.Struct(">B"),
    "short": struct.Struct(">H"),
    "long": struct.Struct(">I"),
    "longlong": struct.Struct(">Q"),
}


def _plan(found: type[Method]) -> list[tuple[str, str]]:
    hints = get_type_hints(found, include_extras=True)
    return [(one.name, hints[one.name].__metadata__[0]) for one in fields(found)]  # type: ignore[arg-type]


_PLANS: Final = {index: (found, _plan(found)) for index, found in METHODS.items()}


def decode_method(payload: bytes) -> Method:
    """Return the method of a method frame.

    Errors: ``AmqpFault`` 540 for an unknown method, 501 or 502 for damaged fields.
    """
    try:
        class_id, method_id = index = _INDEX.unpack_from(payload)
    except struct.error:
        raise FrameFault("method frame is too short") from None
    known = _PLANS.get(index)
    if known is None:
        text = f"unknown method {class_id}.{method_id}"
        raise AmqpFault(ReplyCode.NOT_IMPLEMENTED, text)
    found, plan = known
    try:
        return found(*_decode_fields(payload, plan))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        text = f"fields of {found.NAME} are damaged"
        raise AmqpFault(ReplyCode.SYNTAX_ERROR, text) from error


def _decode_fields(payload: bytes, plan: list[tuple[str, str]]) -> list[Any]:
    at, bit = _INDEX.size, 0
    values: list[Any] = []
    for _, kind in plan:
        if kind == "bit":  # consecutive bits share bytes
            if bit == _BITS:
                bit, at = 0, at + 1
            values.append(bool(payload[at] >> bit & 1))
            bit += 1
            continue
        if bit:
            bit, at = 0, at + 1
        value, at = _decode_field(payload, at, kind)
        values.append(value)
    return values


def _decode_field(payload: bytes, at: int, kind: str) -> tuple[Any, int]:
    if number := _NUMBERS.get(kind):
        return number.unpack_from(payload, at)[0], at + number.size
    if kind == "table":
        return decode_table(payload, at)
    if kind == "shortstr":
        start, size = at + 1, payload[at]
    else:
        start, size = at + 4, int.from_bytes(payload[at : at + 4], "big")
    value = payload[start : start + size]
    if len(value) != size:
        raise FrameFault("string is longer than its frame")
    return value.decode() if kind == "shortstr" else value, start + size


def encode_method(method: Method) -> bytes:
    """Return the payload of a method frame."""
    _, plan = _PLANS[method.INDEX]
    parts = [_INDEX.pack(*method.INDEX)]
    bits, count = 0, 0
    for name, kind in plan:
        value = getattr(method, name)
        if kind == "bit":
            bits |= bool(value) << count
            count += 1
            continue
        if count:
            parts.append(bytes((bits,)))
            bits = count = 0
        parts.append(_encode_field(kind, value))
    if count:
        parts.append(bytes((bits,)))
    return b"".join(parts)


_ENCODERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "table": encode_table,
    "shortstr": encode_shortstr,
    "longstr": encode_longstr,
}


def _encode_field(kind: str, value: int | str | bytes | Table) -> bytes:
    if number := _NUMBERS.get(kind):
        return number.pack(value)
    return _ENCODERS[kind](value)
