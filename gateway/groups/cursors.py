"""Committed positions of consumer groups, kept in the internal stream ``__cursors``.

The stream holds cursors (here), the groups themselves (``gateway.groups.store``) and positions of
open transactions (``gateway.groups.pending_offsets``). Integers are big-endian, texts UTF-8.

    group         length of the namespace u32, length of the name u32, namespace, name
    cursor key    0x01, group, topic uuid (16 bytes), partition number u32
    cursor value  version u8 = 0, offset i64, leader epoch i32 (-1: unknown), commit time i64
                  (unix ms), expiry i64 (unix ms, -1: by the group's retention), metadata text

Values stay encoded in memory: a position is written a thousand times for each time it is read.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final
from uuid import UUID

import structlog

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import GroupsConfig
from gateway.errors import CoordinatorLoading, NotLeader, StorageUnavailable
from gateway.groups.cursor_keys import (
    CURSOR_KEY,
    encode_where,
    group_key,
    parse_group_key,
    uuid_of_key,
)
from gateway.groups.cursor_values import (
    NO_EXPIRY,
    UNKNOWN_EPOCH,
    Commit,
    Cursor,
    Move,
    decode_cursor,
    encode_cursor,
    removal_of,
)
from gateway.groups.model import GroupName
from gateway.groups.pending_offsets import (
    PENDING_KEY,
    PendingOffsets,
    parse_pending_key,
    pending_key,
)
from gateway.shard_lifecycle import ShardLifecycle
from gateway.sharded_stream import ShardedStream
from gateway.slots import shard_of_group
from gateway.storage import OnDone
from gateway.streams import Item, RunSink
from gateway.topics.manager import Topic, TopicManager

__all__ = ["NO_EXPIRY", "UNKNOWN_EPOCH", "Commit", "Cursor", "CursorManager", "Move"]

CURSORS_TOPIC: Final = "__cursors"
REMOVED_PER_PUT_MAX: Final = 1_000


_log = structlog.get_logger()


OnMoved = Callable[[GroupName, Sequence[Move]], None]


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
        self._committed: set[UUID] = set()  # topics with commits since the start
        self.pending = PendingOffsets(config)
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
        gone: list[Item] = []
        for key, value in self.stream.items_of(shards):
            is_pending = key.startswith(PENDING_KEY)
            if not is_pending and not key.startswith(CURSOR_KEY):
                continue
            place = parse_pending_key(key)[0] if is_pending else key
            if not self._is_topic(UUID(bytes=uuid_of_key(place))):
                gone.append((key, None))
            elif is_pending:
                self.pending.apply([(key, value)])
            else:
                group, _ = parse_group_key(key, len(CURSOR_KEY))
                self._keys.setdefault(group, set()).add(key)
        for start in range(0, len(gone), REMOVED_PER_PUT_MAX):
            self.stream.put(gone[start : start + REMOVED_PER_PUT_MAX], _log_failure)

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: each commit is with the coalescer already."""

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        count = self._shards.shard_count
        for group in [one for one in self._keys if shard_of_group(*one, count) in shards]:
            del self._keys[group]
        self.pending.close_groups(lambda group: shard_of_group(*group, count) in shards)
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
        items = self._encode(group, commits)
        superseded = self.pending.superseded([key for key, _ in items]) if self.pending else []

        def done(error: StorageUnavailable | None) -> None:
            if error is not None:
                self._forget_missing(group)
                self._follow_pending(superseded)
            else:
                self._tell(group, [Move(*commit[:3]) for commit in commits])
            on_done(error)

        self.stream.put([*items, *superseded], done)
        self.pending.apply(superseded)
        keys = self._keys.get(group)
        if keys is None:
            keys = self._keys[group] = set()
        keys.update(key for key, _ in items)
        self.commits += len(items)

    def _encode(self, group: GroupName, commits: Sequence[Commit]) -> list[tuple[bytes, bytes]]:
        """Return the keys and values of positions that are committed now."""
        prefix = CURSOR_KEY + group_key(group)
        now_unix_ms = self._clock.unix_ms()
        items = []
        for commit in commits:
            self._committed.add(commit.topic_uuid)
            key = prefix + encode_where(commit.topic_uuid, commit.number)
            items.append((key, encode_cursor(commit, now_unix_ms)))
        return items

    def _tell(self, group: GroupName, moves: Sequence[Move]) -> None:
        watcher = self.watchers.get(group)
        if watcher is not None:
            watcher(group, moves)

    # --- in transactions

    def commit_pending(
        self, group: GroupName, producer_id: int, commits: Sequence[Commit], on_done: OnDone
    ) -> None:
        """Store positions that a producer's transaction commits, if it does; see ``commit``.

        Errors: ``CoordinatorLoading``; ``Overloaded``, see ``PendingOffsets.check_room``.
        """
        self.check_loaded()
        encoded = self._encode(group, commits)
        self.pending.check_room(producer_id, encoded)
        items: list[Item] = [(pending_key(key, producer_id), value) for key, value in encoded]

        def done(error: StorageUnavailable | None) -> None:
            if error is not None:
                self._follow_pending(items)
            on_done(error)

        self.stream.put(items, done)
        self.pending.apply(items)

    def check_present(self, groups: Iterable[GroupName]) -> None:
        """Check that pending positions of groups are here.

        Error: ``NotLeader`` for a group that is another node's now, or is being loaded.
        """
        for group in groups:
            if not self._shards.is_open(shard_of_group(*group, self._shards.shard_count)):
                raise NotLeader(f"group {group.name[:80]!r} has moved to another node")

    def end_pending(
        self, producer_id: int, groups: Sequence[GroupName], sink: RunSink, *, is_commit: bool
    ) -> None:
        """Commit or drop a transaction's positions in some groups, in the append of ``sink``.

        ``check_present`` comes first.
        """
        ended = self.pending.ended(producer_id, set(groups), is_commit=is_commit)
        if not ended.items:
            return
        by_group: dict[GroupName, list[bytes]] = {}
        for key, _ in ended.committed:
            group, _ = parse_group_key(key, len(CURSOR_KEY))
            by_group.setdefault(group, []).append(key)

        def done(error: StorageUnavailable | None) -> None:
            for group, keys in by_group.items():
                if error is not None:
                    self._forget_missing(group)
                elif group in self.watchers:
                    moved = [Move(*cursor[:3]) for cursor in self.fetch_keys(keys)]
                    self._tell(group, moved)
            if error is not None:
                self._follow_pending(ended.items)

        self.stream.flush()  # what is gathered lies before
        self.stream.put(ended.items, done, coalescer=sink)
        self.pending.apply(ended.items)
        for group, keys in by_group.items():
            self._keys.setdefault(group, set()).update(keys)
        self.commits += len(ended.committed)

    def is_unstable(self, group: GroupName, topic_uuid: UUID, number: int) -> bool:
        """Return whether an open transaction may change a position of the group (KIP-447)."""
        if not self.pending:
            return False
        key = CURSOR_KEY + group_key(group) + encode_where(topic_uuid, number)
        return self.pending.is_unstable(key)

    def _follow_pending(self, items: Sequence[Item]) -> None:
        """Make pending positions those of the stream, after items were refused."""
        self.pending.apply([(key, self.stream.get(key)) for key, _ in items])

    # --- reading

    def fetch(self, group: GroupName, topic_uuid: UUID, number: int) -> Cursor | None:
        """Return a position, or None. Error: ``CoordinatorLoading``."""
        self.check_loaded()
        key = CURSOR_KEY + group_key(group) + encode_where(topic_uuid, number)
        value = self.stream.get(key)
        return None if value is None else decode_cursor(key, value)

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
                cursors.append(decode_cursor(key, value))
        return cursors

    def delete(
        self, group: GroupName, partitions: Iterable[tuple[UUID, int]], on_done: OnDone
    ) -> None:
        """Remove positions of one group; ``on_done`` runs later."""
        self.check_loaded()
        prefix = CURSOR_KEY + group_key(group)
        keys = [prefix + encode_where(uuid, number) for uuid, number in partitions]
        self._remove(group, keys, (), on_done)

    def delete_group(
        self, group: GroupName, other_keys: Sequence[bytes], on_done: OnDone
    ) -> None:
        """Remove all positions of a group, and ``other_keys`` of the stream with them."""
        self.check_loaded()
        keys = {*self._keys.get(group, ()), *self.pending.places_of(group)}
        self._remove(group, list(keys), other_keys, on_done)

    def on_topic_deleted(self, topic: Topic) -> None:
        """Remove the positions in a deleted topic; a hook of the ``TopicManager``."""
        is_untouched = topic.is_transient and topic.uuid not in self._committed
        self._committed.discard(topic.uuid)
        if is_untouched or not self.stream.is_loaded:
            return
        for group in {*self._keys, *self.pending.groups()}:
            keys = {*self._keys.get(group, ()), *self.pending.places_of(group)}
            gone = [key for key in keys if uuid_of_key(key) == topic.uuid.bytes]
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
        pending = self.pending.removed(keys) if self.pending else []

        def done(error: StorageUnavailable | None) -> None:
            if error is not None:  # They are in the stream again.
                self._follow_pending(pending)
                back = [key for key in keys if self.stream.get(key) is not None]
                if back:
                    self._keys.setdefault(group, set()).update(back)
            else:
                self._tell(group, [removal_of(key) for key in keys])
            on_done(error)

        self.stream.put([*[(key, None) for key in (*keys, *other_keys)], *pending], done)
        self.pending.apply(pending)
        present.difference_update(keys)
        if not present:
            self._keys.pop(group, None)

    def _forget_missing(self, group: GroupName) -> None:
        """Drop the positions of a refused commit."""
        keys = self._keys.get(group, set())
        keys.intersection_update([key for key in keys if self.stream.get(key) is not None])
        if not keys:
            self._keys.pop(group, None)


def _log_failure(error: StorageUnavailable | None) -> None:
    if error is not None:
        _log.warning("positions in a deleted topic not removed", error=str(error))
