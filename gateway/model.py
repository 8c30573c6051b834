"""Data model: topics, partitions, record batches and records.

Standard library only; everything may import this file, it imports nothing of ours but errors.
The stored form of a batch is the Kafka v2 record batch (KIP-98), whose 61-byte header is parsed
here. Offsets of a partition are dense when appended; timestamps are unix milliseconds.
"""

import re
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from gateway.errors import CorruptBatch, InvalidTopicName, UnsupportedFormat

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]

DEFAULT_NAMESPACE: Final = "default"
DEFAULT_GROUP: Final = "@queue"
"""Queue group of a queue that SQS, AMQP and JMS share."""
NAME_CHARS_MAX: Final = 249
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")

# Record batch v2: where each field of the header lies (Kafka documentation, section 5.3.1).
BASE_OFFSET_AT: Final = 0
LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21  # what the CRC covers begins here
CONTROL_AT: Final = 22  # the lower byte of the attributes
LAST_OFFSET_DELTA_AT: Final = 23
MAX_TIMESTAMP_AT: Final = 35
HEADER_BYTES: Final = 61
# A control batch has one record, whose key says what it marks: version, type (KIP-98). In front of
# the key are length, attributes, two deltas and the key's size, of one byte each.
MARKER_TYPE_AT: Final = HEADER_BYTES + 7
MARKER_TYPE_END: Final = MARKER_TYPE_AT + 2
MARKER_ABORT: Final = 0  # 1: commit
LENGTH_OVERHEAD_BYTES: Final = 12  # base offset and length come before what length counts
MAGIC: Final = 2

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08  # set: LogAppendTime
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
NO_PRODUCER: Final = -1

# Records of a batch begin with zigzag varints, most of them of one byte.
VARINT_CONTINUES: Final = 0x80  # a first byte from here on says that the varint goes on
ZIGZAG: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(VARINT_CONTINUES))

# Well-known headers: what protocols share, so that any client can read them, and set some.
DEDUP_ID: Final = "dedup-id"
DELIVER_AT: Final = "deliver-at"  # decimal unix ms
EXPIRES_AT: Final = "expires-at"  # decimal unix ms
MESSAGE_ID: Final = "message-id"
MQTT_TOPIC: Final = "mqtt.topic"  # what a record goes by where its key is something else
EXCHANGE: Final = "amqp.exchange"  # that a message was published to; absent: the default one
# Of dead letters: why they are dead, and whence they came (features/dead_letter.py).
DLQ_PREFIX: Final = "dlq."
KAFKA_DLQ_PREFIX: Final = "__dlq.errors."  # of KIP-1191
DLQ_REASON: Final = "dlq.reason"
DLQ_SOURCE_TOPIC: Final = "dlq.source.topic"
DLQ_SOURCE_PARTITION: Final = "dlq.source.partition"  # decimal, as the offset is
DLQ_SOURCE_OFFSET: Final = "dlq.source.offset"
DLQ_GROUP: Final = "dlq.group"
DLQ_ATTEMPTS: Final = "dlq.attempts"
DLQ_PROTOCOL: Final = "dlq.protocol"
DLQ_HOPS: Final = "dlq.hops"
DLQ_LEFT_OUT: Final = "dlq.left-out"
TIME_DIGITS_MAX: Final = 18  # of a time in a header; whoever writes more says no time

_VARINT_BITS: Final = 64
_VARINT_END: Final = 1 << (_VARINT_BITS - 1)
_VARINT_MASK: Final = (1 << _VARINT_BITS) - 1

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_STAMP_OFFSET: Final = struct.Struct(">q")
_STAMP_EPOCH: Final = struct.Struct(">i")
_MARKER_TYPE: Final = struct.Struct(">h")


class TopicName(NamedTuple):
    """A topic's full name. The default namespace is enough for most."""

    namespace: str
    name: str


class PartitionIdentity(NamedTuple):
    """Identity of a partition, valid without the metadata store.

    ``partition_id`` is a small integer (u32) that is never used for another partition of this
    data directory; ``number`` is the partition's index in its topic, from 0.
    """

    partition_id: int
    topic_uuid: UUID
    topic: TopicName
    number: int


class Record(NamedTuple):
    """One record as a reader sees it. Null and empty differ; headers are ordered and may repeat."""

    offset: int
    timestamp_unix_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class BatchHeader(NamedTuple):
    """The 61 bytes in front of a v2 batch's records, in the order in which they are stored."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_unix_ms: int
    max_timestamp_unix_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.length + LENGTH_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """The batch's last offset; compaction may have removed the record that had it."""
        return self.base_offset + self.last_offset_delta

    @property
    def is_idempotent(self) -> bool:
        """Whether a producer id and sequence are set (KIP-98)."""
        return self.producer_id != NO_PRODUCER

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction; ``read_committed`` shows it after the commit."""
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Whether it is a commit or abort marker, which applications never see."""
        return bool(self.attributes & CONTROL_MASK)


def check_topic_name(name: str) -> str:
    """Return ``name`` when it is legal for a topic, else raise ``InvalidTopicName``.

    >>> check_topic_name("orders.v1")
    'orders.v1'
    """
    if name in {".", ".."} or not _NAME.fullmatch(name):
        msg = f"topic name {name[:80]!r} is not 1 to {NAME_CHARS_MAX} of a-zA-Z0-9._-"
        raise InvalidTopicName(msg)
    return name


def parse_batch_header(batch: Buffer, start: int = 0) -> BatchHeader:
    """Return the header of the v2 batch that begins at index ``start`` of ``batch``.

    Checks that the magic is 2 and that the length fits what is there, nothing else (the CRC is
    checked once, when a producer hands the batch in). Errors: ``CorruptBatch`` when bytes are
    missing, ``UnsupportedFormat`` for formats v0 and v1.
    """
    available_bytes = len(batch) - start
    if available_bytes > MAGIC_AT and batch[start + MAGIC_AT] != MAGIC:
        if batch[start + MAGIC_AT] in {0, 1}:
            msg = f"message format v{batch[start + MAGIC_AT]}; only v2 record batches are kept"
            raise UnsupportedFormat(msg)
        msg = f"magic is {batch[start + MAGIC_AT]}, not {MAGIC}"
        raise CorruptBatch(msg)
    if available_bytes < HEADER_BYTES:
        msg = f"a batch of {available_bytes} bytes is shorter than its header"
        raise CorruptBatch(msg)
    header = BatchHeader._make(_HEADER.unpack_from(batch, start))
    if not HEADER_BYTES <= header.length + LENGTH_OVERHEAD_BYTES <= available_bytes:
        msg = f"batch length {header.length} does not fit the {available_bytes} bytes that came"
        raise CorruptBatch(msg)
    return header


def unpack_batch_header(header: Buffer) -> BatchHeader:
    """Return the header from its 61 bytes alone, as a scan of the log hands them out."""
    return BatchHeader._make(_HEADER.unpack_from(header))


def unix_ms_in(value: bytes | None) -> int | None:
    """Return the time in a record header's value, None unless it is one: clients set headers.

    >>> unix_ms_in(b"1700000000000"), unix_ms_in(b"soon"), unix_ms_in(b"9" * 5_000)
    (1700000000000, None, None)
    """
    if value is None or not value.isdigit() or len(value) > TIME_DIGITS_MAX:
        return None
    return int(value)


def is_dead_letter_reference(headers: Headers) -> bool:
    """Return whether a dead letter names the position of its message but does not contain it."""
    return any(name == DLQ_LEFT_OUT for name, _ in headers)


def strip_dead_letter_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Return the headers of a dead letter that is sent on, to its source or elsewhere.

    ``dlq.hops`` stays, so that the number of moves is bounded.
    """
    return [
        (name, value)
        for name, value in headers
        if name == DLQ_HOPS or not name.startswith((DLQ_PREFIX, KAFKA_DLQ_PREFIX))
    ]


def stamp(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into a batch in place; both lie outside of its CRC."""
    _STAMP_OFFSET.pack_into(batch, BASE_OFFSET_AT, base_offset)
    _STAMP_EPOCH.pack_into(batch, LEADER_EPOCH_AT, leader_epoch)


def is_abort_marker(batch: Buffer) -> bool:
    """Return whether a batch marks the end of an aborted transaction.

    The first ``MARKER_TYPE_END`` bytes of the batch are enough. A control batch of another type is
    a commit, or unknown.
    """
    if not batch[CONTROL_AT] & CONTROL_MASK or len(batch) < MARKER_TYPE_END:
        return False
    return _MARKER_TYPE.unpack_from(batch, MARKER_TYPE_AT) == (MARKER_ABORT,)


def encode_varint(value: int) -> bytes:
    r"""Return the zigzag varint of a signed number. Error: ``OverflowError`` above 64 bits.

    >>> encode_varint(-1), encode_varint(0), encode_varint(300)
    (b'\x01', b'\x00', b'\xd8\x04')
    """
    if not -_VARINT_END <= value < _VARINT_END:
        raise OverflowError(f"{value} has more than 64 bits")
    rest = (value << 1) ^ (value >> (_VARINT_BITS - 1))
    data = bytearray()
    while rest >= VARINT_CONTINUES:
        data.append(VARINT_CONTINUES | (rest & 0x7F))
        rest >>= 7
    data.append(rest)
    return bytes(data)


def encode_uvarint(value: int) -> bytes:
    r"""Return the varint of a number that is not negative (LEB128).

    >>> encode_uvarint(0), encode_uvarint(300)
    (b'\x00', b'\xac\x02')
    """
    if value < VARINT_CONTINUES:  # nearly all are one byte
        return bytes((value,))
    data = bytearray()
    while value >= VARINT_CONTINUES:
        data.append(value & 0x7F | VARINT_CONTINUES)
        value >>= 7
    data.append(value)
    return bytes(data)


def decode_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    r"""Return (value, index after it) of an unsigned varint (LEB128) of at most 5 bytes.

    Errors: ``IndexError`` when the data ends within it, ``ValueError`` for a sixth byte.

    >>> decode_uvarint(b"\x00", 0), decode_uvarint(b"-\xac\x02-", 1)
    ((0, 1), (300, 3))
    """
    value = data[at]
    at += 1
    if value < VARINT_CONTINUES:  # nearly all are one byte
        return value, at
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < VARINT_CONTINUES:
            return value, at
    raise ValueError("a varint is longer than 5 bytes")


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (value, position after it) of a zigzag varint.

    The last of ten bytes gives one bit, as in Kafka's ByteUtils: 64 bits are kept.

    Errors: ``IndexError`` when the data ends within it, or it is longer than ten bytes.
    """
    byte = data[position]
    if byte < VARINT_CONTINUES:
        return ZIGZAG[byte], position + 1
    second = data[position + 1]
    if second < VARINT_CONTINUES:  # what most lengths of values are: 0.4 us, the loop takes 1
        result = byte & 0x7F | second << 7
        return (result >> 1) ^ -(result & 1), position + 2
    result = 0
    for shift in range(0, _VARINT_BITS, 7):
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < VARINT_CONTINUES:
            result &= _VARINT_MASK
            return (result >> 1) ^ -(result & 1), position
    raise IndexError("a varint is longer than ten bytes")
