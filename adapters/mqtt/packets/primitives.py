"""The data types that packets are made of (MQTT 5.0 section 1.5), and their two kinds of fault.

A *malformed packet* cannot be parsed; a *protocol error* was parsed and says what may not be
said (section 1.2). All functions take a packet's body (or a part of it) as ``data``, an index
in bytes, and give the value and the index behind it; whatever does not fit is malformed.
"""

from typing import Final

from adapters.mqtt.errors import MqttError, ReasonCode
from gateway.model import encode_uvarint

VARINT_MAX: Final = 268_435_455
VARINT_BYTES_MAX: Final = 4
TEXT_BYTES_MAX: Final = 65_535


def malformed(message: str) -> MqttError:
    """Return the error for a packet that cannot be parsed."""
    return MqttError(ReasonCode.MALFORMED_PACKET, message)


def protocol_error(message: str) -> MqttError:
    """Return the error for a packet that says what may not be said."""
    return MqttError(ReasonCode.PROTOCOL_ERROR, message)


def decode_varint(data: bytes, at: int) -> tuple[int, int] | None:
    r"""Return a Variable Byte Integer and where it ends (section 1.5.5).

    None when ``data`` ends too early and more may come. Malformed: a fifth byte, and more
    bytes than the value needs (MQTT-1.5.5-1).

    >>> decode_varint(b"\x80\x01rest", 0)
    (128, 2)
    """
    if at < len(data) and data[at] < 0x80:  # noqa: PLR2004 - nearly all are one byte
        return data[at], at + 1
    value = 0
    for index, byte in enumerate(data[at : at + VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            if index and not byte:
                raise malformed("a length has more bytes than it needs")
            return value, at + index + 1
    if len(data) - at >= VARINT_BYTES_MAX:
        raise malformed("a length has more than 4 bytes")
    return None


def find_varint(data: bytes, at: int) -> tuple[int, int] | None:
    """Return the same, and None for a malformed one, too: who looks ahead leaves it to others."""
    try:
        return decode_varint(data, at)
    except MqttError:
        return None


def decode_whole_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a Variable Byte Integer of a body that is there in whole."""
    found = decode_varint(data, at)
    if found is None:
        raise malformed("a packet ends within a length")
    return found


def encode_varint(value: int) -> bytes:
    r"""Return a Variable Byte Integer in the fewest bytes; ``value`` is up to ``VARINT_MAX``.

    >>> encode_varint(128)
    b'\x80\x01'
    """
    assert 0 <= value <= VARINT_MAX, value
    return encode_uvarint(value)


def decode_uint16(data: bytes, at: int) -> tuple[int, int]:
    """Return a Two Byte Integer (section 1.5.2)."""
    end = at + 2
    if end > len(data):
        raise malformed("a packet ends within a number")
    return data[at] << 8 | data[at + 1], end


def decode_binary(data: bytes, at: int) -> tuple[bytes, int]:
    """Return Binary Data: a length of two bytes and so many bytes (section 1.5.6)."""
    size_bytes, at = decode_uint16(data, at)
    end = at + size_bytes
    if end > len(data):
        raise malformed("a packet ends within a string or binary data")
    return data[at:end], end


def decode_text(data: bytes, at: int) -> tuple[str, int]:
    """Return a UTF-8 Encoded String (section 1.5.4).

    Malformed: what is not UTF-8, surrogates among it (MQTT-1.5.4-1), and U+0000
    (MQTT-1.5.4-2). U+FEFF stays where it is (MQTT-1.5.4-3).
    """
    raw, at = decode_binary(data, at)
    return text_of(raw), at


def text_of(data: bytes) -> str:
    """Return the string that ``bytes`` (without the length) are."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise malformed("a string is not UTF-8") from error
    if "\0" in text:
        raise malformed("a string has the character U+0000")
    return text


def encode_binary(data: bytes) -> bytes:
    """Return Binary Data of at most 65,535 bytes."""
    assert len(data) <= TEXT_BYTES_MAX, len(data)
    return len(data).to_bytes(2) + data


def encode_text(text: str) -> bytes:
    """Return a UTF-8 Encoded String of at most 65,535 bytes."""
    return encode_binary(text.encode())
