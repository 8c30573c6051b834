"""Coalescing: runs of records from many publishers become few batches.

Used by protocols other than Kafka and by internal streams. A *round* is one atomic append of one or
more batches for each partition. Runs are added to the open round until the loop's tick ends, or
longer while the previous round is being synced; no timer delays them. A record in a batch of its
own costs several times as much as one among a hundred: docs/adr/0005-coalescing-runs.md has the
figures, and says when a run learns its offset.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from gateway.broker import Broker
from gateway.errors import (
    GatewayError,
    InvalidRecord,
    MessageTooLarge,
    StorageUnavailable,
    as_value,
)
from gateway.model import HEADER_BYTES, TIMESTAMP_TYPE_MASK, parse_batch_header
from gateway.partition import Partition, Write
from gateway.records.codec import encode_runs
from gateway.records.record_run import RecordRun, Run
from gateway.storage import OnDone
from gateway.topics.manager import Topic
from gateway.write_steps import take_runs

BATCH_RECORDS_MAX: Final = 256
BATCH_BYTES_MAX: Final = 65_536
ROUND_BYTES_MAX: Final = 1_048_576

Part = tuple[Partition, Run]


class _Batch:
    """Batch being gathered: runs, or parts of runs, and the whole run of each."""

    __slots__ = ("bytes_max", "record_count", "runs", "size_bytes", "whole_runs")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.runs: list[Run] = []
        self.whole_runs: list[Run] = []
        self.record_count = 0
        self.size_bytes = HEADER_BYTES

    def add_piece(self, piece: Run, whole: Run) -> None:
        self.runs.append(piece)
        self.whole_runs.append(whole)
        self.record_count += len(piece.values)
        self.size_bytes += piece.size_bytes


class Coalescer:
    """Gathers runs into rounds. ``reserved``: for internal streams, see ``StorageAdapter``.

    Users of one coalescer share the order of its rounds, and the error when the storage refuses
    one.
    """

    def __init__(self, broker: Broker, *, reserved: bool = False) -> None:
        self._broker = broker
        self._reserved = reserved
        self._loop = asyncio.get_running_loop()
        self._open: dict[Partition, list[_Batch]] = {}
        self._open_bytes = 0
        self._waiting: list[OnDone] = []  # of the open round, in order of ``add``
        self._is_scheduled = False
        self._rounds_in_flight = 0
        self.before_seal: list[Callable[[], None]] = []
        """Callbacks that run before a round is appended; the runs that they add belong to it."""
        self.rounds_appended = 0
        broker.before_delete.append(self._seal_topic)
        broker.placement.before_release.append(self._seal_shards)

    def add(self, partition: Partition, run: Run, on_done: OnDone) -> None:
        """Put one run into the open round; see ``add_many``."""
        self.check(partition, run)
        if partition.topic.settings.has_write_steps or run.deliver_at_unix_ms is not None:
            parts = [(partition, run)]
            ((partition, run),), on_done = take_runs(self._broker.write_steps, parts, on_done)
        if self._open_bytes >= ROUND_BYTES_MAX:
            self.seal()
        self._place(partition, run)
        self._wait(on_done, run.size_bytes)

    def add_many(self, parts: Sequence[Part], on_done: OnDone, *, as_is: bool = False) -> None:
        """Put runs into the open round: all of them are appended as one, or none.

        A run that is too large for a batch is cut; its offsets still follow each other without
        a gap. Timestamps must be between 0 and the node's own time, so that nothing is left to
        check when the round is appended. ``RecordRun.base_offset`` is set by that append.
        ``on_done`` runs once, after this has returned. After a refused append (a full disk) the
        callbacks run in reverse order of ``add``, so that each publisher can undo its changes.
        Runs that were added earlier may be refused during this call, when their round is full.
        ``as_is``: no step of the write path is asked, for records that had been appended before.
        Without any part ``on_done`` runs in a later turn of the loop, whatever is on its way.

        Errors, with nothing changed: ``MessageTooLarge`` for a record that alone is above the
        topic's bound, ``InvalidRecord`` for one without a key where the topic is compacted,
        ``PolicyViolation`` (see ``RetentionHolds.check_room``), ``TopicNotFound`` for a deleted
        topic, ``NotLeader`` for a partition that another node owns, and those of the steps.
        """
        if not parts:
            self._loop.call_soon(on_done, None)
            return
        is_stepped = False
        for partition, run in parts:
            self.check(partition, run)
            if partition.topic.settings.has_write_steps or run.deliver_at_unix_ms is not None:
                is_stepped = not as_is
        if is_stepped:
            parts, on_done = take_runs(self._broker.write_steps, parts, on_done)
        size_bytes = sum([run.size_bytes for _, run in parts])
        if self._open_bytes >= ROUND_BYTES_MAX:
            self.seal()
        for partition, run in parts:
            self._place(partition, run)
        self._wait(on_done, size_bytes)

    def _wait(self, on_done: OnDone, size_bytes: int) -> None:
        """Register the callback of placed runs; append at the tick's end or with a full round."""
        self._waiting.append(on_done)
        self._open_bytes += size_bytes
        if self._open_bytes >= ROUND_BYTES_MAX:
            self._loop.call_soon(self._seal_full)
        else:
            self.schedule()

    def schedule(self) -> None:
        """Append when the tick ends, or when the round before is done: see ``before_seal``."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._end_tick)

    def check(self, partition: Partition, run: Run) -> None:
        """Raise what ``add`` would raise for a run."""
        assert run.values
        if partition.is_gone:
            partition.check_present()
        settings = partition.topic.settings
        record_bytes_max = settings.message_bytes_max - HEADER_BYTES
        if run.size_bytes > record_bytes_max and run.largest_bytes > record_bytes_max:
            raise MessageTooLarge(
                f"{run.largest_bytes} bytes, at most {record_bytes_max} are taken"
            )
        if settings.compacts and run.key is None:
            raise InvalidRecord("a record without a key, and the topic is compacted")
        holders = self._broker.holders
        if settings.is_queue or holders.stopped:
            holders.check_room(partition, run.size_bytes)

    def _place(self, partition: Partition, run: Run) -> None:
        batches = self._open.get(partition)
        if batches is None:
            batches = self._open[partition] = [_Batch(batch_bytes_max(partition))]
        batch = batches[-1]
        bytes_max = batch.bytes_max
        count = len(run.values)
        record_count = batch.record_count + count
        size_bytes = batch.size_bytes + run.size_bytes
        if record_count <= BATCH_RECORDS_MAX and size_bytes <= bytes_max:
            batch.runs.append(run)
            batch.whole_runs.append(run)
            batch.record_count = record_count
            batch.size_bytes = size_bytes
            return
        for piece in _pieces(run, bytes_max - HEADER_BYTES):
            if batch.record_count:
                batch = _Batch(bytes_max)
                batches.append(batch)
            batch.add_piece(piece, run)

    def _end_tick(self) -> None:
        self._is_scheduled = False
        if not self._rounds_in_flight:
            self.seal()

    def _seal_full(self) -> None:
        if self._open_bytes >= ROUND_BYTES_MAX:
            self.seal()

    def _seal_topic(self, topic: Topic) -> None:
        """Append the open runs of a topic before it is deleted."""
        self._fill()
        if any(partition.topic is topic for partition in self._open):
            self.seal()

    def _seal_shards(self, _shards: Collection[int]) -> None:
        """Append what is open and gathered before shards leave: it may be for one of them."""
        self.seal()

    def _fill(self) -> None:
        """Call ``before_seal``: its callbacks add what they gathered to this round."""
        was_scheduled, self._is_scheduled = self._is_scheduled, True
        try:
            for fill in self.before_seal:
                fill()
        finally:
            self._is_scheduled = was_scheduled

    def seal(self) -> None:
        """Append the open round now, even while another round is being synced."""
        try:
            if self.before_seal:
                self._fill()
        finally:  # a bug of one who gathers must not keep back what all others have put
            self._append_open()

    def _append_open(self) -> None:
        if not self._waiting:
            return
        parts, self._open = self._open, {}
        waiting, self._waiting = self._waiting, []
        self._open_bytes = 0
        try:
            writes = [
                _to_write(partition, batch)
                for partition, part in parts.items()
                for batch in part
            ]
        except Exception:  # a bug of one who put, which must not leave all others waiting
            _refuse(waiting, StorageUnavailable("what was to be kept with this cannot be"))
            raise
        self._rounds_in_flight += 1
        try:
            self._broker.append(writes, partial(self._done, waiting), reserved=self._reserved)
        except GatewayError as error:
            self._rounds_in_flight -= 1
            _refuse(waiting, as_value(error))
            return
        except Exception:  # nor may a bug of the append itself
            self._rounds_in_flight -= 1
            told = waiting.copy()
            waiting.clear()  # nobody is told twice, should it be on its way nevertheless
            _refuse(told, StorageUnavailable("what was to be kept cannot be"))
            raise
        self.rounds_appended += 1
        batches = (batch for part in parts.values() for batch in part)
        for write, batch in zip(writes, batches, strict=True):
            _locate(write, batch)

    def _done(self, waiting: list[OnDone], error: StorageUnavailable | None) -> None:
        if not waiting:
            return  # it was given up
        self._rounds_in_flight -= 1
        try:
            if error is None:  # the disk is busy again while those of this round are answered
                self._seal_next()
        finally:
            self._tell(waiting, error)

    def _tell(self, waiting: list[OnDone], error: StorageUnavailable | None) -> None:
        try:
            call_all(waiting, error)
        finally:  # nor may a bug of one who waited
            self._seal_next()

    def _seal_next(self) -> None:
        """Append the runs that were added while the previous round was being synced."""
        if not self._rounds_in_flight and not self._is_scheduled:
            self.seal()


def call_all(waiting: Iterable[OnDone], error: StorageUnavailable | None) -> None:
    """Call every callback, then re-raise the first exception."""
    fault: Exception | None = None
    for on_done in waiting:
        try:
            on_done(error)
        except Exception as raised:  # noqa: BLE001 - the others are told nevertheless
            fault = fault or raised
    if fault is not None:
        try:
            raise fault
        finally:
            del fault  # its traceback holds this frame


def batch_bytes_max(partition: Partition) -> int:
    """Return the largest size of a batch for a partition, header included."""
    return min(BATCH_BYTES_MAX, partition.topic.settings.message_bytes_max)


def _refuse(waiting: list[OnDone], error: GatewayError) -> None:
    if not isinstance(error, StorageUnavailable):
        error = StorageUnavailable(str(error))
    call_all(reversed(waiting), error)


def _pieces(run: Run, bytes_max: int) -> Iterable[Run]:
    """Return the pieces of a run: each fits a batch, or is a single record."""
    if len(run.values) <= BATCH_RECORDS_MAX and run.size_bytes <= bytes_max:
        return (run,)
    return run.pieces(records_max=BATCH_RECORDS_MAX, bytes_max=bytes_max)


def _to_write(partition: Partition, batch: _Batch) -> Write:
    attributes = TIMESTAMP_TYPE_MASK if partition.topic.settings.log_append_time else 0
    data = encode_runs(batch.runs, attributes=attributes)
    # Our own batch needs none of the checks that a client's does.
    write = Write(partition, data, parse_batch_header(data))
    write.runs = _record_runs(batch.runs)
    return write


def _record_runs(runs: list[Run]) -> list[RecordRun] | None:
    """Return the runs, or None when the records of one have different keys."""
    found: list[RecordRun] = []
    for run in runs:
        one = run.with_one_key()
        if one is None:
            return None
        found.append(one)
    return found


def _locate(write: Write, batch: _Batch) -> None:
    """Set the offsets of a batch's runs, for their publishers and for live readers."""
    offset = write.base_offset
    natives: list[tuple[int, object]] | None = []
    for run, whole in zip(batch.runs, batch.whole_runs, strict=True):
        if whole.base_offset < 0:
            whole.base_offset = offset
        offset += len(run.values)
        if whole.native is None:
            natives = None
        elif natives is not None:
            natives.append((whole.base_offset, whole.native))
    write.natives = natives
