"""Deduplication of one FIFO queue: its window of ids, rebuilt from the log after a start.

A window is made at the queue's first send after a start, and again when the scope of ids has
changed. It then reads the records of the window's time from the log, deleted messages included
(``queue.keep.ms`` keeps them there). Only sends wait for that.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final

from features.dedup_ids import DedupIds, FirstSent
from gateway.broker import Broker
from gateway.errors import CorruptBatch, GatewayError, StorageUnavailable
from gateway.futures import set_result_if_pending
from gateway.model import DEDUP_ID, MESSAGE_ID, Record, parse_batch_header
from gateway.partition import Partition
from gateway.records.codec import iter_records
from gateway.topics.manager import Topic

if TYPE_CHECKING:
    from gateway.queues.manager import Queue

LOAD_BYTES_MAX: Final = 262_144  # of one read; between reads the loop serves others

_SEPARATOR: Final = b"\x00"  # in no id

OnPlaced = Callable[[FirstSent | None, GatewayError | None], None]
OnReady = Callable[[GatewayError | None], None]


def scoped_id(dedup_id: bytes, group: bytes | None, *, by_group: bool) -> bytes:
    """Return the key of an id: the id alone, or with its message group (DeduplicationScope)."""
    return (group or b"") + _SEPARATOR + dedup_id if by_group else dedup_id


class DeduplicationWindow:
    """The ids of a queue. ``is_ready`` is set when they have been read from the log.

    ``by_group``: ids are scoped by message group, see ``scoped_id``.
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
        """Register a call for when the ids are loaded, or could not be read.

        It never runs before this method returns. ``start`` has to be called before.
        """
        assert not self.is_ready
        self._waiting.append(on_ready)

    def start(self, broker: Broker, topic: Topic, window: range) -> None:
        """Begin to read the records of a time from the log, unless that is in progress."""
        if self._task is None:
            load = _load(broker, topic, self.ids, window, by_group=self.by_group)
            self._task = asyncio.get_running_loop().create_task(load)
            self._task.add_done_callback(self._loaded)

    def purge(self, ends: Sequence[int]) -> None:
        """Forget the ids of messages before some offsets: see ``DedupIds.purge``."""
        self.purged_ends = ends
        self.ids.purge(ends)

    def take_waiting(self) -> list[OnReady]:
        """Close; return the waiting calls, for another window."""
        waiting, self._waiting = self._waiting, []
        self.close()
        return waiting

    def close(self) -> None:
        """Forget all ids and stop loading; waiting calls get an error."""
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
            raise failure  # a bug, which the loop logs


async def _load(
    broker: Broker,
    topic: Topic,
    ids: DedupIds[OnPlaced],
    window: range,
    *,
    by_group: bool,
) -> None:
    """Restore the ids of records of a time, in unix ms. Error: ``StorageUnavailable``.

    A record of another protocol with a time in the future counts as of now: otherwise later ids
    would not expire before it.
    """
    await _readable(broker)
    sent: deque[tuple[int, bytes, FirstSent]] = deque(maxlen=ids.ids_max)
    for number in range(len(topic.partition_ids)):
        partition = broker.partition(topic, number)
        # What waits for the end of a transaction was sent, and is not to be sent again.
        end = partition.high_watermark
        found = await broker.offset_for_time(partition, window.start, end)
        if found is None:
            continue
        async for record in _records(broker, partition, found[0]):
            dedup_id = _sent_id(record)
            if dedup_id is not None:
                known_by = scoped_id(dedup_id, record.key, by_group=by_group)
                place = FirstSent(number, record.offset)
                sent.append((min(record.timestamp_unix_ms, window.stop), known_by, place))
    for timestamp_unix_ms, known_by, place in sorted(sent, key=lambda one: one[0]):
        ids.restore(known_by, place, timestamp_unix_ms)


async def _readable(broker: Broker) -> None:
    """Wait until all pending appends can be read from the log, or have failed."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    broker.after_pending(lambda _error: set_result_if_pending(done, None))
    await done


async def _records(broker: Broker, partition: Partition, offset: int) -> AsyncIterator[Record]:
    """Yield the records from an offset to the high watermark; skip batches that are unreadable.

    Those of open transactions are among them.
    """
    while offset < (end := partition.high_watermark):
        batches = await broker.read_uncommitted(
            partition, offset, end, bytes_max=LOAD_BYTES_MAX
        )
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
    """Return the id of a record sent to this queue; None for one moved from another queue."""
    dedup_id: bytes | None = None
    for name, value in record.headers:
        if name == MESSAGE_ID:
            return None
        if name == DEDUP_ID and dedup_id is None:
            dedup_id = value
    return dedup_id
