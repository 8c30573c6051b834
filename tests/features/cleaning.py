"""Rounds of compaction over batches of a test's own, and what other codecs see of them."""

from collections.abc import Iterable, Sequence
from functools import partial

from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from features.compaction import (
    RECORDS_MAX,
    Cleaner,
    Codec,
    OffsetMap,
    bytes_for,
)
from features.compaction.cleaned_transactions import Ranges
from gateway.model import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    Buffer,
    Record,
    parse_batch_header,
    stamp,
)
from gateway.records.codec import NewRecord, decode_batch
from gateway.records.compression import compress, decompress
from tests.support.batches import NOW_UNIX_MS, patched

CODEC = Codec(partial(decompress, bytes_max=1 << 26), compress)
DAY_MS = 86_400_000
MAP_BYTES = bytes_for(RECORDS_MAX)


def record(key: bytes | None, value: bytes | None, at: int = 0) -> NewRecord:
    return (NOW_UNIX_MS + at, key, value, (("h", b"1"), ("h", None)))


def packed(batch: bytearray, codec: int) -> bytearray:
    """Compress an uncompressed batch as a producer does."""
    records = compress(codec, bytes(batch[HEADER_BYTES:]))
    made = bytearray(batch[:HEADER_BYTES]) + records
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    attributes = parse_batch_header(batch).attributes | codec
    return patched(made, ATTRIBUTES_AT, ">h", attributes)


def log_of(*batches: bytearray) -> list[Buffer]:
    """Stamp batches with their offsets, one after another."""
    offset = 0
    for batch in batches:
        stamp(batch, offset, 7)
        offset = parse_batch_header(batch).last_offset + 1
    return list(batches)


def cleaner_of(
    *,
    now_unix_ms: int = NOW_UNIX_MS,
    last_of_producers: dict[int, int] | None = None,
    map_bytes: int = MAP_BYTES,
    aborted: Ranges | None = None,
) -> Cleaner:
    return Cleaner(
        OffsetMap(map_bytes),
        CODEC,
        now_unix_ms=now_unix_ms,
        delete_retention_ms=DAY_MS,
        last_of_producers=last_of_producers or {},
        aborted=aborted,
    )


def clean(
    cleaner: Cleaner, noted: Iterable[Buffer], log: Sequence[Buffer], *, drops: bool = True
) -> list[Buffer]:
    """Note the batches, then rewrite the whole log; return what is left of it.

    ``drops``: as a storage does that leaves out what it need not read.
    """
    for batch in noted:
        assert cleaner.note(batch)
    cleaner.seal()
    kept = []
    for batch in log:
        header = parse_batch_header(batch)
        if drops and cleaner.drops(header.base_offset, header.size_bytes):
            continue
        kept.append(cleaner.keep(batch))
    return [batch for batch in kept if batch is not None]


def records_of(log: Iterable[Buffer]) -> list[Record]:
    return [found for batch in log for found in decode_batch(batch)]


def as_others_see(batch: Buffer) -> list[tuple[object, ...]]:
    """Decode a batch by kafka-python and aiokafka, which must agree; CRC included."""
    answers: list[list[tuple[object, ...]]] = []
    for decoder in (KafkaPythonBatch, AiokafkaBatch):
        decoded = decoder(bytes(batch))
        assert decoded.validate_crc()
        answers.append(
            [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, list(r.headers))
             for r in decoder(bytes(batch))]
        )  # fmt: skip
    assert answers[0] == answers[1]
    return answers[0]
