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
from itertools import groupby
from typing import Final
from weakref import WeakValueDictionary

from gateway.append_limits import reserve
from gateway.broker import Broker
from gateway.errors import (
    GatewayError,
    InvalidRecord,
    MessageTooLarge,
    StorageUnavailable,
    as_value,
)
from gateway.fan_out_write import FanOutWrite
from gateway.model import HEADER_BYTES, parse_batch_header
from gateway.open_round import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    OpenBatch,
    OpenRound,
    TargetGroup,
    batch_attributes,
    batch_bytes_max,
)
from gateway.partition import Partition, Write
from gateway.records.codec import encode_runs
from gateway.records.record_run import RecordRun, Run
from gateway.storage import OnDone
from gateway.topics.manager import Topic
from gateway.write_steps import take_runs

__all__ = [
    "BATCH_BYTES_MAX",
    "BATCH_RECORDS_MAX",
    "ROUND_BYTES_MAX",
    "AnyPart",
    "Coalescer",
    "Part",
    "TargetGroup",
    "batch_bytes_max",
    "call_all",
]

ROUND_BYTES_MAX: Final = 1_048_576

Part = tuple[Partition, Run]
AnyPart = tuple[Partition | TargetGroup, Run]


class Coalescer:
    """Gathers runs into rounds. ``reserved``: for internal streams, see ``StorageAdapter``.

    Users of one coalescer share the order of its rounds, and the error when the storage refuses
    one.
    """

    def __init__(self, broker: Broker, *, reserved: bool = False) -> None:
        self._broker = broker
        self._reserved = reserved
        self._loop = asyncio.get_running_loop()
        self._round = OpenRound()
        self._open_bytes = 0
        self._waiting: list[OnDone] = []  # of the open round, in order of ``add``
        self._is_scheduled = False
        self._rounds_in_flight = 0
        self.before_seal: list[Callable[[], None]] = []
        """Callbacks that run before a round is appended; the runs that they add belong to it."""
        self.rounds_appended = 0
        self._groups: WeakValueDictionary[tuple[Partition, ...], TargetGroup] = (
            WeakValueDictionary()
        )
        broker.before_delete.append(self._seal_topic)
        broker.placement.before_release.append(self._seal_shards)

    def add(self, partition: Partition, run: Run, on_done: OnDone) -> None:
        """Put one run into the open round; see ``add_many``."""
        self.check(partition, run)
        if limits := self._broker.append_limits:
            on_done = reserve(limits, ((partition, run),), on_done)
        if partition.topic.settings.has_write_steps or run.deliver_at_unix_ms is not None:
            parts = [(partition, run)]
            ((partition, run),), on_done = take_runs(self._broker.write_steps, parts, on_done)
        if self._open_bytes >= ROUND_BYTES_MAX:
            self.seal()
        self._round.place(partition, run)
        self._wait(on_done, run.size_bytes)

    def group(self, partitions: Iterable[Partition]) -> Partition | TargetGroup:
        """Return what ``add_many`` takes for a run that goes to all of ``partitions``.

        It is stored once for all. Equal groups are one object while anybody holds it; one
        partition is a group by itself.
        """
        members = tuple(dict.fromkeys(partitions))
        if len(members) == 1:
            return members[0]
        found = self._groups.get(members)
        if found is None:
            found = self._groups[members] = TargetGroup(members)
        return found

    def join(self, parts: Iterable[Part]) -> list[AnyPart]:
        """Return parts with neighbouring parts of the same run joined, to be stored once."""
        joined: list[AnyPart] = []
        for _, some in groupby(parts, key=lambda part: id(part[1])):
            partitions, runs = zip(*some, strict=True)
            joined.append((self.group(partitions), runs[0]))
        return joined

    def add_many(
        self, parts: Sequence[AnyPart], on_done: OnDone, *, as_is: bool = False
    ) -> None:
        """Put runs into the open round: all of them are appended as one, or none.

        A run for a ``group`` is stored once. A run that is too large for a batch is cut; its
        offsets still follow each other without a gap. Timestamps must be between 0 and the node's
        own time, so that nothing is left to check when the round is appended.
        ``RecordRun.base_offset`` is set by that append, of a group to the first partition's.
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
        for target, run in parts:
            if isinstance(target, TargetGroup):
                self._check_group(target, run)
                has_steps = target.has_write_steps
            else:
                self.check(target, run)
                has_steps = target.topic.settings.has_write_steps
            if has_steps or run.deliver_at_unix_ms is not None:
                is_stepped = not as_is
        if is_stepped:
            parts, on_done = self._take(parts, on_done)
        if limits := self._broker.append_limits:
            on_done = reserve(limits, parts, on_done)
        size_bytes = sum([run.size_bytes for _, run in parts])
        if self._open_bytes >= ROUND_BYTES_MAX:
            self.seal()
        for target, run in parts:
            if isinstance(target, TargetGroup):
                size_bytes += self._round.place_in_all(target, run)
            else:
                self._round.place(target, run)
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
        if settings.is_queue or settings.in_memory or holders.stopped:
            holders.check_room(partition, run.size_bytes)
        if (limits := self._broker.append_limits) and not run.deliver_at_unix_ms:
            limit = limits.get(partition.partition_id)
            if limit is not None:
                limit.check(len(run.values[0] or b""))

    def _check_group(self, group: TargetGroup, run: Run) -> None:
        """Raise what ``check`` would raise for a run and any partition of a group."""
        if group.round is not self._round or group.open_batches[0] is None:
            for partition in group.partitions:
                partition.check_present()
            group.begin(self._round)
        record_bytes_max = group.message_bytes_max - HEADER_BYTES
        if (
            (run.size_bytes > record_bytes_max and run.largest_bytes > record_bytes_max)
            or (group.compacts and run.key is None)
            or group.is_room_bounded
            or self._broker.holders.stopped
            or self._broker.append_limits
        ):
            for partition in group.partitions:
                self.check(partition, run)

    def _take(self, parts: Sequence[AnyPart], on_done: OnDone) -> tuple[list[AnyPart], OnDone]:
        """Return parts as the steps of the write path have them; see ``take_runs``.

        Partitions of a group that a step may hold something back for get parts of their own.
        """
        spread: list[AnyPart] = []
        for target, run in parts:
            if isinstance(target, TargetGroup):
                alone, rest = target.by_steps(is_delayed=run.deliver_at_unix_ms is not None)
                spread += [(partition, run) for partition in alone]
                if rest:
                    spread.append((self.group(rest), run))
            else:
                spread.append((target, run))
        single = [
            (target, run) for target, run in spread if not isinstance(target, TargetGroup)
        ]
        taken, on_done = take_runs(self._broker.write_steps, single, on_done)
        following = iter(taken)
        found: list[AnyPart] = [
            part if isinstance(part[0], TargetGroup) else next(following) for part in spread
        ]
        return found, on_done

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
        if any(partition.topic is topic for partition in self._round.latest):
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
        batches = self._round.end()
        self._round = OpenRound()
        waiting, self._waiting = self._waiting, []
        self._open_bytes = 0
        try:
            writes = list(map(_to_write, batches))
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


def _refuse(waiting: list[OnDone], error: GatewayError) -> None:
    if not isinstance(error, StorageUnavailable):
        error = StorageUnavailable(str(error))
    call_all(reversed(waiting), error)


def _to_write(batch: OpenBatch) -> Write:
    partitions = batch.partitions
    data = encode_runs(batch.runs, attributes=batch_attributes(partitions[0]))
    # Our own batch needs none of the checks that a client's does.
    header = parse_batch_header(data)
    write = (
        Write(partitions[0], data, header)
        if len(partitions) == 1
        else FanOutWrite(partitions, data, header)
    )
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


def _locate(write: Write, batch: OpenBatch) -> None:
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
    if isinstance(write, FanOutWrite):
        write.show()
