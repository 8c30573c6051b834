"""Sizes of a partition's messages, kept by a tail of it: for lengths that are bounded in bytes."""

from collections.abc import Sequence
from typing import Final

from features.queue.size_index import SizeIndex
from gateway.broker import Broker
from gateway.errors import CorruptBatch, GatewayError, OffsetOutOfRange
from gateway.model import BatchHeader, Buffer, parse_batch_header
from gateway.partition import Partition, Write
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.records.codec import decode_batch
from gateway.records.decoding_cost import LOOP_WORK_MAX, decoding_cost_of
from gateway.tail import Tail

RETRY_S: Final = 1.0
PARTS_MAX: Final = 2_000  # ranges and returned messages whose bytes are looked up one by one


class QueueSizes:
    """Sizes of one queue's messages, while its length is bounded in bytes."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self.by_lane: dict[QueueLane, LaneSizes] = {}

    def follow(self, lanes: Sequence[QueueLane]) -> None:
        """Follow those lanes, and no others."""
        for lane in [lane for lane in self.by_lane if lane not in lanes]:
            self.by_lane.pop(lane).close()
        for lane in lanes:
            if lane not in self.by_lane:
                self.by_lane[lane] = LaneSizes(self._context, lane)

    def may_exceed(self, bytes_max: int) -> bool:
        """Return whether ready messages may have more bytes than that; O(partitions)."""
        return sum(sizes.open_bytes for sizes in self.by_lane.values()) > bytes_max

    @property
    def ready_bytes(self) -> int:
        """Bytes of all ready messages."""
        return sum(sizes.ready_bytes for sizes in self.by_lane.values())


class LaneSizes:
    """Bodies of one lane's messages in bytes. After a start its backlog is read once."""

    def __init__(self, context: QueueContext, lane: QueueLane) -> None:
        self._context = context
        self._broker: Broker = context.broker
        self._lane = lane
        start = max(lane.lane.floor, lane.partition.log_start_offset)
        self._index = SizeIndex(start)
        self._tail: Tail | None = self._broker.tail(lane.partition, start, self)
        self._is_closed = False

    def close(self) -> None:
        """Stop."""
        self._is_closed = True
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    @property
    def open_bytes(self) -> int:
        """Bytes from the lowest message that is not settled on: at least the ready ones. O(1)."""
        if self._tail is not None:
            self._tail.push_held()
        floor = self._lane.lane.floor
        self._index.drop_before(floor)
        return self._index.bytes_between(floor, self._index.end_offset)

    @property
    def ready_bytes(self) -> int:
        """Bytes of the ready messages that are known.

        Of ready messages in more than ``PARTS_MAX`` parts it is estimated by their number: it is
        asked in each turn of the loop.
        """
        open_bytes = self.open_bytes
        lane = self._lane.lane
        index = self._index
        if lane.parts_max > PARTS_MAX:
            span = max(index.end_offset - lane.floor, 1)
            ready_count = lane.counts(index.end_offset).ready
            return open_bytes * min(ready_count, span) // span
        total_bytes = 0
        for first, end in lane.ready_ranges(index.end_offset):
            total_bytes += index.bytes_between(first, end)
        return total_bytes

    def count_of(self, size_bytes: int, messages_max: int) -> int:
        """Return how many of the first ready messages have so many bytes, at most those."""
        offsets = self._lane.lane.ready(messages_max)
        for count, offset in enumerate(offsets, 1):
            size_bytes -= self._index.bytes_between(offset, offset + 1)
            if size_bytes <= 0:
                return count
        return len(offsets)

    # --- gateway.tail.Receiver

    def on_batches(self, partition: Partition, batches: Sequence[Buffer]) -> bool:
        """See ``Receiver``."""
        del partition
        for batch in batches:
            header = parse_batch_header(batch)
            self._add(batch, header, header.base_offset)
        self._note()
        return True

    def on_writes(self, partition: Partition, writes: Sequence[Write]) -> bool:
        """See ``Receiver``."""
        del partition
        for write in writes:
            if write.runs is None:
                self._add(write.batch, write.header, write.base_offset)
                continue
            offset = write.base_offset
            for run in write.runs:
                self._index.add(offset, [len(value or b"") for value in run.values])
                offset += len(run.values)
        self._note()
        return True

    def on_tail_error(self, partition: Partition, error: GatewayError) -> None:
        """See ``Receiver``: start again, at the log's start or after a pause."""
        self._tail = None
        if self._is_closed or partition.is_gone:
            return
        pause_s = 0.0 if isinstance(error, OffsetOutOfRange) else RETRY_S
        self._context.loop.call_later(pause_s, self._reopen)

    def _reopen(self) -> None:
        partition = self._lane.partition
        if self._is_closed or partition.is_gone:
            return
        start = max(self._index.end_offset, partition.log_start_offset)
        self._tail = self._broker.tail(partition, start, self)

    def _note(self) -> None:
        """Look at the limit: what was appended counts now."""
        if self._lane.is_open and (bounds := self._lane.owner.bounds) is not None:
            bounds.check_soon(self._lane)

    def _add(self, batch: Buffer, header: BatchHeader, base_offset: int) -> None:
        """Add a batch as it is stored; of one that is costly to decode only the sum counts."""
        if header.is_control:
            return
        end = base_offset + header.last_offset_delta + 1
        if decoding_cost_of(header) > LOOP_WORK_MAX:
            self._index.add_sum(base_offset, end, len(batch))
            return
        try:
            records = decode_batch(batch)
        except CorruptBatch:
            return
        shift = base_offset - header.base_offset  # of a write that has no offset of its own
        for record in records:
            self._index.add(record.offset + shift, [len(record.value or b"")])
