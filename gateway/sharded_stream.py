"""Keyed state in an internal topic with a partition for each shard.

Partition n holds the keys of shard n, by definition and not by hash of the partition. A user of the
stream gives a rule for the shard of a key, or says the shard when it puts. The same key never has a
value in two shards: a put that sets a key in another shard removes it where it was, in the same
append. So a load may find a key in any partition, and moves it to its shard when that is another:
after ``headgate reshard``, after a rule has changed, or when such a move was cut short by a crash.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import structlog

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import BATCH_BYTES_MAX, Coalescer, Part
from gateway.errors import NotLeader, StorageUnavailable, TopicNotFound
from gateway.futures import await_done
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.placement import Placement, shard_of
from gateway.slots import shard_of_key
from gateway.storage import OnDone
from gateway.streams import REWRITE_ROOM_BYTES, VALUE_BYTES_MAX, InternalStream, Item, RunSink
from gateway.topics.internal import internal_topic
from gateway.topics.manager import Topic, TopicManager

MOVED_PER_APPEND_MAX: Final = 1_000
_ID_BYTES: Final = 4  # of a partition, at the front of a key

_CONFIGS: Final = {"cleanup.policy": "compact", "max.message.bytes": str(VALUE_BYTES_MAX)}

ShardRule = Callable[[bytes, bytes], int | None]
"""Shard of a key with a value; None: the key stays in the shard that its first put named."""

log = structlog.get_logger()


def rule_of_partition_ids(topics: TopicManager, placement: Placement) -> ShardRule:
    """Return the rule for keys that begin with a partition id, of 4 bytes; others are in shard 0.

    The keys must not look like the id of a partition that exists.
    """

    def shard_of_id(key: bytes, _value: bytes) -> int:
        try:
            identity = topics.identify(int.from_bytes(key[:_ID_BYTES], "big"))
        except TopicNotFound:
            return 0
        topic = topics.by_uuid(identity.topic_uuid)
        return 0 if topic is None else shard_of(topic, identity.number, placement)

    return shard_of_id


class ShardItems(NamedTuple):
    """Items of one put that lie in one shard."""

    stream: InternalStream
    items: list[Item]


class ShardedStream:
    """State of an internal topic in all shards; as ``InternalStream``, which it has one of each.

    What is put in one tick is one append, whichever shards it lies in, as all of them are of one
    log. Shards are loaded and closed one by one; a put for one that is not open is ``NotLeader``.
    """

    def __init__(
        self,
        topic: Topic,
        broker: Broker,
        clock: Clock,
        coalescer: Coalescer,
        *,
        rule: ShardRule,
    ) -> None:
        """No shard is loaded. ``topic`` has a partition for each shard, or more."""
        self.topic = topic
        self._broker = broker
        self._clock = clock
        self._shard_count = broker.placement.shard_count
        self._coalescer = coalescer
        self._rule = rule
        self._streams: dict[int, InternalStream] = {}  # by partition, of open shards
        self._is_single = len(topic.partition_ids) == 1
        self._only: InternalStream | None = None
        self._only_values: dict[bytes, bytes] = {}
        self._streams_by_key: dict[bytes, InternalStream] = {}
        self._loop = asyncio.get_running_loop()
        self._values: Mapping[bytes, bytes] = (
            MappingProxyType(self._only_values)
            if self._is_single
            else _ValuesOfShards(self._streams_by_key)
        )
        self._on_undone: Callable[[Sequence[Item]], None] | None = None
        self._is_loaded = False
        self.open_shards: set[int] = set()
        """Shards that are loaded."""
        self.moved = 0
        """Keys that ``load`` has moved to their shards."""

    @classmethod
    async def open(
        cls,
        name: str,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        *,
        coalescer: Coalescer | None = None,
        rule: ShardRule | None = None,
    ) -> "ShardedStream":
        """Return the stream of that name, not loaded; its topic is made at the first start.

        Without a ``rule`` keys are spread over the shards by their hash.
        """
        shard_count = broker.placement.shard_count
        topic = await internal_topic(
            topics, TopicName(DEFAULT_NAMESPACE, name), shard_count, _CONFIGS
        )
        return cls(
            topic,
            broker,
            clock,
            coalescer or Coalescer(broker, reserved=True),
            rule=rule or (lambda key, _: shard_of_key(key, shard_count)),
        )

    # --- reading

    @property
    def partitions(self) -> list[InternalStream]:
        """Streams of the shards that are loaded, by number of their partition."""
        return [self._streams[number] for number in sorted(self._streams)]

    @property
    def values(self) -> Mapping[bytes, bytes]:
        """Live view of all current values by key."""
        return self._values

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, including one that is not durable yet."""
        return self._values.get(key)

    def items_of(self, shards: Collection[int]) -> list[tuple[bytes, bytes]]:
        """Return keys and values of some shards that are loaded."""
        count = self._shard_count
        return [
            item
            for number, stream in self._streams.items()
            if number % count in shards
            for item in stream.values.items()
        ]

    @property
    def live_bytes(self) -> int:
        """Bytes of all keys and values."""
        if self._only is not None:
            return self._only.live_bytes
        return sum([stream.live_bytes for stream in self.partitions])

    @property
    def is_loaded(self) -> bool:
        """Whether all shards are loaded."""
        return self._is_loaded

    @property
    def is_rewriting(self) -> bool:
        """Whether live values of a shard are being appended again."""
        return any(stream.is_rewriting for stream in self.partitions)

    async def load(self) -> Mapping[bytes, bytes]:
        """Read all shards of this node; return the live view of all current values.

        Keys in other shards than their own are moved. Errors: as ``InternalStream.load``.
        """
        await self.load_shards(self._broker.shards.owned())
        return self._values

    async def load_shards(self, shards: Collection[int]) -> None:
        """Read some shards. Keys in other shards than their own are moved, if those are open.

        Errors: as ``InternalStream.load``, and ``NotLeader``; ``close_shards`` follows an error.
        """
        count = self._shard_count
        numbers = range(len(self.topic.partition_ids))
        loaded = [await self._load(n) for n in numbers if n % count in shards]
        self.open_shards.update(shards)
        self._is_loaded = True
        if not self._is_single:
            await self._move_home(loaded)

    async def _load(self, number: int) -> InternalStream:
        stream = InternalStream(
            self._broker.partition(self.topic, number),
            self._broker,
            self._clock,
            coalescer=self._coalescer,
            rewrite_room_bytes=REWRITE_ROOM_BYTES // self._shard_count,
            streams_by_key=None if self._is_single else self._streams_by_key,
            values=self._only_values if self._is_single else None,
        )
        self._streams[number] = stream
        if self._is_single:
            self._only_values.clear()
            self._only = stream
            stream.on_undone = self._on_undone
        await stream.load()
        return stream

    def close_shards(self, shards: Collection[int]) -> None:
        """Forget the values of some shards; no put for them is under way."""
        self.open_shards.difference_update(shards)
        for number in [n for n in self._streams if n % self._shard_count in shards]:
            self._streams.pop(number).close()
            self._only = None

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: all that was put is with the coalescer."""

    # --- writing

    @property
    def on_undone(self) -> Callable[[Sequence[Item]], None] | None:
        """Told which keys (with their values now) are as before a put that was refused."""
        return self._on_undone

    @on_undone.setter
    def on_undone(self, told: Callable[[Sequence[Item]], None] | None) -> None:
        self._on_undone = told
        if self._only is not None:
            self._only.on_undone = told

    def put(
        self,
        items: Sequence[Item],
        on_done: OnDone,
        *,
        beside: Sequence[Part] = (),
        coalescer: RunSink | None = None,
        shard: int | None = None,
    ) -> None:
        """Set or remove keys atomically; see ``InternalStream.put``.

        ``shard`` is that of all keys, in place of the rule. Error: ``NotLeader`` for a shard that
        is not open.
        """
        if self._only is not None:
            self._only.put(items, on_done, beside=beside, coalescer=coalescer)
            return
        assert self.is_loaded, "load comes first"
        by_shard = self._by_shard(items, shard)
        parts = [part for one in by_shard for part in one.stream.parts(one.items)]
        parts += beside
        undo: list[ShardItems] = []
        (coalescer or self._coalescer).add_many(parts, partial(self._done, undo, on_done))
        # As in InternalStream.put: room may have been made by undoing earlier puts.
        undo += [ShardItems(one.stream, one.stream.apply(one.items)) for one in by_shard]

    def flush(self) -> None:
        """Append pending values now instead of at the end of the tick; for a node that stops."""
        self._coalescer.seal()

    def _by_shard(self, items: Sequence[Item], shard: int | None) -> list[ShardItems]:
        """Return items by shard; what a key has in another one is removed there."""
        grouped: defaultdict[InternalStream, list[Item]] = defaultdict(list)
        for key, value in dict(items).items():  # of a key that comes twice, the last counts
            present = self._streams_by_key.get(key)
            if value is None:
                grouped[present or self._any()].append((key, None))
                continue
            home = self._home(key, value, shard)
            if present is not None and present is not home:
                grouped[present].append((key, None))
            grouped[home].append((key, value))
        return [ShardItems(stream, own) for stream, own in grouped.items()]

    def shard_of(self, key: bytes, value: bytes) -> int:
        """Return the shard of a key, by the stream's rule, whoever owns it."""
        return 0 if self._shard_count == 1 else self._rule(key, value) or 0

    def _home(self, key: bytes, value: bytes, shard: int | None) -> InternalStream:
        if shard is None:
            shard = self._rule(key, value)
        return self._stream_of(shard or 0)

    def _stream_of(self, shard: int) -> InternalStream:
        stream = self._streams.get(shard)
        if stream is None:
            msg = f"shard {shard} of {self.topic.name.name} is not open"
            raise NotLeader(msg)
        return stream

    def _any(self) -> InternalStream:
        """Return a stream for the removal of a key that is not there."""
        here = (shard for shard in sorted(self.open_shards) if self.is_here(shard))
        return self._stream_of(next(here, 0))

    def is_here(self, shard: int) -> bool:
        """Return whether keys can be put into a shard: it is open, and has not left."""
        stream = self._streams.get(shard)
        return stream is not None and shard in self.open_shards and not stream.is_gone

    def _done(
        self, undo: list[ShardItems], on_done: OnDone, error: StorageUnavailable | None
    ) -> None:
        if error is not None:
            for stream, items in undo:
                stream.undo(items)
            if self._on_undone is not None:
                self._on_undone([item for _, items in undo for item in items])
        on_done(error)
        for stream, _ in undo:
            stream.check_size()

    # --- moving keys to their shards

    async def _move_home(self, loaded: Sequence[InternalStream]) -> None:
        """Move keys of some streams to their shards, a bounded number in each append."""
        pending: list[Item] = []
        size_bytes = 0
        for key in [key for stream in loaded for key in stream.values]:
            stream = self._streams_by_key.get(key)
            value = None if stream is None else stream.get(key)
            if stream is None or value is None:  # it was removed while others moved
                continue
            if not self._is_misplaced(key, value, stream):
                continue
            pending.append((key, value))
            size_bytes += len(key) + len(value)
            if size_bytes >= BATCH_BYTES_MAX or len(pending) >= MOVED_PER_APPEND_MAX:
                await self._move(pending)
                pending, size_bytes = [], 0
        if pending:
            await self._move(pending)
        if self.moved:
            name = self.topic.name.name
            log.info("keys moved to their shards", topic=name, count=self.moved)

    def _is_misplaced(self, key: bytes, value: bytes, stream: InternalStream) -> bool:
        shard = self._rule(key, value)
        if shard is None:  # it stays where it is, if that is a shard
            return stream.number >= self._shard_count and 0 in self.open_shards
        return stream.number != shard and shard in self.open_shards

    async def _move(self, items: Sequence[Item]) -> None:
        """Move keys in one append. Error: ``StorageUnavailable``."""
        await await_done(lambda on_done: self.put(items, on_done))
        self.moved += len(items)


class _ValuesOfShards(Mapping[bytes, bytes]):
    """Values of all shards by key."""

    def __init__(self, streams_by_key: dict[bytes, InternalStream]) -> None:
        self._streams_by_key = streams_by_key

    def __getitem__(self, key: bytes) -> bytes:
        value = self._streams_by_key[key].get(key)
        assert value is not None
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._streams_by_key

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._streams_by_key)

    def __len__(self) -> int:
        return len(self._streams_by_key)
