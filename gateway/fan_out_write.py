"""Writes of one batch to several partitions; the batch is stored once.

Base offset and leader epoch lie outside of a batch's CRC. The stored batch has those of its first
partition; a batch for partitions of several leader epochs is stored once for each epoch.
"""

from collections.abc import Sequence

from gateway.model import BatchHeader, stamp
from gateway.partition import Partition, Write
from gateway.storage import Entry, Target


class FurtherWrite(Write):
    """Write of a batch to another partition than its first. It has no bytes until they are read."""

    __slots__ = ("_batch", "_first")

    def __init__(self, partition: Partition, first: "FanOutWrite") -> None:
        self._first = first
        self._batch: bytearray | None = None
        self.partition = partition
        self.header = first.header
        self.base_offset = -1
        self.natives = None
        self.runs = None
        self.further = ()

    @property
    def batch(self) -> bytearray:
        """The batch with the base offset of this partition."""
        if self._batch is None:
            self._batch = bytearray(self._first.batch)
            stamp(self._batch, self.base_offset, self.partition.leader_epoch)
        return self._batch

    @batch.setter
    def batch(self, value: bytearray) -> None:
        self._batch = value

    @property
    def size_bytes(self) -> int:
        """See ``Write``."""
        return len(self._first.batch)

    @property
    def stored(self) -> "FanOutWrite":
        """See ``Write``."""
        return self._first


class FanOutWrite(Write):
    """Batch to be appended to several partitions, the first of which is ``partition``.

    ``further`` are its writes to the others: they have offsets of their own, set by
    ``Writer.append`` too. ``shared`` is for what readers of several partitions keep once:
    ``gateway.queues.cached_batch.SharedRuns``.
    """

    __slots__ = ("shared",)

    def __init__(
        self, partitions: Sequence[Partition], batch: bytearray, header: BatchHeader
    ) -> None:
        super().__init__(partitions[0], batch, header)
        self.shared: object | None = None
        self.further = [FurtherWrite(partition, self) for partition in partitions[1:]]

    def check_present(self) -> None:
        """Raise what ``Partition.check_present`` raises for any of the further partitions."""
        for write in self.further:
            if write.partition.moved_to is not None:
                write.partition.check_present()

    def show(self) -> None:
        """Give live readers of the further partitions what those of the first get."""
        for write in self.further:
            write.runs = self.runs
            if self.natives is not None:
                shift = write.base_offset - self.base_offset
                write.natives = [(offset + shift, native) for offset, native in self.natives]

    def locate(self) -> list[Entry]:
        """Give the further writes their offsets; return an entry for each leader epoch."""
        for write in self.further:
            write.base_offset = write.partition.log_end_offset
            write.partition.log_end_offset = write.end_offset
        by_epoch: dict[int, list[Target]] = {}
        for write in (self, *self.further):
            partition = write.partition
            target = Target(partition.partition_id, write.base_offset)
            by_epoch.setdefault(partition.leader_epoch, []).append(target)
        found: list[Entry] = []
        for leader_epoch, targets in by_epoch.items():
            batch = bytearray(self.batch) if found else self.batch
            stamp(batch, targets[0].base_offset, leader_epoch)
            found.append(
                Entry(
                    tuple(targets),
                    batch,
                    self.offset_count,
                    self.header.max_timestamp_unix_ms,
                )
            )
        return found
