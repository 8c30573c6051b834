"""Keyed state of one shard in an internal topic: the last value of each key is current.

Reads come from memory. Writes show there at once and are durable when ``on_done`` runs, in
order; many of them share one append. The stream keeps itself small without compaction: when its
bytes exceed twice the live ones and some room, every live value is appended again, a bounded
number at a time, and all that came before is cut off. ``gateway.sharded_stream`` opens the streams
of all shards.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, AnyPart, Coalescer, Part
from gateway.errors import GatewayError, StorageUnavailable
from gateway.model import parse_batch_header
from gateway.partition import Partition
from gateway.records.codec import NO_HEADERS, iter_records
from gateway.records.keyed import KeyedRecords
from gateway.records.record_run import RecordRun
from gateway.storage import OnDone

REWRITE_ROOM_BYTES: Final = 64 * 1024 * 1024
CHECKS_PER_ROOM: Final = 16  # looking at the size is not free
VALUE_BYTES_MAX: Final = 32 * 1024 * 1024

_LOAD_BYTES_MAX: Final = 1_048_576

Item = tuple[bytes, bytes | None]  # key, value; a value of None removes the key


class RunSink(Protocol):
    """Taker of what a put appends: a ``Coalescer``, or an append that is made up elsewhere."""

    def add_many(
        self, parts: Sequence[AnyPart], on_done: OnDone, *, as_is: bool = False
    ) -> None:
        """Take runs; ``on_done`` runs later, once. See ``Coalescer.add_many``."""
        ...


class InternalStream:
    """State in one partition of an internal topic. Call ``load`` before ``put``.

    Streams that share a ``coalescer`` keep their order among each other, and what is put into
    them in one tick is one append, with what else goes through it.
    """

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        partition: Partition,
        broker: Broker,
        clock: Clock,
        *,
        coalescer: Coalescer | None = None,
        rewrite_room_bytes: int = REWRITE_ROOM_BYTES,
        streams_by_key: "dict[bytes, InternalStream] | None" = None,
        values: dict[bytes, bytes] | None = None,
    ) -> None:
        """``streams_by_key`` is shared by the shards of a topic: which of them has a key.

        ``values``: an empty dict that the caller has views of.
        """
        self._partition = partition
        self._broker = broker
        self._clock = clock
        self._coalescer = coalescer or Coalescer(broker, reserved=True)
        self._rewrite_room_bytes = rewrite_room_bytes
        self._values = {} if values is None else values
        self._streams_by_key = streams_by_key
        self._rewrite: Iterator[bytes] | None = None
        self._unchecked_bytes = 0  # appended since the stream's size was looked at
        self.is_loaded = False
        self.on_undone: Callable[[Sequence[Item]], None] | None = None
        """Told which keys (with their values now) are as before a put that was refused."""
        self.live_bytes = 0
        self.rewrites = 0

    @property
    def topic_name(self) -> str:
        """Name of its topic."""
        return self._partition.topic.name.name

    @property
    def is_gone(self) -> bool:
        """Whether another node owns the shard, or the topic was deleted."""
        return self._partition.is_gone

    @property
    def number(self) -> int:
        """Number of its partition."""
        return self._partition.number

    @property
    def values(self) -> Mapping[bytes, bytes]:
        """Live view of all current values by key."""
        return MappingProxyType(self._values)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, including one that is not durable yet."""
        return self._values.get(key)

    async def load(self) -> Mapping[bytes, bytes]:
        """Read the stream; return the live view of all current values.

        Errors: ``StorageUnavailable``; ``CorruptBatch``, when what was stored cannot be read.
        """
        partition = self._partition
        offset = partition.log_start_offset
        while offset < partition.high_watermark:
            batches = self._broker.read(partition, offset, bytes_max=_LOAD_BYTES_MAX)
            if batches is None:
                batches = await self._broker.read_disk(
                    partition, offset, bytes_max=_LOAD_BYTES_MAX
                )
            for batch in batches:
                self._broker.stored.check(partition, batch)
                for record in iter_records(batch):
                    if record.key is not None and record.offset >= offset:
                        self._apply(record.key, record.value)
                offset = parse_batch_header(batch).last_offset + 1
            await asyncio.sleep(0)  # The loop serves others while much is loaded.
        self.is_loaded = True
        if self._streams_by_key is not None:
            # Only now: a key that has gone to another shard was here for a while.
            self._streams_by_key.update(dict.fromkeys(self._values, self))
        self._rewrite_when_due()
        return self.values

    def put(
        self,
        items: Sequence[Item],
        on_done: OnDone,
        *,
        beside: Sequence[AnyPart] = (),
        coalescer: RunSink | None = None,
        as_is: bool = False,
    ) -> None:
        """Set or remove keys atomically, in one append with the runs in ``beside``.

        All are in shards of this node's log; what is not goes by ``gateway.transfer``. ``as_is``:
        see ``Coalescer.add_many``.

        Another ``coalescer`` than the stream's own is for keys of which nothing else is on its
        way: what goes through the two is in no order.

        They show at once; ``on_done`` runs once when they are durable, never before this
        returns. When it gets an error they are as before. Errors: ``MessageTooLarge``, and for
        what is beside those of ``Coalescer.add_many``; then nothing has changed.
        """
        assert self.is_loaded, "load comes first"
        undo: list[Item] = []
        on_kept = partial(self._done, undo, on_done)
        parts = [*self.parts(items), *beside]
        (coalescer or self._coalescer).add_many(parts, on_kept, as_is=as_is)
        # Only now: room for this run may have been made by refusing, and undoing, earlier ones.
        undo += self.apply(items)

    def apply(self, items: Sequence[Item]) -> list[Item]:
        """Show items that are on their way; return what they replace, for ``undo``."""
        values = self._values
        replaced = [(key, values.get(key)) for key, _ in items]
        for key, value in items:
            self._apply(key, value)
            self._unchecked_bytes += len(key) + (len(value) if value else 0)
        return replaced

    def undo(self, replaced: Sequence[Item]) -> None:
        """Restore what refused items had replaced."""
        # The last refused put comes first, so the oldest values win (see Coalescer.add).
        for key, value in replaced:
            self._apply(key, value)

    def check_size(self) -> None:
        """Append the live values again when the stream has grown too large."""
        if self._unchecked_bytes >= self._rewrite_room_bytes // CHECKS_PER_ROOM:
            self._rewrite_when_due()

    @property
    def is_rewriting(self) -> bool:
        """Whether live values are being appended again."""
        return self._rewrite is not None

    def close(self) -> None:
        """Forget all values, after the shard has left; no put is under way."""
        self.is_loaded = False
        self._rewrite = None
        if self._streams_by_key is not None:
            for key in self._values:
                if self._streams_by_key.get(key) is self:
                    del self._streams_by_key[key]
        self._values.clear()
        self.live_bytes = 0

    def flush(self) -> None:
        """Append pending values now instead of at the end of the tick; for a node that stops."""
        self._coalescer.seal()

    def parts(self, items: Sequence[Item]) -> list[Part]:
        """Return items as parts of an append."""
        now_unix_ms = self._clock.unix_ms()
        partition = self._partition
        if len(items) > 1:
            keys, values = zip(*items, strict=True)
            if None not in values:
                return [(partition, KeyedRecords(keys, values, NO_HEADERS, now_unix_ms))]
        return [
            (partition, RecordRun(key, (value,), NO_HEADERS, now_unix_ms))
            for key, value in items
        ]

    def _apply(self, key: bytes, value: bytes | None) -> None:
        values = self._values
        old = values.get(key)
        if value is not None:
            # A key that is there stays the same object, which others may share.
            values[key] = value
            self.live_bytes += len(value) + (len(key) if old is None else -len(old))
            if old is None and self._streams_by_key is not None and self.is_loaded:
                self._streams_by_key[key] = self
        elif old is not None:
            del values[key]
            self.live_bytes -= len(key) + len(old)
            if self._streams_by_key is not None and self._streams_by_key.get(key) is self:
                del self._streams_by_key[key]

    def _done(
        self, undo: list[Item], on_done: OnDone, error: StorageUnavailable | None
    ) -> None:
        if error is not None:
            self.undo(undo)
            if self.on_undone is not None:
                self.on_undone(undo)
        on_done(error)
        self.check_size()

    # --- keeping small

    def _rewrite_when_due(self) -> None:
        if self._rewrite is not None:
            return
        self._unchecked_bytes = 0
        stored_bytes = self._broker.size_bytes(self._partition)
        if stored_bytes > 2 * self.live_bytes + self._rewrite_room_bytes:
            self._rewrite = iter(list(self._values))
            self._rewrite_some(self._partition.log_end_offset, None)

    def _rewrite_some(self, start_offset: int, error: StorageUnavailable | None) -> None:
        """Append some live values again; after the last, truncate what came before the pass.

        The next ones follow when these are durable, so that the pass never floods the log. Keys
        that were set meanwhile lie behind ``start_offset`` already; once more does no harm.
        """
        if self._rewrite is None or self._partition.is_gone:
            self._rewrite = None  # The shard has left.
            return
        if error is not None:
            self._rewrite = None  # The node stops, or the disk is full: tried again later.
            return
        items = self._next_live(self._rewrite)
        if items:
            try:
                self._coalescer.add_many(
                    self.parts(items), partial(self._rewrite_some, start_offset)
                )
            except GatewayError:
                self._rewrite = None
            return
        self._rewrite = None
        self.rewrites += 1
        # With nothing live, what came before the pass may still be on its way.
        offset = min(start_offset, self._partition.high_watermark)
        self._broker.truncate_before(self._partition, offset, _ignore)

    def _next_live(self, keys: Iterator[bytes]) -> list[Item]:
        items: list[Item] = []
        size_bytes = 0
        for key in keys:
            value = self._values.get(key)
            if value is None:
                continue
            items.append((key, value))
            size_bytes += len(key) + len(value)
            if len(items) >= BATCH_RECORDS_MAX or size_bytes >= BATCH_BYTES_MAX // 2:
                break
        return items


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result of a truncation: without it the next start only reads more."""
