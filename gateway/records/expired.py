"""Removal of expired records from batches (topics with ``expiry.enable``).

For readers of whole batches. Offsets, producer and compression stay, as after compaction; what
is left of a batch without records tells a reader where to go on.
"""

import struct
from collections.abc import Sequence
from functools import partial
from typing import Final

from features.compaction import Codec
from features.compaction.rebuilding import rebuild, without_records
from features.compaction.record_slices import RecordSlice, scan_records
from features.expiry import NEVER, is_expired
from gateway.clock import Clock
from gateway.delays.batches import find_header, record_positions
from gateway.errors import CorruptBatch
from gateway.model import (
    COMPRESSION_MASK,
    EXPIRES_AT,
    HEADER_BYTES,
    Buffer,
    parse_batch_header,
    unix_ms_in,
)
from gateway.records.checks import LOOKED_AT_BYTES_MAX
from gateway.records.codec import check_crc
from gateway.records.compression import compress, decompress
from gateway.records.runs import nullable

_NAME: Final = EXPIRES_AT.encode()
_STORED_NAME: Final = nullable(_NAME)
_CODEC: Final = Codec(partial(decompress, bytes_max=LOOKED_AT_BYTES_MAX), compress)


def without_expired(batches: Sequence[Buffer], clock: Clock) -> list[Buffer]:
    """Return the batches without expired records; an undecodable batch stays as it is.

    So does one whose timestamps are so far apart that it cannot be written again. Who stamps a
    record with a time of his own has seen the steps of our clock that came before that time.
    """
    found: list[Buffer] = []
    for batch in batches:
        try:
            found.append(_without_expired(batch, clock))
        except (CorruptBatch, IndexError, OverflowError, struct.error):
            found.append(batch)
    return found


def _without_expired(batch: Buffer, clock: Clock) -> Buffer:
    header = parse_batch_header(batch)
    data = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
    data = decompress(header.attributes & COMPRESSION_MASK, data, bytes_max=LOOKED_AT_BYTES_MAX)
    if _STORED_NAME not in data:
        return batch
    check_crc(batch, header)  # else what is left would get a CRC of its own
    records = scan_records(data, header)
    ahead_ms = clock.steady_deadline(0, header.max_timestamp_unix_ms)
    now_unix_ms = clock.steady_unix_ms() - ahead_ms
    kept = [one for one in records if not is_expired(_deadline(data, one), now_unix_ms)]
    if len(kept) == len(records):
        return batch
    if not kept:
        return without_records(header)
    return rebuild(header, data, kept, _CODEC, horizon_unix_ms=None)


def _deadline(data: bytes, record: RecordSlice) -> int:
    _, headers_at = record_positions(data, record)
    headers = data[headers_at : record[2]]
    if _STORED_NAME not in headers:
        return NEVER
    deadline_unix_ms = unix_ms_in(find_header(headers, _NAME))
    return NEVER if deadline_unix_ms is None else deadline_unix_ms
