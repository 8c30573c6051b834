"""Coalescing: runs of records from many publishers become few batches.

For protocols other than Kafka, and for internal streams. All runs share one open round until
the loop's tick ends, or longer while the round before is being synced; no timer delays them.
A round is one atomic append of one batch per partition. (A record that is a batch of its own
costs several times what it costs among a hundred.)
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from gateway.broker import Broker
from gateway.errors import GatewayError, MessageTooLarge, StorageUnavailable
from gateway.model import TIMESTAMP_TYPE_MASK, parse_batch_header
from gateway.partition import Partition
from gateway.records import NewRecord, encode_batch
from gateway.storage import OnDone
from gateway.writer import Write

BATCH_RECORDS_MAX: Final = 256
BATCH_BYTES_MAX: Final = 65_536
ROUND_BYTES_MAX: Final = 1_048_576

_RECORD_OVERHEAD_BYTES: Final = 32  # lengths, deltas and attributes of a record at most
_HEADER_OVERHEAD_BYTES: Final = 10
_BATCH_OVERHEAD_BYTES: Final = 61


class Run:
    """Records of one publisher for one partition, on their way.

    ``base_offset`` is that of the first; it is -1 until the round is appended, and known before
    ``on_done`` runs.
    """

    __slots__ = ("base_offset", "on_done", "record_count")

    def __init__(self, record_count: int, on_done: OnDone) -> None:
        self.base_offset = -1
        self.record_count = record_count
        self.on_done = on_done


class _Open:
    """What one partition gets from the open round."""

    __slots__ = ("records", "runs", "size_bytes")

    def __init__(self) -> None:
        self.records: list[NewRecord] = []
        self.runs: list[Run] = []
        self.size_bytes = _BATCH_OVERHEAD_BYTES


class Coalescer:
    """Gathers runs into rounds. ``reserved``: for internal streams, see ``StorageAdapter``."""

    def __init__(self, broker: Broker, *, reserved: bool = False) -> None:
        self._broker = broker
        self._reserved = reserved
        self._loop = asyncio.get_running_loop()
        self._open: dict[Partition, _Open] = {}
        self._open_bytes = 0
        self._is_scheduled = False
        self._rounds_in_flight = 0
        self.rounds_appended = 0

    def add(self, partition: Partition, records: Sequence[NewRecord], on_done: OnDone) -> Run:
        """Put a run into the open round; it is never split.

        Timestamps are the node's own time, so that nothing is left to check when the round is
        appended. ``on_done`` runs once, never before this returns; when the append is refused
        (a full disk), in reverse order of ``add``, so that each publisher can undo what it did.
        Error: ``MessageTooLarge`` for a run that alone is above the topic's bound.
        """
        assert records
        size_bytes = sum(map(_size_bytes, records))
        batch_bytes_max = partition.topic.settings.message_bytes_max
        if size_bytes + _BATCH_OVERHEAD_BYTES > batch_bytes_max:
            raise MessageTooLarge(f"{size_bytes} bytes, at most {batch_bytes_max} are taken")
        target = self._open.get(partition)
        if target is not None and not _fits(target, records, size_bytes, batch_bytes_max):
            self.seal()
            target = None
        if target is None:
            target = self._open[partition] = _Open()
        run = Run(len(records), on_done)
        target.runs.append(run)
        target.records.extend(records)
        target.size_bytes += size_bytes
        self._open_bytes += size_bytes
        if self._open_bytes >= ROUND_BYTES_MAX:
            self._loop.call_soon(self.seal)
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._end_tick)
        return run

    def _end_tick(self) -> None:
        self._is_scheduled = False
        if not self._rounds_in_flight:
            self.seal()

    def seal(self) -> None:
        """Append what is open now, whether or not a round is on its way."""
        if not self._open:
            return
        parts, self._open = self._open, {}
        self._open_bytes = 0
        writes = [_to_write(partition, part) for partition, part in parts.items()]
        runs = [run for part in parts.values() for run in part.runs]
        self._rounds_in_flight += 1
        try:
            self._broker.append(writes, partial(self._done, runs), reserved=self._reserved)
        except GatewayError as error:
            self._rounds_in_flight -= 1
            self._refuse(runs, error)
            return
        self.rounds_appended += 1
        for write, part in zip(writes, parts.values(), strict=True):
            offset = write.base_offset
            for run in part.runs:
                run.base_offset = offset
                offset += run.record_count

    def _done(self, runs: list[Run], error: StorageUnavailable | None) -> None:
        self._rounds_in_flight -= 1
        for run in runs:
            run.on_done(error)
        if not self._rounds_in_flight and not self._is_scheduled:
            self.seal()  # What came while this round was being synced.

    def _refuse(self, runs: list[Run], error: GatewayError) -> None:
        if not isinstance(error, StorageUnavailable):
            error = StorageUnavailable(str(error))
        for run in reversed(runs):
            run.on_done(error)


def _fits(
    target: _Open, records: Sequence[NewRecord], size_bytes: int, batch_bytes_max: int
) -> bool:
    size_bytes += target.size_bytes
    return len(target.records) + len(records) <= BATCH_RECORDS_MAX and size_bytes <= min(
        BATCH_BYTES_MAX, batch_bytes_max
    )


def _size_bytes(record: NewRecord) -> int:
    """Return at least what the record takes in a batch."""
    _, key, value, headers = record
    size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        # A character takes at most four octets.
        size += _HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
    return size


def _to_write(partition: Partition, part: _Open) -> Write:
    attributes = TIMESTAMP_TYPE_MASK if partition.topic.settings.log_append_time else 0
    batch = encode_batch(part.records, attributes=attributes)
    # Our own batch needs none of the checks that a client's does.
    return Write(partition, batch, parse_batch_header(batch))
