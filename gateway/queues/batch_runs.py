"""Runs of a batch for a lane: its offsets, with their keys and the times they become visible.

Pure. Only a queue that orders by key or priority, or delays, decodes batches; for others the header
is enough.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from features.queue.model import AT_ONCE, Run
from gateway.errors import CorruptBatch
from gateway.model import (
    COMPRESSION_MASK,
    DELIVER_AT,
    HEADER_BYTES,
    VARINT_CONTINUES,
    ZIGZAG,
    BatchHeader,
    Buffer,
    Record,
    read_varint,
    unix_ms_in,
)
from gateway.queues.delay_changes import LaneDelay
from gateway.queues.lane_keys import LaneKeys
from gateway.records.codec import DECOMPRESSED_BYTES_MAX, iter_records
from gateway.records.compression import decompress


def plain_run(base_offset: int, last_offset: int) -> list[Run]:
    """Return the run of a batch when neither keys nor delays matter."""
    return [Run(base_offset, last_offset, None)]


def keyed_runs(batch: Buffer, header: BatchHeader, base_offset: int) -> list[Run]:
    """Return the runs of a batch by key; a corrupt batch is one run without a key.

    The take of such a message detects and reports the corruption.
    """
    try:
        return _joined(base_offset, _keys(batch, header))
    except (CorruptBatch, IndexError):
        return plain_run(base_offset, base_offset + header.last_offset_delta)


def runs_of_records(
    records: Sequence[Record], header: BatchHeader, keys: LaneKeys
) -> list[Run]:
    """Return runs as ``keyed_runs``, from decoded records; no records: the batch is corrupt."""
    if not records:
        return plain_run(header.base_offset, header.last_offset)
    runs: list[Run] = []
    key_of = keys.of_record
    first, key = records[0].offset, key_of(records[0])
    last = first - 1
    for record in records:
        offset, record_key = record.offset, key_of(record)
        if record_key != key or offset != last + 1:
            runs.append(Run(first, last, key))
            first, key = offset, record_key
        last = offset
    runs.append(Run(first, last, key))
    return runs


def priority_runs(
    batch: Buffer, base_offset: int, header: BatchHeader, keys: LaneKeys
) -> list[Run]:
    """Return the runs of a batch by priority, otherwise as ``keyed_runs``."""
    try:
        keyed = [(record.offset, keys.of_record(record)) for record in iter_records(batch)]
    except CorruptBatch:
        return plain_run(base_offset, base_offset + header.last_offset_delta)
    return _joined(0, iter(keyed))


class Delay(NamedTuple):
    """Delay of a queue. ``now_unix_ms``: by the clock that stamps records.

    ``step_ms``: lead of the steady clock, which lanes use, over that clock.
    """

    delay: LaneDelay
    now_unix_ms: int
    step_ms: int = 0


def delayed_runs(
    batch: Buffer,
    base_offset: int,
    header: BatchHeader,
    delay: Delay,
    keys: LaneKeys | None,
) -> list[Run]:
    """Return the runs of a batch of a queue with a delay; without ``keys`` they have none.

    A timestamp in the future counts as now. A record with the header ``deliver-at`` is visible
    from that time instead.
    """
    runs: list[Run] = []
    try:
        for record in iter_records(batch):
            offset = record.offset
            visible = _visible_unix_ms(record, delay) + delay.step_ms
            key = None if keys is None else keys.of_record(record)
            last = runs[-1] if runs else None
            if last is not None and last[1:] == (offset - 1, key, visible):
                runs[-1] = Run(last.first, offset, key, visible)
            else:
                runs.append(Run(offset, offset, key, visible))
    except CorruptBatch:
        return plain_run(base_offset, base_offset + header.last_offset_delta)
    return runs


def _visible_unix_ms(record: Record, delay: Delay) -> int:
    for name, value in record.headers:
        if name == DELIVER_AT and (said := unix_ms_in(value)) is not None:
            return said
    return min(record.timestamp_unix_ms, delay.now_unix_ms) + delay.delay.of(record.offset)


def _joined(base_offset: int, keys: Iterator[tuple[int, bytes | None]]) -> list[Run]:
    runs: list[Run] = []
    first = last = -1
    run_key: bytes | None = None
    for delta, key in keys:
        if delta == last + 1 and key == run_key and first >= 0:
            last = delta
            continue
        if first >= 0:
            runs.append(Run(base_offset + first, base_offset + last, run_key, AT_ONCE))
        first = last = delta
        run_key = key
    if first >= 0:
        runs.append(Run(base_offset + first, base_offset + last, run_key, AT_ONCE))
    return runs


def _keys(batch: Buffer, header: BatchHeader) -> Iterator[tuple[int, bytes | None]]:
    """Yield (offset delta, key) of each record; values and headers are skipped.

    Errors: ``CorruptBatch``, ``IndexError``.
    """
    data = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
    data = decompress(
        header.attributes & COMPRESSION_MASK, data, bytes_max=DECOMPRESSED_BYTES_MAX
    )
    position = 0
    lowest = 0
    for _ in range(header.record_count):
        length, position = read_varint(data, position)
        end = position + length
        position += 1  # the attributes, unused
        while data[position] >= VARINT_CONTINUES:  # the timestamp delta
            position += 1
        position += 1
        if (delta := data[position]) < VARINT_CONTINUES:
            delta = ZIGZAG[delta]
            position += 1
        else:
            delta, position = read_varint(data, position)
        size, position = read_varint(data, position)
        key = data[position : position + size] if size >= 0 else None
        if not position < end <= len(data) or not lowest <= delta <= header.last_offset_delta:
            raise CorruptBatch(f"a record of {length} bytes does not hold its key")
        lowest = delta + 1
        position = end
        yield delta, key
