"""Logs for tests of the audit: segment files with whatever batches a test wants in them."""

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from gateway.model import PartitionIdentity, TopicName, stamp
from storage_adapters.formats.bodies import Introduction, encode_introduction
from storage_adapters.formats.entry import (
    FLAG_LAST,
    KIND_PARTITION,
    encode_batch_front,
    encode_entry,
)
from storage_adapters.formats.footer import FooterPart, encode_footer
from storage_adapters.formats.segment import decode_segment_header, encode_segment_header
from storage_adapters.segment_log.segments import segment_path
from tests.support.batches import NOW_UNIX_MS, sample_batch

TOPIC: Final = "orders"
TOPIC_UUID: Final = UUID(int=6)
_DATA_UUID: Final = UUID(int=77)
_PARTITION_ID: Final = 5
_NO_PRODUCER: Final = -1

Batch = tuple[int, bytearray]


def batch(base: int, sequence: int = _NO_PRODUCER, *, count: int = 10, epoch: int = 0) -> Batch:
    """Return records from an offset on, of a producer from a sequence on when one is given."""
    producer = (_NO_PRODUCER, -1, -1) if sequence < 0 else (900, epoch, sequence)
    data = sample_batch(
        count=count,
        value=f"value of {base}".encode(),
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )
    stamp(data, base, 0)
    return base, data


def write_log(folder: Path, *files: Sequence[Batch]) -> Path:
    """Write a data directory with one closed segment for each list of batches."""
    end = 0
    for number, batches in enumerate(files, start=1):
        ends = [base + int.from_bytes(data[23:27], "big") + 1 for base, data in batches]
        end = max([end, *ends])
        path = segment_path(folder, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_segment(path, number, batches, end)
    return folder


def _write_segment(path: Path, number: int, batches: Sequence[Batch], end: int) -> None:
    header = encode_segment_header(
        data_uuid=_DATA_UUID,
        number=number,
        previous=number - 1,
        first_sequence=number * 1_000,
        incarnation=1,
        created_unix_ms=NOW_UNIX_MS,
    )
    seed = decode_segment_header(header).seed
    identity = PartitionIdentity(_PARTITION_ID, TOPIC_UUID, TopicName("default", TOPIC), 0)
    introduction = encode_introduction(Introduction(identity, 0, end))
    sequence = number * 1_000
    out = bytearray(header)
    out += encode_entry(
        KIND_PARTITION,
        introduction,
        sequence=sequence,
        incarnation=1,
        durable_sequence=sequence - 1,
        flags=FLAG_LAST,
        seed=seed,
    )
    rows = array("q")
    for base, data in batches:
        sequence += 1
        crc, count = int.from_bytes(data[17:21], "big"), int.from_bytes(data[57:61], "big")
        target = [(_PARTITION_ID, base)]
        times = NOW_UNIX_MS, sequence, 1, sequence - 1
        out += encode_batch_front(target, len(data), crc, 0, count, *times, FLAG_LAST, seed)
        span = int.from_bytes(data[23:27], "big") + 1
        rows.extend((base, NOW_UNIX_MS, len(out) + (len(data) << 32), span))
        out += data
    size_bytes = sum(len(data) for _, data in batches)
    part = FooterPart(
        partition_id=_PARTITION_ID,
        start=0,
        end=end,
        is_deleted=False,
        introduction=introduction,
        size_bytes=size_bytes,
        rows=rows,
    )
    footer = encode_footer(
        [part],
        number=number,
        entries_end=len(out),
        first_sequence=number * 1_000,
        next_sequence=sequence + 1,
        incarnation=1,
    )
    path.write_bytes(out + b"".join(footer))
