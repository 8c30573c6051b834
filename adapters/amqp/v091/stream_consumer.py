"""Consumer of a stream: a position in the log, read while the prefetch leaves credit."""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from adapters.amqp.stream_arguments import StreamFilter
from adapters.amqp.stream_batches import StreamBatch, StreamRow
from adapters.amqp.streams import Stream
from adapters.amqp.v091.delivery_frames import DeliveryFrames
from adapters.amqp.v091.fields import encode_shortstr
from adapters.amqp.v091.methods.basic import BasicCancel
from adapters.amqp.v091.ports import ChannelPort
from features.queue.model import SettledRange
from gateway.errors import GatewayError, OffsetOutOfRange
from gateway.partition import Partition, Write
from gateway.queues.joint_acks import JointAcks
from gateway.queues.unacked import Unacked

DEALT_MAX: Final = 1_024  # messages of one turn
LOOKED_AT_MAX: Final = 4_096  # in one turn, those that a filter leaves out included
DEALT_BYTES_MAX: Final = 1_048_576
_OFFSET = attrgetter("offset")


class StreamConsumer:
    """Consumer by ``basic.consume`` of a stream. Loop only.

    What is settled, with whatever outcome, gives credit back and changes nothing in the stream.
    ``first_offset``: messages below it are passed over.
    """

    def __init__(  # noqa: PLR0913 - what a consumer asks for, by keyword
        self,
        channel: ChannelPort,
        stream: Stream,
        partition: Partition,
        tag: str,
        *,
        position: int,
        first_offset: int,
        filtered_by: StreamFilter | None,
    ) -> None:
        self.tag = tag
        self.queue_name = stream.name
        self.prefetch_count = channel.prefetch_count
        self.no_ack = self.is_exclusive = False
        self.is_active = True
        self.priority = 0
        self.offset = position
        self.unacked_count = 0
        self.reading_count = 0  # what it reads is delivered as far as its credit goes then
        self.is_done = False
        self._channel = channel
        self._stream = stream
        self._streams = channel.connection.node.streams
        self._partition = partition
        self._first_offset = first_offset
        self._filter = filtered_by
        self._origin = encode_shortstr("") + encode_shortstr(stream.name)
        self._credit = 0
        self._base_offset = position  # of the batch that is being read, as far as known
        self._is_paused = channel.connection.is_full
        self._is_scheduled = False
        self._reading: asyncio.Task[StreamBatch] | None = None
        self._streams.join(stream, self)

    # --- credit, as of consumers of queues

    def renew(self, *, channel_credit: int) -> None:
        """Set the credit: what the prefetch leaves, and this consumer's part of the channel's."""
        left = max(self.prefetch_count - self.unacked_count, 0)
        self._credit = min(channel_credit, left)
        self._pump_soon()

    def freed(self, count: int) -> None:
        """See ``Source``."""
        self.unacked_count -= count
        self._channel.renew_credit()

    def settle(self, number: int, settled: Sequence[SettledRange]) -> None:
        """See ``Source``: a stream keeps its messages."""

    def acknowledge_in(
        self, acks: JointAcks, number: int, settled: Sequence[SettledRange]
    ) -> None:
        """See ``Source``: there is nothing to be appended."""

    def pause(self) -> None:
        """Deliver nothing more: the socket is full."""
        self._is_paused = True

    def resume(self) -> None:
        """Deliver again."""
        self._is_paused = False
        self._pump_soon()

    # --- reading

    @property
    def _may_deliver(self) -> bool:
        return not (self.is_done or self._is_paused) and self._credit > 0

    def _pump_soon(self) -> None:
        is_waiting = self._is_scheduled or self._reading is not None
        if not is_waiting and self._may_deliver:
            self._is_scheduled = True
            connection = self._channel.connection
            connection.loop.call_soon(connection.guard, self._pump)

    def _pump(self) -> None:
        """Deliver what there is of one batch, or wait for more."""
        self._is_scheduled = False
        self._partition.waiters.discard(self)
        if not self._may_deliver:
            return
        try:
            batch = self._streams.batches.read(self._partition, self.offset, self._base_offset)
        except OffsetOutOfRange:  # retention was faster
            self.offset = self._base_offset = self._partition.log_start_offset
            self._pump_soon()
        except GatewayError:
            self.on_cancelled()
        else:
            if batch is None:
                self._load()
            else:
                self._take(batch)

    def _load(self) -> None:
        connection = self._channel.connection
        work = self._streams.batches.load(self._partition, self.offset)
        self._reading = connection.loop.create_task(work)
        self._reading.add_done_callback(partial(connection.guard, self._on_loaded))

    def _on_loaded(self, task: "asyncio.Task[StreamBatch]") -> None:
        self._reading = None
        if self.is_done or task.cancelled():
            return
        error = task.exception()
        if error is None:
            if self._may_deliver:
                self._take(task.result())
        elif isinstance(error, OffsetOutOfRange):
            self._pump_soon()
        elif isinstance(error, GatewayError):
            self.on_cancelled()
        else:
            raise error

    def _take(self, batch: StreamBatch) -> None:
        if batch.end_offset <= self.offset:  # the stream's end
            self._partition.waiters.add(self)
            return
        rows = batch.rows
        start = bisect_left(rows, max(self.offset, self._first_offset), key=_OFFSET)
        stop = min(start + LOOKED_AT_MAX, len(rows))
        chosen, stop = self._choose(rows, start, stop)
        if stop < len(rows):
            self.offset = rows[stop].offset
            self._base_offset = batch.base_offset
        else:
            self.offset = self._base_offset = batch.end_offset
        if chosen:
            self._deliver(chosen)
        self._pump_soon()

    def _choose(
        self, rows: Sequence[StreamRow], start: int, stop: int
    ) -> tuple[Sequence[StreamRow], int]:
        """Return rows to be delivered, and the index behind the last that was looked at."""
        count_max = min(self._credit, DEALT_MAX)
        wanted = self._filter
        chosen: list[StreamRow] = []
        size_bytes = 0
        for index in range(start, stop):
            row = rows[index]
            if wanted is not None and not wanted.takes(row.filter_value):
                continue
            size_bytes += len(row.body) + len(row.before)
            if chosen and size_bytes > DEALT_BYTES_MAX:
                return chosen, index
            chosen.append(row)
            if len(chosen) >= count_max:
                return chosen, index + 1
        return chosen, stop

    def _deliver(self, rows: Sequence[StreamRow]) -> None:
        channel = self._channel
        first_tag = channel.next_tags(len(rows))
        frames = DeliveryFrames(channel, self.tag, is_redelivered=False)
        parts: list[bytes] = []
        for tag, row in enumerate(rows, first_tag):
            frames.add(parts, tag, row.origin or self._origin, row.properties, row.body)
        channel.unacked.add(Unacked(first_tag, len(rows), self, 0, rows[0].offset, 0))
        self.unacked_count += len(rows)
        channel.connection.send(b"".join(parts))
        channel.connection.pause_if_full()
        channel.renew_credit()

    # --- gateway.partition.Appended

    def on_appended(self, write: Write) -> None:  # noqa: ARG002
        """See ``Appended``."""
        self._pump_soon()

    def on_stable(self) -> None:
        """See ``Appended``."""
        self._pump_soon()

    @property
    def reads_uncommitted(self) -> bool:
        """See ``Appended``."""
        return False

    @property
    def takes_pending(self) -> bool:
        """See ``Appended``: clients begin at the next owner behind what they have got."""
        return True

    def on_truncated(self) -> None:
        """See ``Appended``: the next read finds the start."""

    def on_gone(self) -> None:
        """See ``Appended``: the topic was deleted, or has moved."""
        connection = self._channel.connection
        connection.loop.call_soon(connection.guard, self.on_cancelled)

    # --- ending

    def on_cancelled(self) -> None:
        """See ``StreamReceiver``: clients that want to know are told."""
        if self.is_done:
            return
        self.cancel()
        channel = self._channel
        is_told = "consumer_cancel_notify" in channel.connection.client_capabilities
        if channel.remove_consumer(self.tag) and is_told:
            channel.send(BasicCancel(self.tag, nowait=True))

    def cancel(self) -> None:
        """Deliver nothing more; what is in flight stays with the channel."""
        self.is_done = True
        self._partition.waiters.discard(self)
        self._streams.leave(self._stream, self)
        if self._reading is not None:
            self._reading.cancel()
