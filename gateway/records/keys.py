"""Keys of a batch, for the key index; values are skipped, not decoded.

But for what a header ``mqtt.topic`` names: who looks for a topic finds such records by it.
"""

from typing import Final

from gateway.errors import CorruptBatch
from gateway.model import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    MQTT_TOPIC,
    VARINT_CONTINUES,
    Buffer,
    parse_batch_header,
    read_varint,
)
from gateway.records.codec import DECOMPRESSED_BYTES_MAX
from gateway.records.compression import decompress

_RECORD_BYTES_MIN: Final = 7
_TOPIC: Final = MQTT_TOPIC.encode()


def keys_of_batch(batch: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> set[bytes]:
    """Return the distinct keys and header topics of a v2 batch; none of a control batch.

    Records without either add nothing. Errors: ``CorruptBatch`` when the batch contradicts
    itself or decompresses to more than ``bytes_max``.
    """
    header = parse_batch_header(batch)
    if header.is_control:
        return set()
    data = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
    data = decompress(header.attributes & COMPRESSION_MASK, data, bytes_max=bytes_max)
    if not 0 <= header.record_count * _RECORD_BYTES_MIN <= len(data):
        raise CorruptBatch(f"{header.record_count} records in {len(data)} bytes")
    try:
        return _keys(data, header.record_count)
    except IndexError:
        raise CorruptBatch("a record reaches beyond its batch") from None


def _keys(data: bytes, record_count: int) -> set[bytes]:
    """Return the keys of that many records. Errors: ``IndexError``, ``CorruptBatch``."""
    keys: set[bytes] = set()
    may_name_topics = _TOPIC in data
    position = 0
    for _ in range(record_count):
        length, position = read_varint(data, position)
        end = position + length
        position += 1  # the attributes, of which none is defined
        # Timestamp and offset deltas: only where they end matters.
        while data[position] >= VARINT_CONTINUES:
            position += 1
        position += 1
        while data[position] >= VARINT_CONTINUES:
            position += 1
        size, position = read_varint(data, position + 1)
        if size >= 0:
            keys.add(data[position : position + size])
            position += size
        if not position < end <= len(data):
            raise CorruptBatch(f"a record of {length} bytes does not hold its key")
        if may_name_topics and data.find(_TOPIC, position, end) >= 0:
            _add_topics(keys, data, position)
        position = end
    return keys


def _add_topics(keys: set[bytes], data: bytes, position: int) -> None:
    """Add the topic in the headers of the record at a position. Error: ``IndexError``."""
    size, position = read_varint(data, position)
    count, position = read_varint(data, position + max(size, 0))
    for _ in range(count):
        size, position = read_varint(data, position)
        is_topic = data[position : position + size] == _TOPIC
        size, position = read_varint(data, position + max(size, 0))
        if is_topic and size >= 0:
            keys.add(data[position : position + size])
        position += max(size, 0)
