"""A client's batch, split into due and delayed records (topics with ``delay.enable``). Pure.

The due records stay in a batch with the offsets, the producer and the sequence of the whole:
readers see holes, as after compaction, and the producer's state can be rebuilt from the log. A
batch of which nothing is due stays only as such a batch without records, and only when its
producer is idempotent.
"""

import struct
from functools import partial
from typing import Final, NamedTuple

from features.compaction import Codec
from features.compaction.rebuilding import rebuild, without_records
from features.compaction.record_slices import TIMESTAMP_DELTA, RecordSlice, scan_records
from gateway.delays.batches import header_pairs, record_positions
from gateway.delays.pending_messages import PendingMessage
from gateway.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
)
from gateway.model import (
    DELIVER_AT,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    parse_batch_header,
)
from gateway.partition import Write
from gateway.records.checks import LOOKED_AT_RECORDS_MAX, decompressed
from gateway.records.codec import DECOMPRESSED_BYTES_MAX
from gateway.records.compression import compress, decompress
from gateway.records.runs import nullable, varint

_NAME: Final = DELIVER_AT.encode()
_STORED_NAME: Final = nullable(_NAME)
_DIGITS_MAX: Final = 15  # the year 33658
_USUAL_DIGITS: Final = 13
_USUAL: Final = varint(1) + _STORED_NAME + varint(_USUAL_DIGITS)
_USUAL_BYTES: Final = len(_USUAL)
_INT64_END: Final = 1 << 63
_CODEC: Final = Codec(partial(decompress, bytes_max=DECOMPRESSED_BYTES_MAX), compress)


class Split(NamedTuple):
    """Batch with delayed records: the write of those appended at once, None without any."""

    due: Write | None
    delayed: list[PendingMessage]


def split(write: Write, now_unix_ms: int) -> Split | None:
    """Return the split of a checked batch, or None when it may be appended as it is.

    Pure. Errors: ``InvalidRecord`` for a ``deliver-at`` that is no time and for a batch with more
    records than can be looked at; ``InvalidTimestamp`` for one that no batch can hold; those of
    ``decompressed``.
    """
    header = write.header
    bytes_max = write.partition.topic.settings.message_bytes_max
    data = decompressed(write.batch, header, bytes_max=bytes_max)
    if _STORED_NAME not in data:
        return None
    if header.record_count > LOOKED_AT_RECORDS_MAX:
        raise InvalidRecord(f"at most {LOOKED_AT_RECORDS_MAX} records of a batch may wait")
    append_time = header.attributes & TIMESTAMP_TYPE_MASK
    if (
        append_time
    ):  # which was a moment ago: what is due since then would come with a time before
        now_unix_ms = header.max_timestamp_unix_ms
    kept: list[RecordSlice] = []
    messages: list[PendingMessage] = []
    known = b""
    due_unix_ms = 0
    for record in scan_records(data, header):
        key_at, headers_at = record_positions(data, record)
        headers = data[headers_at : record[2]]
        if headers != known:  # of what is due together they are mostly the same
            known, due_unix_ms = headers, due_time_in(headers)
        if due_unix_ms <= now_unix_ms:
            kept.append(record)
            continue
        timestamp_unix_ms = header.base_timestamp_unix_ms + record[TIMESTAMP_DELTA]
        if append_time:
            timestamp_unix_ms = header.max_timestamp_unix_ms
        if not -_INT64_END <= timestamp_unix_ms < _INT64_END:
            raise InvalidTimestamp(f"timestamp {timestamp_unix_ms} has more than 64 bits")
        messages.append(
            PendingMessage(due_unix_ms, timestamp_unix_ms, data[key_at:headers_at], headers)
        )
    if not messages:
        return None
    return Split(_due_write(write, header, data, kept), messages)


def due_time_in(headers: bytes) -> int:
    """Return a record's due time in unix ms, 0 without one. Error: ``InvalidRecord``."""
    if headers.startswith(
        _USUAL
    ):  # the only header, with what unix milliseconds are until 2286
        value = headers[_USUAL_BYTES:]
        if len(value) == _USUAL_DIGITS and value.isdigit():
            return int(value)
    if _STORED_NAME not in headers:
        return 0
    try:
        # All of them are looked at: those of what waits are looked through once more.
        values = [value for name, value in header_pairs(headers) if name == _NAME and value]
    except IndexError as error:
        raise CorruptBatch(f"headers: {error}") from None
    if not values:
        return 0
    value = values[0]
    if not value.isdigit() or len(value) > _DIGITS_MAX:
        raise InvalidRecord(f"{DELIVER_AT} is {value[:40]!r}, not unix milliseconds")
    return int(value)


def _due_write(
    write: Write, header: BatchHeader, data: bytes, kept: list[RecordSlice]
) -> Write | None:
    if kept:
        try:
            raw = rebuild(header, data, kept, _CODEC, horizon_unix_ms=None)
        except (OverflowError, struct.error) as error:
            raise InvalidTimestamp(str(error)) from None
    elif header.is_idempotent:
        raw = without_records(header)
    else:
        return None
    # It takes the offsets of the whole batch, and is kept for as long: the last offset delta is in
    # its header, the time is not where no record is left.
    own = parse_batch_header(raw)._replace(max_timestamp_unix_ms=header.max_timestamp_unix_ms)
    return Write(write.partition, bytearray(raw), own)
