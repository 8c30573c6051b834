"""Frames to commands and back (``RemotingCommand``, ``RocketMQSerializable``). Big-endian.

    frame     length of the rest i32, serialization u8, length of the header u24, header, body
    JSON      {"code", "extFields", "flag", "language", "opaque", "remark",
              "serializeTypeCurrentRPC", "version"}
    ROCKETMQ  code i16, language i8, version i16, opaque i32, flag i32, length and bytes of the
              remark (i32), length of the fields i32, of each: length and bytes of its name (i16)
              and of its value (i32)

Clients differ: the values of ``extFields`` are texts in Java, and numbers and booleans too in C++;
a language is a name or a number; a header may end with a line feed.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

import orjson

from adapters.rocketmq.remoting.wire import (
    LANGUAGES,
    NO_FIELDS,
    Command,
    Serialization,
)
from gateway.errors import PeerError
from gateway.model import Buffer

FRAME_BYTES_MIN: Final = 4
"""Bytes of a frame's smallest content: the word with serialization and header length."""
FIELDS_MAX: Final = 1_024
"""Fields of one header; clients send some twenty, and properties of messages in one of them."""
HEADER_BYTES_MAX: Final = 0xFFFFFF
_OTHER: Final = LANGUAGES.index("OTHER")
_NUMBERS: Final = {name: number for number, name in enumerate(LANGUAGES)}
_I32: Final = range(-(1 << 31), 1 << 31)
_I16_MAX: Final = (1 << 15) - 1

_WORD: Final = struct.Struct(">I")
_LEAD: Final = struct.Struct(">II")
_BINARY: Final = struct.Struct(">hbhiii")
_SIZE: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")

_Header = tuple[int, Mapping[str, str], int, int, int, str, str | None]


def decode_frame(frame: memoryview) -> Command:
    """Return the command in a frame, without the frame's length. ``body`` is a view of it.

    Error: ``PeerError`` for a header that cannot be read: no response could name its request.
    """
    if len(frame) < FRAME_BYTES_MIN:
        raise PeerError(f"a frame of {len(frame)} bytes has no header")
    (word,) = _WORD.unpack_from(frame)
    end = FRAME_BYTES_MIN + (word & HEADER_BYTES_MAX)
    if end > len(frame):
        raise PeerError(f"a header of {end - FRAME_BYTES_MIN} bytes in {len(frame)}")
    header = frame[FRAME_BYTES_MIN:end]
    kind = word >> 24
    if kind == Serialization.JSON:
        found = _decode_json(header)
    elif kind == Serialization.ROCKETMQ:
        found = _decode_binary(bytes(header))
    else:
        raise PeerError(f"serialization {kind} is not known")
    code, fields, opaque, flag, version, language, remark = found
    serialization = Serialization(kind)
    return Command(
        code, fields, frame[end:], opaque, flag, version, language, remark, serialization
    )


def encode_frame(command: Command) -> bytes:
    """Return a command as a frame with its length.

    Error: ``ValueError`` for a code or a header that does not fit the serialization.
    """
    is_json = command.serialization is Serialization.JSON
    header = _encode_json(command) if is_json else _encode_binary(command)
    if len(header) > HEADER_BYTES_MAX:
        raise ValueError(f"a header of {len(header)} bytes")
    word = command.serialization << 24 | len(header)
    length = FRAME_BYTES_MIN + len(header) + len(command.body)
    return b"".join((_LEAD.pack(length, word), header, command.body))


# --- JSON


def _decode_json(header: memoryview) -> _Header:
    try:
        found = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise PeerError(f"the header is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise PeerError("the header is no JSON object")
    fields = found.get("extFields")
    remark = found.get("remark")
    return (
        _number(found, "code", None),
        NO_FIELDS if fields is None else _text_fields(fields),
        _number(found, "opaque", 0),
        _number(found, "flag", 0),
        _number(found, "version", 0),
        _language_name(found.get("language")),
        remark if isinstance(remark, str) else None,
    )


def _number(header: dict[str, Any], name: str, default: int | None) -> int:
    value = header.get(name, default)
    if type(value) is not int or value not in _I32:
        raise PeerError(f"{name} of the header is no number of 32 bits")
    return value


def _text_fields(fields: object) -> dict[str, str]:
    if not isinstance(fields, dict) or len(fields) > FIELDS_MAX:
        raise PeerError(f"extFields is no object of at most {FIELDS_MAX} fields")
    if all(type(value) is str for value in fields.values()):
        return fields
    return {name: _text(value) for name, value in fields.items() if value is not None}


def _text(value: object) -> str:
    """Return a field's value as Java writes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise PeerError("a field of extFields is an object or an array")


def _language_name(value: object) -> str:
    if type(value) is int and 0 <= value < len(LANGUAGES):
        return LANGUAGES[value]
    return value if isinstance(value, str) and value in _NUMBERS else LANGUAGES[_OTHER]


def _encode_json(command: Command) -> bytes:
    header: dict[str, object] = {"code": int(command.code)}
    if command.fields:
        header["extFields"] = dict(command.fields)
    header["flag"] = command.flag
    header["language"] = command.language
    header["opaque"] = command.opaque
    if command.remark is not None:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = command.version
    return orjson.dumps(header)


# --- ROCKETMQ


def _decode_binary(header: bytes) -> _Header:
    try:
        code, language, version, opaque, flag, remark_bytes = _BINARY.unpack_from(header)
        remark, at = _take_text(header, _BINARY.size, remark_bytes)
        (fields_bytes,) = _SIZE.unpack_from(header, at)
        at += _SIZE.size
        if fields_bytes < 0 or at + fields_bytes > len(header):
            raise PeerError(f"fields of {fields_bytes} bytes in a header of {len(header)}")
        fields = _decode_fields(header, at, at + fields_bytes) if fields_bytes else NO_FIELDS
    except struct.error as error:
        raise PeerError(f"the header ends early: {error}") from None
    return code, fields, opaque, flag, version, _language_name(language), remark or None


def _decode_fields(header: bytes, at: int, end: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    while at < end:
        (size,) = _SHORT.unpack_from(header, at)
        name, at = _take_text(header, at + _SHORT.size, size)
        (size,) = _SIZE.unpack_from(header, at)
        value, at = _take_text(header, at + _SIZE.size, size)
        if at > end or len(fields) >= FIELDS_MAX:
            raise PeerError(f"the header's fields are no {FIELDS_MAX} within their bytes")
        fields[name] = value
    return fields


def _take_text(header: bytes, at: int, size_bytes: int) -> tuple[str, int]:
    end = at + size_bytes
    if size_bytes < 0 or end > len(header):
        raise PeerError(f"a text of {size_bytes} bytes in a header of {len(header)}")
    try:
        return header[at:end].decode(), end
    except UnicodeDecodeError as error:
        raise PeerError(f"the header has bytes that are no UTF-8: {error.reason}") from None


def _encode_binary(command: Command) -> bytes:
    if not -_I16_MAX <= command.code <= _I16_MAX:
        raise ValueError(f"code {command.code} does not fit a binary header")
    remark = (command.remark or "").encode()
    parts: list[Buffer] = []
    for name, value in command.fields.items():
        name_bytes, value_bytes = name.encode(), value.encode()
        parts += (_SHORT.pack(len(name_bytes)), name_bytes)
        parts += (_SIZE.pack(len(value_bytes)), value_bytes)
    fields = b"".join(parts)
    lead = _BINARY.pack(
        command.code,
        _NUMBERS.get(command.language, _OTHER),
        command.version,
        command.opaque,
        command.flag,
        len(remark),
    )
    return b"".join((lead, remark, _SIZE.pack(len(fields)), fields))
