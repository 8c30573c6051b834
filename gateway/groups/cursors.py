"""Committed positions of consumer groups, kept in the internal stream ``__cursors``.

The stream holds two kinds of keys: cursors (here) and the groups themselves
(``gateway.groups.store``). Integers are big-endian, texts UTF-8.

    group         length of the namespace u32, length of the name u32, namespace, name
    cursor key    0x01, group, topic uuid (16 bytes), partition number u32
    cursor value  version u8 = 0, offset i64, leader epoch i32 (-1: unknown), commit time i64
                  (unix ms), expiry i64 (unix ms, -1: by the group's retention), metadata text

Values stay encoded in memory: a position is written a thousand times for each time it is read.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import GroupsConfig
from gateway.errors import CoordinatorLoading, StorageUnavailable
from gateway.groups.model import GroupName
from gateway.shard_lifecycle import ShardLifecycle
from gateway.sharded_stream import ShardedStream
from gateway.slots import shard_of_group
from gateway.storage import OnDone
from gateway.topics.manager import Topic, TopicManager

CURSORS_TOPIC: Final = "__cursors"
CURSOR_KEY: Final = b"\x01"
GROUP_KEY: Final = b"\x02"
UNKNOWN_EPOCH: Final = -1
NO_EXPIRY: Final = -1
REMOVED_PER_PUT_MAX: Final = 1_000

_VERSION: Final = 0
_VALUE: Final = struct.Struct(">Bqiqq")
_WHERE: Final = struct.Struct(">16sI")
_LENGTHS: Final = struct.Struct(">II")

_log = structlog.get_logger()


class Commit(NamedTuple):
    """Position that a group commits; clients older than KIP-211 set its expiry."""

    topic_uuid: UUID
    number: int
    offset: int
    leader_epoch: int = UNKNOWN_EPOCH
    metadata: str = ""
    expires_unix_ms: int = NO_EXPIRY


class Move(NamedTuple):
    """New position of a group in a partition; None when the position was removed."""

    topic_uuid: UUID
    number: int
    offset: int | None


OnMoved = Callable[[GroupName, Sequence[Move]], None]


class Cursor(NamedTuple):
    """Position as it is stored."""

    topic_uuid: UUID
    number: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_unix_ms: int
    expires_unix_ms: int


def group_key(group: GroupName) -> bytes:
    """Return a group as encoded in keys; the rest of a key has a fixed length."""
    namespace = group.namespace.encode()
    name = group.name.encode()
    return _LENGTHS.pack(len(namespace), len(name)) + namespace + name


def parse_group_key(key: bytes, start: int) -> tuple[GroupName, int]:
    """Return the group in a key from index ``start`` on, and the index after it."""
    namespace_bytes, name_bytes = _LENGTHS.unpack_from(key, start)
    middle = start + _LENGTHS.size + namespace_bytes
    end = middle + name_bytes
    namespace = key[start + _LENGTHS.size : middle].decode()
    return GroupName(namespace, key[middle:end].decode()), end


class CursorManager:
    """Reads and writes positions; ``GroupManager`` checks whether a member may commit."""

    def __init__(
        self,
        stream: ShardedStream,
        clock: Clock,
        config: GroupsConfig,
        *,
        is_topic: Callable[[UUID], bool],
        shards: ShardLifecycle,
    ) -> None:
        """Positions in topics that ``is_topic`` does not know are dropped when they are loaded."""
        self.stream = stream
        self._is_topic = is_topic
        self._shards = shards
        self.metadata_bytes_max = config.offset_metadata_bytes_max
        self._clock = clock
        self._keys: dict[GroupName, set[bytes]] = {}
        self.watchers: dict[GroupName, OnMoved] = {}
        """Told what a group has committed or removed, in order, once that is durable."""
        self.commits = 0

    @classmethod
    async def open(
        cls, broker: Broker, topics: TopicManager, clock: Clock, config: GroupsConfig
    ) -> "CursorManager":
        """Return the node's cursors, loaded. Errors: as ``InternalStream.load``."""
        shard_count = broker.placement.shard_count
        stream = await ShardedStream.open(
            CURSORS_TOPIC,
            broker,
            topics,
            clock,
            rule=lambda key, _: shard_of_group(*parse_group_key(key, 1)[0], shard_count),
        )
        cursors = cls(
            stream,
            clock,
            config,
            is_topic=lambda uuid: topics.by_uuid(uuid) is not None,
            shards=broker.shards,
        )
        await cursors.load_shards(broker.shards.owned())
        topics.on_deleted.append(cursors.on_topic_deleted)
        broker.shards.register(cursors)
        return cursors

    @property
    def open_shards(self) -> Collection[int]:
        """See ``ShardState``."""
        return self.stream.open_shards

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``. Positions in unknown topics are dropped."""
        await self.stream.load_shards(shards)
        gone = []
        for key, _ in self.stream.items_of(shards):
            if not key.startswith(CURSOR_KEY):
                continue
            if self._is_topic(UUID(bytes=_uuid_of(key))):
                group, _ = parse_group_key(key, len(CURSOR_KEY))
                self._keys.setdefault(group, set()).add(key)
            else:
                gone.append((key, None))
        for start in range(0, len(gone), REMOVED_PER_PUT_MAX):
            self.stream.put(gone[start : start + REMOVED_PER_PUT_MAX], _log_failure)

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: each commit is with the coalescer already."""

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        count = self._shards.shard_count
        for group in [one for one in self._keys if shard_of_group(*one, count) in shards]:
            del self._keys[group]
        self.stream.close_shards(shards)

    def close(self) -> None:
        """Append pending commits; the storage is about to be closed."""
        self._shards.unregister(self)
        self.stream.flush()

    def check_loaded(self) -> None:
        """Raise ``CoordinatorLoading`` until the stream is read."""
        if not self.stream.is_loaded:
            raise CoordinatorLoading("committed offsets are being read")

    @property
    def count(self) -> int:
        """Number of positions of all groups."""
        return sum(map(len, self._keys.values()))

    def groups(self) -> Collection[GroupName]:
        """Return the groups that have a position."""
        return self._keys.keys()

    def has(self, group: GroupName) -> bool:
        """Whether the group has a position."""
        return group in self._keys

    def commit(self, group: GroupName, commits: Sequence[Commit], on_done: OnDone) -> None:
        """Store positions of one group, all or none; see ``InternalStream.put``.

        The caller checks that no metadata is above ``metadata_bytes_max``, because each
        position is refused by itself. Error: ``CoordinatorLoading``.
        """
        self.check_loaded()
        prefix = CURSOR_KEY + group_key(group)
        now_unix_ms = self._clock.unix_ms()
        items = []
        for topic_uuid, number, offset, epoch, metadata, expires_unix_ms in commits:
            value = _VALUE.pack(_VERSION, offset, epoch, now_unix_ms, expires_unix_ms)
            items.append(
                (prefix + _WHERE.pack(topic_uuid.bytes, number), value + metadata.encode())
            )

        def done(error: StorageUnavailable | None) -> None:
            if error is not None:
                self._forget_missing(group)
            else:
                watcher = self.watchers.get(group)
                if watcher is not None:
                    watcher(group, [Move(*commit[:3]) for commit in commits])
            on_done(error)

        self.stream.put(items, done)
        keys = self._keys.get(group)
        if keys is None:
            keys = self._keys[group] = set()
        keys.update(key for key, _ in items)
        self.commits += len(items)

    def fetch(self, group: GroupName, topic_uuid: UUID, number: int) -> Cursor | None:
        """Return a position, or None. Error: ``CoordinatorLoading``."""
        self.check_loaded()
        key = CURSOR_KEY + group_key(group) + _WHERE.pack(topic_uuid.bytes, number)
        value = self.stream.get(key)
        return None if value is None else _decode(key, value)

    def fetch_all(self, group: GroupName) -> list[Cursor]:
        """Return all positions of a group, in order of topic and partition.

        Error: ``CoordinatorLoading``.
        """
        return self.fetch_keys(self.keys_of(group))

    def count_of(self, group: GroupName) -> int:
        """Return how many positions a group has."""
        return len(self._keys.get(group, ()))

    def keys_of(self, group: GroupName) -> list[bytes]:
        """Return a group's keys for ``fetch_keys``, in order of topic and partition.

        Error: ``CoordinatorLoading``.
        """
        self.check_loaded()
        return sorted(self._keys.get(group, ()))

    def fetch_keys(self, keys: Iterable[bytes]) -> list[Cursor]:
        """Return the positions of some of a group's keys; removed ones are left out."""
        cursors = []
        for key in keys:
            value = self.stream.get(key)
            if value is not None:
                cursors.append(_decode(key, value))
        return cursors

    def delete(
        self, group: GroupName, partitions: Iterable[tuple[UUID, int]], on_done: OnDone
    ) -> None:
        """Remove positions of one group; ``on_done`` runs later."""
        self.check_loaded()
        prefix = CURSOR_KEY + group_key(group)
        keys = [prefix + _WHERE.pack(uuid.bytes, number) for uuid, number in partitions]
        self._remove(group, keys, (), on_done)

    def delete_group(
        self, group: GroupName, other_keys: Sequence[bytes], on_done: OnDone
    ) -> None:
        """Remove all positions of a group, and ``other_keys`` of the stream with them."""
        self.check_loaded()
        self._remove(group, list(self._keys.get(group, ())), other_keys, on_done)

    def on_topic_deleted(self, topic: Topic) -> None:
        """Remove the positions in a deleted topic; a hook of the ``TopicManager``."""
        if not self.stream.is_loaded:
            return
        for group, keys in list(self._keys.items()):
            gone = [key for key in keys if _uuid_of(key) == topic.uuid.bytes]
            for start in range(0, len(gone), REMOVED_PER_PUT_MAX):
                self._remove(group, gone[start : start + REMOVED_PER_PUT_MAX], (), _log_failure)

    def _remove(
        self,
        group: GroupName,
        keys: Sequence[bytes],
        other_keys: Sequence[bytes],
        on_done: OnDone,
    ) -> None:
        present = self._keys.get(group, set())

        def done(error: StorageUnavailable | None) -> None:
            if error is not None:  # They are in the stream again.
                back = [key for key in keys if self.stream.get(key) is not None]
                if back:
                    self._keys.setdefault(group, set()).update(back)
            elif group in self.watchers:
                self.watchers[group](group, [_removed(key) for key in keys])
            on_done(error)

        self.stream.put([(key, None) for key in (*keys, *other_keys)], done)
        present.difference_update(keys)
        if not present:
            self._keys.pop(group, None)

    def _forget_missing(self, group: GroupName) -> None:
        """Drop the positions of a refused commit."""
        keys = self._keys.get(group, set())
        keys.intersection_update([key for key in keys if self.stream.get(key) is not None])
        if not keys:
            self._keys.pop(group, None)


def _uuid_of(key: bytes) -> bytes:
    return key[-_WHERE.size : -_WHERE.size + 16]


def _removed(key: bytes) -> Move:
    uuid_bytes, number = _WHERE.unpack_from(key, len(key) - _WHERE.size)
    return Move(UUID(bytes=uuid_bytes), number, None)


def _decode(key: bytes, value: bytes) -> Cursor:
    uuid_bytes, number = _WHERE.unpack_from(key, len(key) - _WHERE.size)
    _, offset, leader_epoch, committed_unix_ms, expires_unix_ms = _VALUE.unpack_from(value)
    return Cursor(
        UUID(bytes=uuid_bytes),
        number,
        offset,
        leader_epoch,
        value[_VALUE.size :].decode(),
        committed_unix_ms,
        expires_unix_ms,
    )


def _log_failure(error: StorageUnavailable | None) -> None:
    if error is not None:
        _log.warning("positions in a deleted topic not removed", error=str(error))
