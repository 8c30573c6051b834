"""A subscription to a topic: its partitions' tails, from now on or from stored positions."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from gateway.errors import GatewayError, StorageUnavailable
from gateway.futures import await_done
from gateway.model import Buffer, Record, parse_batch_header
from gateway.partition import Partition
from gateway.queues.model import Outcome
from gateway.queues.unacked import Unacked
from gateway.records.codec import decode_batch
from gateway.storage import OnDone
from gateway.tail import Tail
from gateway.writer import Write
from headgate_stomp.errors import to_fault
from headgate_stomp.in_flight import InFlight
from headgate_stomp.ports import AckMode, Asked, Connection

KEPT_BYTES_MAX: Final = 1_048_576
"""Bytes of batches that wait for credit; those above it are read again."""
_WRITTEN_MAX: Final = 256  # messages of one write


class _Reader:
    """State of one partition: batches to be delivered, and deliveries to be acknowledged."""

    def __init__(self, partition: Partition, start: int) -> None:
        self.partition = partition
        self.next_offset = start  # of what is delivered next
        self.tail: Tail | None = None
        self.batches: deque[Buffer] = deque()
        self.batches_bytes = 0
        self.records: deque[Record] = deque()  # of the first batch, decoded
        self.has_left_out = False  # batches beyond the bound, which are read again
        self.kept_offset = -1  # of the stored position
        self._open: deque[int] = deque()  # delivered offsets, in order
        self._acked: set[int] = set()  # of these, beyond the first that is not

    @property
    def is_empty(self) -> bool:
        return not (self.records or self.batches)

    def keep(self, batches: Sequence[Buffer]) -> None:
        """Take a run of batches, as many as fit; at least one."""
        for batch in batches:
            if self.batches and self.batches_bytes + len(batch) > KEPT_BYTES_MAX:
                self.has_left_out = True
                return
            self.batches.append(bytes(batch))
            self.batches_bytes += len(batch)

    def take(self, count: int) -> list[Record]:
        """Return the next records, at most ``count``. Error: ``CorruptBatch``, once a batch."""
        while not self.records and self.batches:
            batch = self.batches.popleft()
            self.batches_bytes -= len(batch)
            end = parse_batch_header(batch).last_offset + 1
            start, self.next_offset = self.next_offset, max(self.next_offset, end)
            self.records.extend(one for one in decode_batch(batch) if one.offset >= start)
        return [self.records.popleft() for _ in range(min(count, len(self.records)))]

    @property
    def resume_offset(self) -> int:
        """The offset behind all that was taken from the tail and is kept."""
        if not self.batches:
            return self.next_offset
        return max(self.next_offset, parse_batch_header(self.batches[-1]).last_offset + 1)

    def delivered(self, offset: int) -> None:
        self._open.append(offset)

    def acked(self, offsets: range) -> None:
        self._acked.update(offsets)

    @property
    def floor(self) -> int:
        """The offset at which a subscriber goes on: of the first that is not acknowledged."""
        while self._open and self._open[0] in self._acked:
            self._acked.discard(self._open.popleft())
        if self._open:
            return self._open[0]
        return self.records[0].offset if self.records else self.next_offset


class TopicSubscription:
    """Messages of a topic for one subscription.

    ``subscriber``: the name of a durable one, which goes on behind the last message that it has
    acknowledged (in mode auto: that was sent). NACK is to go on without the message.
    """

    def __init__(
        self,
        connection: Connection,
        partitions: Sequence[Partition],
        asked: Asked,
        *,
        subscriber: str,
    ) -> None:
        """The partitions are those of ``Broker.partition``, all of the topic's.

        ``store`` comes next, then ``start``.
        """
        self.id = asked.id
        self.mode = asked.mode
        self.topic = partitions[0].topic
        self.subscriber = subscriber
        self._connection = connection
        self._encoder = asked.encoder
        self._credit = asked.credit
        self._is_paused = connection.is_full
        self._is_closed = False
        self._in_flight: InFlight[_Reader] = InFlight(asked.mode)
        self._readers = {one: _Reader(one, self._start_of(one)) for one in partitions}
        self._live = self.topic.uuid, subscriber
        if subscriber:
            connection.node.live_subscribers.add(self._live)

    def start(self) -> None:
        """Read on."""
        for reader in self._readers.values():
            self._open(reader)

    def store(self, on_done: OnDone) -> None:
        """Store where a new durable subscription begins. Errors: those of ``keep``."""
        self._keep(self._readers.values(), on_done)

    async def forget(self) -> None:
        """Remove the stored positions, after ``close``. Errors: ``GatewayError``."""
        positions, partitions = self._connection.node.positions, list(self._readers)
        await await_done(lambda on_done: positions.forget(self.subscriber, partitions, on_done))

    def _start_of(self, partition: Partition) -> int:
        end = partition.stable_end
        known = None
        if self.subscriber:
            known = self._connection.node.positions.find(partition, self.subscriber)
        return end if known is None else min(max(known, partition.log_start_offset), end)

    def _open(self, reader: _Reader) -> None:
        broker = self._connection.node.kernel.broker
        reader.has_left_out = False
        reader.tail = broker.tail(reader.partition, reader.resume_offset, self)

    # --- gateway.tail.Receiver

    def on_batches(self, partition: Partition, batches: Sequence[Buffer]) -> bool:
        """See ``Receiver``: False while anything waits for credit or for the socket."""
        reader = self._readers[partition]
        reader.keep(batches)
        self._connection.guard(self._deliver)
        return reader.is_empty and not self._is_paused

    def on_writes(self, partition: Partition, writes: Sequence[Write]) -> bool:
        """See ``Receiver``: what was just appended looks as it does in the log."""
        return self.on_batches(partition, [write.batch for write in writes])

    def on_tail_error(self, _partition: Partition, error: GatewayError) -> None:
        """See ``Receiver``: the topic was deleted, or another node serves it."""
        self._connection.end_with(to_fault(error), [("subscription", self.id)])

    def _deliver(self) -> None:
        for reader in self._readers.values():
            while self._can_deliver and not reader.is_empty:
                self._deliver_some(reader)
            if self._can_deliver:
                self._read_on(reader)
        self._connection.pause_if_full()

    @property
    def _can_deliver(self) -> bool:
        return not self._is_closed and not self._is_paused and self._credit_left > 0

    @property
    def _credit_left(self) -> int:
        is_auto = self.mode is AckMode.AUTO
        return self._credit if is_auto else self._credit - len(self._in_flight)

    def _deliver_some(self, reader: _Reader) -> None:
        try:
            records = reader.take(min(self._credit_left, _WRITTEN_MAX))
        except GatewayError:  # a batch that lies is passed by: it cannot be read by anybody
            return
        frames = []
        for record in records:
            offsets = range(record.offset, record.offset + 1)
            tag = self._in_flight.add(reader, reader.partition.number, offsets, 1)
            frames.append(self._encoder.encode(record, tag, is_redelivered=False))
            if self.mode is not AckMode.AUTO:
                reader.delivered(record.offset)
        self._connection.send(b"".join(frames))
        self._connection.pause_if_full()
        if self.mode is AckMode.AUTO:
            try:
                self._keep([reader], _ignore)
            except GatewayError as error:
                self._connection.end_with(to_fault(error), [("subscription", self.id)])

    def _read_on(self, reader: _Reader) -> None:
        assert reader.tail is not None
        if reader.has_left_out:
            reader.tail.close()
            self._open(reader)
        else:
            reader.tail.resume()

    # --- Subscription

    def take(self, tag: int) -> list[Unacked[_Reader]] | None:
        """See ``Subscription``."""
        return self._in_flight.take(tag)

    def put_back(self, unacked: list[Unacked[_Reader]]) -> None:
        """See ``Subscription``."""
        self._in_flight.put_back(unacked)

    def settle(
        self, unacked: Sequence[Unacked[_Reader]], outcome: Outcome, on_done: OnDone
    ) -> None:
        """See ``Subscription``; whatever the outcome, the subscriber goes on behind them."""
        del outcome
        changed: dict[_Reader, None] = {}
        for one in unacked:
            one.source.acked(range(one.first_offset, one.first_offset + one.size))
            changed[one.source] = None
        self._keep(changed, on_done)
        self._connection.guard(self._deliver)

    def _keep(self, readers: Iterable[_Reader], on_done: OnDone) -> None:
        """Store positions that have changed. Errors: those of ``TopicPositions.keep``."""
        node = self._connection.node
        ends = {}
        for reader in readers:
            floor = reader.floor
            if self.subscriber and floor != reader.kept_offset:
                ends[reader.partition] = reader.kept_offset = floor
        if ends:
            node.positions.keep(self.subscriber, ends, on_done)
        else:
            node.call_soon(on_done)

    def pause(self) -> None:
        """See ``Subscription``."""
        self._is_paused = True

    def resume(self) -> None:
        """See ``Subscription``."""
        self._is_paused = False
        self._connection.guard(self._deliver)

    def close(self) -> None:
        """See ``Subscription``. The position stays as it is."""
        self._is_closed = True
        self._connection.node.live_subscribers.discard(self._live)
        for reader in self._readers.values():
            if reader.tail is not None:
                reader.tail.close()


def _ignore(_error: StorageUnavailable | None) -> None:
    """Let a failed position be: messages are delivered again."""
