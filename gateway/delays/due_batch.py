"""Messages due together, as the writes of one append: their batches, and their removal entries.

A run is appended as the batch it was put as; single messages are encoded here, and so are the
remaining messages of a run of which some were cancelled.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final
from uuid import UUID

from features.delay.entries import ENDED, REMOVED, encode_removed, parse_destination
from features.delay.runs import DelayedRun
from features.delay.staged import Item
from features.delay.state import DelayState
from gateway.broker import Broker
from gateway.delays.batches import (
    RecordBody,
    bodies_of,
    encode_bodies,
    is_intact_batch,
    record_body,
    split_bodies,
    with_max_timestamp,
)
from gateway.errors import NotLeader, Overloaded, PolicyViolation, TopicNotFound
from gateway.model import TIMESTAMP_TYPE_MASK, parse_batch_header
from gateway.partition import Partition, Write
from gateway.records.codec import NO_HEADERS
from gateway.topics.manager import TopicManager

_REMOVED_MAX: Final = 4_096  # numbers in one entry


class DueBatch:
    """One append being gathered. Numbers are those of entries, except in ``parts``.

    ``parts``: runs of which some messages go; ``later``: numbers that were refused, see ``add``;
    ``damaged``: numbers that cannot be delivered; ``count``: number of messages appended.
    """

    def __init__(
        self, state: DelayState, broker: Broker, topics: TopicManager, now_unix_ms: int
    ) -> None:
        self._state = state
        self._broker = broker
        self._topics = topics
        self._now_unix_ms = now_unix_ms
        self._batches: list[Write] = []
        self._alone: list[int] = []
        self._runs: list[int] = []
        self.parts: list[tuple[DelayedRun, list[int]]] = []
        self.later: list[int] = []
        self.damaged: list[int] = []
        self.refused = 0
        self.count = 0

    @property
    def rows(self) -> list[int]:
        """Numbers of the entries removed by this append, except ``parts``."""
        return [*self._alone, *self._runs]

    def add(self, due: Sequence[Item]) -> None:
        """Add messages, in order."""
        groups: dict[bytes, list[Item]] = {}
        for destination, some in groupby(due, itemgetter(2)):
            groups.setdefault(destination, []).extend(some)
        for destination, items in groups.items():
            runs = self._runs_of(items)
            whole = self._whole(items, runs) if runs else items
            numbers = [item[1] for item in whole]
            try:
                self._add_batches(destination, whole, runs)
            except (PolicyViolation, Overloaded, NotLeader):
                # Its queue is full, or it is to be moved to its own shard; the others need not
                # wait for it.
                self.later += numbers
                self.refused += 1
            except TopicNotFound:  # of a partition that never was: its entry is damaged
                self.damaged += numbers
            else:
                self._take_out(numbers, runs)

    def _runs_of(self, items: Sequence[Item]) -> dict[int, DelayedRun]:
        """Return the runs among the items, by number."""
        runs = self._state.runs
        if not runs:
            return {}
        found = [(item[1], runs.get(item[1])) for item in items]
        return {number: run for number, run in found if run is not None}

    def _whole(self, items: Sequence[Item], runs: dict[int, DelayedRun]) -> list[Item]:
        """Return the undamaged items: a run is checked here, before it gets a new CRC."""
        whole = []
        for item in items:
            run = runs.get(item[1])
            if run is None or is_intact_batch(item[4], run.count):
                whole.append(item)
            else:
                self.damaged.append(item[1])
        return whole

    def _take_out(self, numbers: Sequence[int], runs: dict[int, DelayedRun]) -> None:
        if not runs:
            self._alone += numbers
            self.count += len(numbers)
            return
        for number in numbers:
            run = runs.get(number)
            if run is None:
                self._alone.append(number)
                self.count += 1
            elif run.gone:
                self.parts.append((run, run.present()))
                self.count += len(self.parts[-1][1])
            else:
                self._runs.append(number)
                self.count += run.count

    def _add_batches(
        self, destination: bytes, items: Sequence[Item], runs: dict[int, DelayedRun]
    ) -> None:
        """Add the writes that append messages to their partition.

        Errors: ``PolicyViolation``, ``Overloaded``, ``TopicNotFound``, ``NotLeader``.
        """
        topic_uuid, partition_number = parse_destination(destination)
        topic = self._topics.by_uuid(UUID(bytes=topic_uuid))
        if topic is None or not items:  # it is gone, with all that waits for it
            return
        below = self._state.purged_below(topic_uuid)
        if below:
            items = [item for item in items if item[1] >= below]
        if not items:
            return
        partition = self._broker.partition(topic, partition_number)
        settings = topic.settings
        if self._broker.is_room_bounded(partition):
            size_bytes = sum([len(item[4]) for item in items])
            counts = [runs[item[1]].count if item[1] in runs else 1 for item in items]
            self._broker.check_room(partition, size_bytes, sum(counts))
        bodies: list[RecordBody] = []
        batches: list[Write] = []
        for _, number, _, timestamp_unix_ms, tail in items:
            run = runs.get(number) if runs else None
            if run is None:
                bodies.append((timestamp_unix_ms, tail))
            elif run.gone or len(tail) > settings.message_bytes_max:
                bodies += bodies_of(tail, [one - number for one in run.present()])
            else:
                batches += self._encode(partition, bodies)
                bodies = []
                batches.append(self._ready(partition, tail, timestamp_unix_ms))
        self._batches += batches + self._encode(partition, bodies)

    # Retention counts from delivery, not from the put: a delay may be longer than the topic's
    # retention. The time is in the batch, because copies of closed segments have no other.

    def _ready(self, partition: Partition, data: bytes, max_unix_ms: int) -> Write:
        """Return the write of an unchanged run."""
        now_unix_ms = self._now_unix_ms
        if partition.topic.settings.log_append_time:
            batch = with_max_timestamp(data, now_unix_ms, attributes=TIMESTAMP_TYPE_MASK)
        else:
            batch = with_max_timestamp(data, max(now_unix_ms, max_unix_ms))
        return self._write(partition, batch)

    def _encode(self, partition: Partition, bodies: Sequence[RecordBody]) -> list[Write]:
        """Return the writes of messages that are encoded now."""
        settings = partition.topic.settings
        now_unix_ms = self._now_unix_ms
        attributes = 0
        if settings.log_append_time:
            attributes = TIMESTAMP_TYPE_MASK
            bodies = [(now_unix_ms, tail) for _, tail in bodies]
        return [
            self._write(
                partition, encode_bodies(piece, attributes=attributes, max_unix_ms=now_unix_ms)
            )
            for piece in split_bodies(bodies, settings.message_bytes_max)
        ]

    def _write(self, partition: Partition, batch: bytearray) -> Write:
        header = parse_batch_header(batch)
        return Write(partition, batch, header._replace(max_timestamp_unix_ms=self._now_unix_ms))

    def writes(self, stream: Partition) -> list[Write]:
        """Return all writes; empty when there are none."""
        numbers = self._alone + [number for _, some in self.parts for number in some]
        return self._batches + removal_writes(stream, numbers, self._now_unix_ms, self._runs)


def removal_writes(
    partition: Partition, numbers: Sequence[int], now_unix_ms: int, runs: Sequence[int] = ()
) -> list[Write]:
    """Return the writes into ``__delays`` that remove messages and whole runs."""
    return entry_writes(partition, removal_entries(numbers, runs), now_unix_ms)


def removal_entries(numbers: Sequence[int], runs: Sequence[int]) -> list[bytes]:
    """Return the entries that remove messages and whole runs."""
    return [
        encode_removed(some[start : start + _REMOVED_MAX], kind=kind)
        for some, kind in ((numbers, REMOVED), (runs, ENDED))
        for start in range(0, len(some), _REMOVED_MAX)
    ]


def entry_writes(
    partition: Partition, values: Sequence[bytes], now_unix_ms: int
) -> list[Write]:
    """Return the writes that append entries to ``__delays``, in order."""
    bodies = [(now_unix_ms, record_body(None, value, NO_HEADERS)) for value in values]
    writes = []
    for piece in split_bodies(bodies, partition.topic.settings.message_bytes_max):
        data = encode_bodies(piece)
        writes.append(Write(partition, data, parse_batch_header(data)))
    return writes
