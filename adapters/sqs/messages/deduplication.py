"""The deduplication of one FIFO queue: its window of ids, and how it is rebuilt from the log.

A window is made at the queue's first send after a start, and anew when the scope of ids has
changed. What the log keeps of the window's time is read then, whatever has been deleted from the
queue (``queue.keep.ms`` keeps it there); sends wait for that, and nobody else.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final

from features.dedup_ids import DedupIds, Place
from gateway.broker import Broker
from gateway.errors import CorruptBatch, GatewayError, StorageUnavailable
from gateway.model import DEDUP_ID, MESSAGE_ID, Record, parse_batch_header
from gateway.partition import Partition
from gateway.records.codec import iter_records
from gateway.topics.manager import Topic

if TYPE_CHECKING:
    from gateway.queues.manager import Queue

LOAD_BYTES_MAX: Final = 262_144  # of one read, so that the loop serves others between two

_SEPARATOR: Final = b"\x00"  # in no id

OnPlaced = Callable[[Place | None, GatewayError | None], None]
OnReady = Callable[[GatewayError | None], None]


def scoped_id(dedup_id: bytes, group: bytes | None, *, by_group: bool) -> bytes:
    """Return what an id is known by: alone, or within its message group (DeduplicationScope)."""
    return (group or b"") + _SEPARATOR + dedup_id if by_group else dedup_id


class DeduplicationWindow:
    """The ids of a queue. ``is_ready``: what the log says of them is known.

    ``by_group``: they are known within their message groups, see ``scoped_id``.
    """

    def __init__(self, queue: "Queue", ids: DedupIds[OnPlaced], *, by_group: bool) -> None:
        self.queue = queue
        self.ids = ids
        self.by_group = by_group
        self.is_ready = False
        self.purged_ends: Sequence[int] = ()
        self._waiting: list[OnReady] = []
        self._task: asyncio.Task[None] | None = None

    def when_ready(self, on_ready: OnReady) -> None:
        """Call when the ids are known, or when the log could not be read.

        Never before this returns; ``start`` was called.
        """
        assert not self.is_ready
        self._waiting.append(on_ready)

    def start(self, broker: Broker, topic: Topic, window: range) -> None:
        """Begin to read what the log says of a time, unless that is on its way."""
        if self._task is None:
            load = _load(broker, topic, self.ids, window, by_group=self.by_group)
            self._task = asyncio.get_running_loop().create_task(load)
            self._task.add_done_callback(self._loaded)

    def purge(self, ends: Sequence[int]) -> None:
        """Forget the ids of what was sent before some offsets: see ``DedupIds.purge``."""
        self.purged_ends = ends
        self.ids.purge(ends)

    def take_waiting(self) -> list[OnReady]:
        """Forget everything; return who waits, to be told when another window is ready."""
        waiting, self._waiting = self._waiting, []
        self.close()
        return waiting

    def close(self) -> None:
        """Forget everything; who waits is told that the queue is not there to be sent to."""
        if self._task is not None:
            self._task.cancel()
        self.ids.close()

    def _loaded(self, task: asyncio.Task[None]) -> None:
        self._task = None
        failure = None if task.cancelled() else task.exception()
        error: GatewayError | None = None
        if isinstance(failure, GatewayError):
            error = failure
        elif task.cancelled() or failure is not None:
            error = StorageUnavailable("what was sent to the queue lately cannot be read")
        if error is None:
            self.is_ready = True
        else:
            self.ids.clear()
        waiting, self._waiting = self._waiting, []
        for on_ready in waiting:
            on_ready(error)
        if failure is not None and failure is not error:
            raise failure  # a fault of ours, for the loop to log


async def _load(
    broker: Broker,
    topic: Topic,
    ids: DedupIds[OnPlaced],
    window: range,
    *,
    by_group: bool,
) -> None:
    """Restore the ids of records of a time, unix ms. Error: ``StorageUnavailable``.

    One that others wrote with a time still to come is of now: the ids behind it expire, too.
    """
    await _readable(broker)
    sent: deque[tuple[int, bytes, Place]] = deque(maxlen=ids.ids_max)
    for number in range(len(topic.partition_ids)):
        partition = broker.partition(topic, number)
        found = await broker.offset_for_time(partition, window.start)
        if found is None:
            continue
        async for record in _records(broker, partition, found[0]):
            dedup_id = _sent_id(record)
            if dedup_id is not None:
                known_by = scoped_id(dedup_id, record.key, by_group=by_group)
                place = Place(number, record.offset)
                sent.append((min(record.timestamp_unix_ms, window.stop), known_by, place))
    for timestamp_unix_ms, known_by, place in sorted(sent, key=lambda one: one[0]):
        ids.restore(known_by, place, timestamp_unix_ms)


async def _readable(broker: Broker) -> None:
    """Return when all that is on its way into the log can be read there, or was refused."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_done(_error: StorageUnavailable | None) -> None:
        if not done.done():
            done.set_result(None)

    broker.after_pending(on_done)
    await done


async def _records(broker: Broker, partition: Partition, offset: int) -> AsyncIterator[Record]:
    """Yield the records from an offset to the end; a batch that cannot be read is passed over."""
    while offset < partition.high_watermark:
        batches = broker.read(partition, offset, bytes_max=LOAD_BYTES_MAX)
        if batches is None:
            batches = await broker.read_disk(partition, offset, bytes_max=LOAD_BYTES_MAX)
        if not batches:
            return
        for batch in batches:
            try:
                broker.stored.check(partition, batch)
                records = [record for record in iter_records(batch) if record.offset >= offset]
            except CorruptBatch:
                records = []
            for record in records:
                yield record
        offset = parse_batch_header(batches[-1]).last_offset + 1
        await asyncio.sleep(0)


def _sent_id(record: Record) -> bytes | None:
    """Return the id of a record that was sent here; what has moved here was sent elsewhere."""
    dedup_id: bytes | None = None
    for name, value in record.headers:
        if name == MESSAGE_ID:
            return None
        if name == DEDUP_ID and dedup_id is None:
            dedup_id = value
    return dedup_id
