"""Open round of a coalescer: the batches that runs of records are gathered in.

A batch is for one partition, or for all partitions of a ``TargetGroup``: then it is stored once.
A run joins a batch only if that is the latest open one of each of the run's partitions; otherwise
a new batch is opened behind all others. Batches are appended in the order in which they were
opened, so the runs of each partition keep their order.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from gateway.model import HEADER_BYTES, TIMESTAMP_TYPE_MASK
from gateway.partition import Partition
from gateway.records.record_run import Run

BATCH_RECORDS_MAX: Final = 256
BATCH_BYTES_MAX: Final = 65_536
TARGET_BYTES: Final = 44
"""Bytes that each further target of a batch takes in a log and its index."""


class OpenBatch:
    """Batch being gathered: runs, or parts of runs, and the whole run of each.

    ``bytes_max`` bounds it for runs to its only partition; it is 0 in a batch for several.
    ``is_latest``: no batch was opened behind it for any of its partitions.
    """

    __slots__ = (
        "bytes_max",
        "is_latest",
        "partitions",
        "record_count",
        "runs",
        "size_bytes",
        "whole_runs",
    )

    def __init__(self, partitions: Sequence[Partition], bytes_max: int) -> None:
        self.partitions = partitions
        self.bytes_max = bytes_max
        self.is_latest = True
        self.runs: list[Run] = []
        self.whole_runs: list[Run] = []
        self.record_count = 0
        self.size_bytes = HEADER_BYTES

    def add_piece(self, piece: Run, whole: Run) -> None:
        """Add a run, or a piece of one."""
        self.runs.append(piece)
        self.whole_runs.append(whole)
        self.record_count += len(piece.values)
        self.size_bytes += piece.size_bytes

    def has_room(self, run: Run, bytes_max: int) -> bool:
        """Return whether a run fits, when the batch may have ``bytes_max`` in all."""
        return (
            self.record_count + len(run.values) <= BATCH_RECORDS_MAX
            and self.size_bytes + run.size_bytes <= bytes_max
        )


class TargetGroup:
    """Partitions that get the same runs; made by ``Coalescer.group``, which also owns it.

    What follows from the settings of their topics is read once a round, and holds for it: a topic
    is not deleted, and no shard leaves, while a round has runs for it.
    """

    __slots__ = (
        "__weakref__",
        "_alike",
        "bytes_max",
        "compacts",
        "has_write_steps",
        "is_room_bounded",
        "message_bytes_max",
        "open_batches",
        "partitions",
        "round",
    )

    def __init__(self, partitions: tuple[Partition, ...]) -> None:
        self.partitions = partitions
        self.round: OpenRound | None = None
        self.open_batches: list[OpenBatch | None] = []
        self._alike: list[list[Partition]] = []

    def begin(self, open_round: "OpenRound") -> None:
        """Read the settings of the topics for a round."""
        if self.round is not open_round:  # it may begin again while nothing was placed
            self.round = open_round
            open_round.groups.append(self)
        all_settings = [partition.topic.settings for partition in self.partitions]
        self.message_bytes_max = min(one.message_bytes_max for one in all_settings)
        self.bytes_max = min(BATCH_BYTES_MAX, self.message_bytes_max)
        self.compacts = any(one.compacts for one in all_settings)
        self.is_room_bounded = any(one.is_queue or one.in_memory for one in all_settings)
        self.has_write_steps = any(one.has_write_steps for one in all_settings)
        stamped = [one.log_append_time for one in all_settings]
        if any(stamped) and not all(stamped):  # the kind of timestamp is in the batch's CRC
            pairs = list(zip(stamped, self.partitions, strict=True))
            self._alike = [
                [p for is_one, p in pairs if is_one is kind] for kind in (False, True)
            ]
        else:
            self._alike = [list(self.partitions)]
        self.open_batches = [None] * len(self._alike)

    def by_steps(self, *, is_delayed: bool) -> tuple[list[Partition], list[Partition]]:
        """Return the partitions that steps of the write path are asked for, and the others.

        ``is_delayed``: the run says when it is to be delivered.
        """
        alone: list[Partition] = []
        rest: list[Partition] = []
        for partition in self.partitions:
            has_steps = is_delayed or partition.topic.settings.has_write_steps
            (alone if has_steps else rest).append(partition)
        return alone, rest

    def end(self) -> None:
        """Forget the batches of a round."""
        self.round = None
        self.open_batches = []

    def alike(self, index: int) -> Sequence[Partition]:
        """Return the partitions of ``open_batches[index]``."""
        return self._alike[index]


class OpenRound:
    """Batches of one append, in order. ``latest`` is the last one of each partition."""

    __slots__ = ("batches", "groups", "latest")

    def __init__(self) -> None:
        self.batches: list[OpenBatch] = []
        self.groups: list[TargetGroup] = []
        self.latest: dict[Partition, OpenBatch] = {}

    def place(self, partition: Partition, run: Run) -> None:
        """Add a run for one partition."""
        batch = self.latest.get(partition)
        if batch is None:
            batch = self._open((partition,), batch_bytes_max(partition))
        record_count = batch.record_count + len(run.values)
        size_bytes = batch.size_bytes + run.size_bytes
        if record_count <= BATCH_RECORDS_MAX and size_bytes <= batch.bytes_max:
            batch.runs.append(run)
            batch.whole_runs.append(run)
            batch.record_count = record_count
            batch.size_bytes = size_bytes
            return
        bytes_max = batch_bytes_max(partition)
        for piece in _pieces(run, bytes_max - HEADER_BYTES):
            if batch.record_count:
                batch = self._open((partition,), bytes_max)
            batch.add_piece(piece, run)

    def place_in_all(self, group: TargetGroup, run: Run) -> int:
        """Add a run for all partitions of a group; return the bytes of new batches' targets."""
        if group.round is not self:
            group.begin(self)
        targets_bytes = 0
        for index, batch in enumerate(group.open_batches):
            for piece in _pieces(run, group.bytes_max - HEADER_BYTES):
                if (
                    batch is None
                    or not batch.is_latest
                    or not batch.has_room(piece, group.bytes_max)
                ):
                    partitions = group.alike(index)
                    batch = self._open(partitions, 0)  # noqa: PLW2901 - the next of its kind
                    targets_bytes += TARGET_BYTES * len(partitions)
                batch.add_piece(piece, run)
            group.open_batches[index] = batch
        return targets_bytes

    def end(self) -> list[OpenBatch]:
        """Return the batches; no more are gathered."""
        for group in self.groups:
            group.end()
        self.groups = []
        return self.batches

    def _open(self, partitions: Sequence[Partition], bytes_max: int) -> OpenBatch:
        batch = OpenBatch(partitions, bytes_max)
        self.batches.append(batch)
        latest = self.latest
        for partition in partitions:
            before = latest.get(partition)
            if before is not None:
                before.is_latest = False
            latest[partition] = batch
        return batch


def batch_bytes_max(partition: Partition) -> int:
    """Return the largest size of a batch for a partition, header included."""
    return min(BATCH_BYTES_MAX, partition.topic.settings.message_bytes_max)


def batch_attributes(partition: Partition) -> int:
    """Return the attributes of a batch for a partition."""
    return TIMESTAMP_TYPE_MASK if partition.topic.settings.log_append_time else 0


def _pieces(run: Run, bytes_max: int) -> Iterable[Run]:
    """Return the pieces of a run: each fits a batch, or is a single record."""
    if len(run.values) <= BATCH_RECORDS_MAX and run.size_bytes <= bytes_max:
        return (run,)
    return run.pieces(records_max=BATCH_RECORDS_MAX, bytes_max=bytes_max)
