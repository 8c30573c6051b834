"""Messages in bodies (``MessageDecoder``): stored messages, members of a batch, properties.

    stored message   size i32, magic u32, CRC i32, queue id i32, flag i32, queue offset i64,
                     physical offset i64, system flag i32, born time i64, born host, store time
                     i64, store host, reconsume times i32, prepared transaction offset i64,
                     body: size i32, bytes; topic: size u8, bytes; properties: size i16, bytes
    host             address of 4 bytes, of 16 if the system flag says so; port i32
    batch member     size i32, magic i32, CRC i32, flag i32, body: size i32, bytes;
                     properties: size i16, bytes
    properties       each: name, 0x01, value, 0x02; the last 0x02 may be missing

The CRC is CRC-32 of the body without its highest bit. Sizes count themselves.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.wire import ResponseCode
from gateway.config.base import Address
from gateway.model import Buffer

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"
PROPERTIES_BYTES_MAX: Final = 32_767
BATCH_MESSAGES_MAX: Final = 100_000
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
_MAGIC: Final = 0xDAA320A7
_CRC_MASK: Final = 0x7FFFFFFF
_V4_BYTES: Final = 4

_FIRST: Final = struct.Struct(">iIiiiqqiq")
_STORED: Final = struct.Struct(">q")
_REST: Final = struct.Struct(">iqi")
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_PORT_BYTES: Final = 4
_MEMBER: Final = struct.Struct(">iiiii")


class BatchMember(NamedTuple):
    """Message of a batch as a producer sends it."""

    flag: int
    body: bytes
    properties: Mapping[str, str]


class StoredMessage(NamedTuple):
    """Message as a consumer gets it. Times are unix milliseconds."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    flag: int
    born_unix_ms: int
    born_host: bytes
    stored_unix_ms: int
    store_host: bytes
    reconsume_times: int
    body: bytes
    properties: Mapping[str, str]


def encode_host(address: Address) -> bytes:
    """Return a host's address and port. Error: ``ValueError`` for a name in place of an address.

    >>> encode_host(Address("127.0.0.1", 10911)).hex()
    '7f00000100002a9f'
    """
    return ip_address(address.host).packed + _INT.pack(address.port)


def decode_host(host: bytes) -> Address:
    """Return the address of an encoded host.

    >>> str(decode_host(bytes.fromhex("7f00000100002a9f")))
    '127.0.0.1:10911'
    """
    (port,) = _INT.unpack_from(host, len(host) - _PORT_BYTES)
    return Address(str(ip_address(host[:-_PORT_BYTES])), port)


def message_id(store_host: bytes, physical_offset: int) -> str:
    """Return the id by which a message is found at its store host, in capital hexadecimal."""
    return (store_host + _STORED.pack(physical_offset)).hex().upper()


# --- properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    r"""Return encoded properties.

    >>> encode_properties({"TAGS": "a"})
    b'TAGS\x01a\x02'
    """
    return "".join(
        [f"{name}{NAME_END}{value}{VALUE_END}" for name, value in properties.items()]
    ).encode()


def decode_properties(text: str | None) -> dict[str, str]:
    r"""Return properties by name, without those that lack a name or a value, as Java does.

    >>> decode_properties("TAGS\x01a\x02KEYS\x01b\x02empty\x01\x02")
    {'TAGS': 'a', 'KEYS': 'b'}
    """
    properties: dict[str, str] = {}
    for pair in (text or "").split(VALUE_END):
        name, is_pair, value = pair.partition(NAME_END)
        if is_pair and name and value and NAME_END not in value:
            properties[name] = value
    return properties


# --- stored messages


def encode_message(message: StoredMessage) -> bytes:
    """Return a stored message; its topic has at most 127 bytes, its properties 32,767."""
    topic, properties = message.topic.encode(), encode_properties(message.properties)
    body = message.body
    system_flag = 0
    if len(message.born_host) > _V4_BYTES + _PORT_BYTES:
        system_flag |= BORN_HOST_V6
    if len(message.store_host) > _V4_BYTES + _PORT_BYTES:
        system_flag |= STORE_HOST_V6
    size = (
        _FIRST.size
        + len(message.born_host)
        + _STORED.size
        + len(message.store_host)
        + _REST.size
        + len(body)
        + 1
        + len(topic)
        + _SHORT.size
        + len(properties)
    )
    first = _FIRST.pack(
        size,
        _MAGIC,
        zlib.crc32(body) & _CRC_MASK,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        system_flag,
        message.born_unix_ms,
    )
    return b"".join(
        (
            first,
            message.born_host,
            _STORED.pack(message.stored_unix_ms),
            message.store_host,
            _REST.pack(message.reconsume_times, 0, len(body)),
            body,
            bytes((len(topic),)),
            topic,
            _SHORT.pack(len(properties)),
            properties,
        )
    )


def decode_messages(data: Buffer) -> list[StoredMessage]:
    """Return the stored messages in a body, for the client half.

    Error: ``ValueError`` for bytes that are no messages.
    """
    view, found, at = memoryview(data), [], 0
    while at < len(view):
        try:
            message, size = _decode_message(view[at:])
        except (struct.error, IndexError) as error:
            raise ValueError(f"the message at {at} ends early: {error}") from None
        found.append(message)
        at += size
    return found


def _decode_message(view: memoryview) -> tuple[StoredMessage, int]:
    size, magic, crc, queue_id, flag, offset, physical, system_flag, born = _FIRST.unpack_from(
        view
    )
    if magic != _MAGIC:
        raise ValueError(f"magic {magic:#x} is not {_MAGIC:#x}")
    reader = _Reader(view, _FIRST.size)
    born_host = reader.take(_host_bytes(system_flag, BORN_HOST_V6))
    (stored,) = _STORED.unpack(reader.take(_STORED.size))
    store_host = reader.take(_host_bytes(system_flag, STORE_HOST_V6))
    reconsume_times, _prepared, body_bytes = _REST.unpack(reader.take(_REST.size))
    body = reader.take(body_bytes)
    topic = reader.take(reader.take(1)[0]).decode()
    (properties_bytes,) = _SHORT.unpack(reader.take(_SHORT.size))
    properties = decode_properties(reader.take(properties_bytes).decode())
    if reader.at != size or zlib.crc32(body) & _CRC_MASK != crc:
        raise ValueError(f"a message of {size} bytes ends at {reader.at}, or its CRC is wrong")
    message = StoredMessage(
        topic,
        queue_id,
        offset,
        physical,
        flag,
        born,
        born_host,
        stored,
        store_host,
        reconsume_times,
        body,
        properties,
    )
    return message, size


def _host_bytes(system_flag: int, is_v6: int) -> int:
    return (16 if system_flag & is_v6 else _V4_BYTES) + _PORT_BYTES


class _Reader:
    """Position in bytes, from which pieces are taken. Error: ``IndexError`` beyond the end."""

    def __init__(self, view: memoryview, at: int) -> None:
        self._view = view
        self.at = at

    def take(self, size_bytes: int) -> bytes:
        end = self.at + size_bytes
        if size_bytes < 0 or end > len(self._view):
            raise IndexError(f"{size_bytes} bytes at {self.at} of {len(self._view)}")
        piece = bytes(self._view[self.at : end])
        self.at = end
        return piece


# --- batches


def encode_batch(members: Iterable[BatchMember]) -> bytes:
    """Return the body of a batch, as a producer sends it."""
    parts: list[bytes] = []
    for flag, body, properties in members:
        encoded = encode_properties(properties)
        size = _MEMBER.size + len(body) + _SHORT.size + len(encoded)
        parts += (_MEMBER.pack(size, 0, 0, flag, len(body)), body)
        parts += (_SHORT.pack(len(encoded)), encoded)
    return b"".join(parts)


def decode_batch(data: Buffer) -> list[BatchMember]:
    """Return the members of a batch, at least one. Errors: ``Refused`` with MESSAGE_ILLEGAL."""
    view, at, members = memoryview(data), 0, list[BatchMember]()
    while at < len(view):
        if len(members) == BATCH_MESSAGES_MAX:
            raise _illegal(f"more than {BATCH_MESSAGES_MAX} messages in a batch")
        try:
            size, _magic, _crc, flag, body_bytes = _MEMBER.unpack_from(view, at)
            reader = _Reader(view, at + _MEMBER.size)
            body = reader.take(body_bytes)
            (properties_bytes,) = _SHORT.unpack(reader.take(_SHORT.size))
            text = reader.take(properties_bytes).decode()
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise _illegal(f"the batch cannot be read at {at}: {error}") from None
        if reader.at != at + size:
            raise _illegal(f"a message of {size} bytes in a batch has {reader.at - at}")
        members.append(BatchMember(flag, body, decode_properties(text)))
        at = reader.at
    if not members:
        raise _illegal("a batch without messages")
    return members


def _illegal(remark: str) -> Refused:
    return Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
