"""First record of a stored batch at or after a time."""

from gateway.model import TIMESTAMP_TYPE_MASK, Buffer, parse_batch_header, read_varint
from gateway.records.codec import (
    DECOMPRESSED_BYTES_MAX,
    DELETE_HORIZON_MASK,
    RECORDS_MAX,
    bounded_time,
    garbled,
    records_data,
)


def first_record_at(batch: Buffer, timestamp_unix_ms: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or after a time, or None.

    The header alone answers when the batch is too old, when its first record is young enough,
    and under LogAppendTime; else only lengths and deltas are read, no keys and values. Errors:
    ``CorruptBatch``.
    """
    header = parse_batch_header(batch)
    if header.max_timestamp_unix_ms < timestamp_unix_ms:
        return None
    if header.attributes & TIMESTAMP_TYPE_MASK:
        return header.base_offset, header.max_timestamp_unix_ms
    is_first_known = not header.attributes & DELETE_HORIZON_MASK
    if is_first_known and header.base_timestamp_unix_ms >= timestamp_unix_ms:
        return header.base_offset, header.base_timestamp_unix_ms
    data = records_data(
        batch, header, bytes_max=DECOMPRESSED_BYTES_MAX, records_max=RECORDS_MAX
    )
    position = 0
    try:
        for _ in range(header.record_count):
            length, position = read_varint(data, position)
            end = position + length
            timestamp_delta, position = read_varint(data, position + 1)
            timestamp = header.base_timestamp_unix_ms + timestamp_delta
            if timestamp >= timestamp_unix_ms:
                offset = header.base_offset + read_varint(data, position)[0]
                return offset, bounded_time(timestamp, header)
            position = max(position, end)  # A negative length must not lead back.
    except IndexError as error:
        raise garbled(header, str(error)) from None
    return None
