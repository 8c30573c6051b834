"""Batches for tests, made by kafka-python's codec, which is not ours."""

import struct
from collections.abc import Sequence

from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder

NOW_UNIX_MS = 1_700_000_000_000


def sample_batch(
    *,
    count: int = 1,
    value: bytes = b"value",
    key: bytes | None = b"key",
    timestamp_unix_ms: int = NOW_UNIX_MS,
    compression: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    headers: Sequence[tuple[str, bytes]] = (),
) -> bytearray:
    """Return a v2 batch of ``count`` equal records."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=is_transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=1 << 30,
    )
    for delta in range(count):
        builder.append(delta, timestamp_unix_ms, key, value, list(headers))
    return bytearray(builder.build())


def patched(batch: bytearray, at: int, layout: str, value: int) -> bytearray:
    """Return the batch with one header field changed and the CRC made right again."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return changed
