"""Manager of topics and their configs: in memory, after they are durable in SQL.

All state belongs to the event loop's thread. A change is one SQL transaction in a worker
thread; changes are made one at a time, in order of arrival, and show here (``revision`` grows)
once they are durable. A caller that goes away meanwhile does not undo its change.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID, uuid4

from gateway.clock import Clock
from gateway.config.settings import TopicDefaults
from gateway.contributions import Contributions
from gateway.errors import InvalidPartitions, TopicExists, TopicNotFound
from gateway.metadata.change_model import ChangeKind
from gateway.metadata.changes import Changes
from gateway.metadata.store import MetadataStore, PartitionRange, TopicRow
from gateway.model import DEFAULT_NAMESPACE, PartitionIdentity, TopicName
from gateway.topics.checks import (
    check_changeable,
    check_default,
    check_memory,
    check_new_name,
    check_not_internal,
    check_room,
)
from gateway.topics.configs import (
    ConfigEntry,
    TopicSettings,
    check_configs,
    describe,
    merge_configs,
    parse_settings,
)
from gateway.topics.index import Topic, TopicIndex
from gateway.topics.stored_topics import forget_deleted, reload_topics

__all__ = ["Topic", "TopicManager", "TopicSettings"]

TopicHook = Callable[[Topic], None]


class TopicManager:
    """Finds topics in memory, and changes them durably.

    ``on_changed`` hooks run after a topic was made or changed, ``on_deleted`` hooks after it
    has gone from here; the broker then deletes its partitions from the storage, and calls
    ``forget`` when that is logged. ``nodes`` bounds what ``min.insync.replicas`` may ask for,
    ``can_compact`` says whether the storage can compact topics. ``contributions`` are the
    adapters' internal topics and topic configs.
    Errors of all changes, beside their own: ``StorageUnavailable``, ``Overloaded``.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        *,
        defaults: TopicDefaults,
        clock: Clock,
        nodes: int = 1,
        can_compact: bool = True,
        contributions: Contributions | None = None,
    ) -> None:
        self.revision = 0
        self.on_changed: list[TopicHook] = []
        self.on_deleted: list[TopicHook] = []
        self._metadata = metadata
        self._defaults = defaults
        self._contributions = contributions or Contributions()
        self._specs = self._contributions.specs
        self._default_configs = check_configs(
            defaults.configs, self._specs, nodes=nodes, can_compact=can_compact
        )
        self._default_settings = self._parse({})
        check_default(self._default_settings)
        self._clock = clock
        self._nodes = nodes
        self._can_compact = can_compact
        self._index = TopicIndex()
        self._changes = Changes(metadata.feed)
        self._creating: set[TopicName] = set()  # that are being stored
        self._auto_creating: dict[TopicName, asyncio.Task[Topic]] = {}

    async def load(self) -> None:
        """Load all topics from the store; once, before any other call."""
        for row in await self._metadata.topics():
            self._add(row)
        for gone in await self._metadata.deleted_ranges():
            self._index.add_removed(gone.range, gone.topic_uuid, gone.topic)
        self._changes.follow(ChangeKind.TOPIC, partial(reload_topics, self, self._metadata))

    async def close(self) -> None:
        """Wait for running changes."""
        await self._changes.close()

    @property
    def partition_count(self) -> int:
        """Number of partitions of all topics."""
        return self._index.partition_count

    def find(self, name: TopicName) -> Topic | None:
        """Return the topic of that name."""
        return self._index.find(name)

    def get(self, name: TopicName) -> Topic:
        """Return the topic of that name. Errors: ``TopicNotFound``."""
        topic = self._index.find(name)
        if topic is None:
            msg = f"topic {name.name[:249]!r} is not there"
            raise TopicNotFound(msg)
        return topic

    def by_uuid(self, uuid: UUID) -> Topic | None:
        """Return the topic of that uuid."""
        return self._index.by_uuid(uuid)

    def topics(
        self, namespace: str = DEFAULT_NAMESPACE, *, include_internal: bool = False
    ) -> list[Topic]:
        """Return a namespace's topics, sorted by name."""
        topics = self._index.sorted(namespace)
        return [topic for topic in topics if include_internal or not topic.is_internal]

    def everything(self) -> list[Topic]:
        """Return all topics of all namespaces, internal ones too, in no order."""
        return self._index.everything()

    def identify(self, partition_id: int) -> PartitionIdentity:
        """Return the identity of a present or just deleted partition. Errors: ``TopicNotFound``."""
        return self._index.identify(partition_id)

    @property
    def default_settings(self) -> TopicSettings:
        """Settings of a topic without configs."""
        return self._default_settings

    def describe_configs(self, topic: Topic) -> list[ConfigEntry]:
        """Return all configs by name, with their values for ``topic``."""
        return describe(self._default_configs, topic.configs, self._specs)

    def pending_deletes(self) -> dict[UUID, list[int]]:
        """Return the partition ids, by topic uuid, that the storage may still have to delete.

        At a start, they are what a crash left between a delete here and the one in the storage.
        """
        return self._index.removed_ids()

    def forget(self, uuid: UUID) -> None:
        """Forget a deleted topic, after the storage has logged the deletion of its partitions."""
        if self._index.forget(uuid):
            self._changes.start(forget_deleted, self._metadata, uuid)

    async def create(
        self,
        name: TopicName,
        *,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        internal: bool = False,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic; of concurrent callers for one name, one succeeds.

        ``partitions`` and ``configs`` left out are the node's defaults; internal topics may be
        compacted, are hidden, and are not counted in the bound on partitions. With
        ``validate_only`` the topic that is returned is not there. Errors: ``TopicExists``,
        ``InvalidTopicName`` (also when Kafka's metrics could not tell it from another's),
        ``InvalidPartitions``, ``InvalidConfig``.
        """
        return await self._changes.make(
            self._create, name, partitions, configs or {}, internal, validate_only
        )

    async def auto_create(self, name: TopicName) -> Topic:
        """Return the topic of that name, created if allowed.

        Concurrent callers share one creation. Errors: ``TopicNotFound`` when `auto_create` is
        off, ``InvalidTopicName``, ``InvalidPartitions``.
        """
        topic = self._index.find(name)
        if topic is not None:
            return topic
        if not self._defaults.auto_create:
            return self.get(name)
        task = self._auto_creating.get(name)
        if task is None:
            task = self._changes.start(self._create_or_get, name)
            self._auto_creating[name] = task
            task.add_done_callback(lambda _: self._auto_creating.pop(name, None))
        return await asyncio.shield(task)

    async def delete(self, name: TopicName, *, internal: bool = False) -> None:
        """Remove a topic. Errors: ``TopicNotFound``, ``PolicyViolation`` for internal ones."""
        await self._changes.make(self._delete, name, internal=internal)

    async def delete_within(self, name: TopicName) -> None:
        """Do as ``delete`` within another change. Errors: ``MetadataChanged``, too."""
        await self._changes.in_turn(self._delete, name, internal=False)

    async def add_partitions(
        self,
        name: TopicName,
        total_count: int,
        *,
        validate_only: bool = False,
        internal: bool = False,
    ) -> Topic:
        """Add partitions to a topic, up to ``total_count``.

        Errors: ``TopicNotFound``, ``InvalidPartitions`` (not more than before, or too many),
        ``PolicyViolation`` for internal topics, unless ``internal``.
        """
        return await self._changes.make(
            self._add_partitions, name, total_count, validate_only, internal
        )

    async def alter_configs(
        self,
        name: TopicName,
        changes: Mapping[str, str | None],
        *,
        replace: bool = False,
        validate_only: bool = False,
    ) -> Topic:
        """Set configs; None restores the node's default.

        With ``replace``, all that ``changes`` does not name go back to their defaults too.
        Errors: ``TopicNotFound``, ``InvalidConfig``, ``PolicyViolation`` for internal topics.
        """
        return await self._changes.make(
            self._alter_configs, name, changes, replace, validate_only
        )

    async def _create(
        self,
        name: TopicName,
        partitions: int | None,
        configs: Mapping[str, str],
        internal: bool,  # noqa: FBT001 - from create's keyword
        validate_only: bool,  # noqa: FBT001
    ) -> Topic:
        check_new_name(self._index, self._contributions, name, internal=internal)
        count = self._defaults.partitions if partitions is None else partitions
        if count < 1:
            msg = f"a topic has at least 1 partition, not {count}"
            raise InvalidPartitions(msg)
        if not internal:
            check_room(self._index, self._defaults.partitions_max, count)
        checked = check_configs(
            configs, self._specs, nodes=self._nodes, can_compact=self._can_compact or internal
        )
        check_memory(self.settings_of(checked))
        row = TopicRow(uuid4(), name, internal, self._clock.unix_ms(), (), checked)
        if validate_only:
            topic = self._make(row)
            topic.extend(PartitionRange(0, 0, count))
            return topic
        self._creating.add(name)
        try:
            stored = await self._metadata.create_topic(row, partitions=count)
        finally:
            self._creating.discard(name)
        topic = self._add(stored)
        self._announce(topic)
        return topic

    async def _create_or_get(self, name: TopicName) -> Topic:
        topic = self._index.find(name)  # somebody may have made it meanwhile
        return topic or await self._create(name, None, {}, internal=False, validate_only=False)

    async def _delete(self, name: TopicName, *, internal: bool) -> None:
        topic = self.get(name)
        if not internal:
            check_not_internal(topic)
        if not topic.is_transient:
            await self._metadata.delete_topic(topic.uuid, deleted_unix_ms=self._clock.unix_ms())
        self.remove(topic)

    def remove(self, topic: Topic) -> None:
        """Remove a topic that the metadata store does not have any more, or never had."""
        self._index.remove(topic)
        self.revision += 1
        for hook in self.on_deleted:
            hook(topic)

    async def _add_partitions(
        self,
        name: TopicName,
        total_count: int,
        validate_only: bool,  # noqa: FBT001
        internal: bool,  # noqa: FBT001
    ) -> Topic:
        topic = self.get(name)
        present = len(topic.partition_ids)
        if not internal:
            check_changeable(topic)
            check_room(self._index, self._defaults.partitions_max, total_count - present)
        if total_count <= present:
            msg = f"topic {name.name} has {present} partitions; {total_count} is not more"
            raise InvalidPartitions(msg)
        if not validate_only:
            added = await self._metadata.add_partitions(
                topic.uuid, first_number=present, count=total_count - present
            )
            self._index.add_partitions(topic, added)
            self._announce(topic)
        return topic

    async def _alter_configs(
        self,
        name: TopicName,
        changes: Mapping[str, str | None],
        replace: bool,  # noqa: FBT001
        validate_only: bool,  # noqa: FBT001
    ) -> Topic:
        topic = self.get(name)
        check_changeable(topic)
        kept = {} if replace else topic.configs
        unknown, overrides = merge_configs(kept, changes, self._specs)
        checked = unknown | check_configs(
            overrides, self._specs, nodes=self._nodes, can_compact=self._can_compact
        )
        settings = self.settings_of(checked)
        check_memory(settings, topic)
        if not validate_only:
            await self._metadata.set_topic_configs(topic.uuid, checked)
            topic.configs = checked
            topic.settings = settings
            self._announce(topic)
        return topic

    def add_transient(self, topic: Topic, partition_id: int) -> None:
        """Add a topic of one partition that is not stored. Errors: those of ``create``."""
        name = topic.name
        if name in self._creating:
            raise TopicExists(f"topic {name.name} is being created")
        check_new_name(self._index, self._contributions, name, internal=False)
        check_room(self._index, self._defaults.partitions_max, 1)
        self._index.add(topic)
        self._index.add_partitions(topic, PartitionRange(0, partition_id, 1))
        self._announce(topic)

    def adopt(self, row: TopicRow) -> None:
        """Show a topic as another node has stored it, if it is not shown so."""
        topic = self._index.by_uuid(row.uuid)
        if topic is None:
            self._announce(self._add(row))
            return
        count = len(topic.partition_ids)
        added = [part for part in row.ranges if part.first_number >= count]
        for part in added:
            self._index.add_partitions(topic, part)
        if topic.configs != row.configs:
            topic.configs, topic.settings = row.configs, self.settings_of(row.configs)
        elif not added:
            return
        self._announce(topic)

    def _add(self, row: TopicRow) -> Topic:
        topic = self._make(row)
        self._index.add(topic)
        for part in row.ranges:
            self._index.add_partitions(topic, part)
        return topic

    def _make(self, row: TopicRow) -> Topic:
        return Topic(
            row.uuid,
            row.name,
            configs=row.configs,
            settings=self.settings_of(row.configs),
            is_internal=row.is_internal,
            created_unix_ms=row.created_unix_ms,
        )

    def settings_of(self, configs: Mapping[str, str]) -> TopicSettings:
        """Return the settings of a topic with checked configs."""
        if not configs:
            return self._default_settings  # one object for the many topics that set nothing
        return self._parse(configs)

    def _parse(self, configs: Mapping[str, str]) -> TopicSettings:
        return parse_settings(
            self._default_configs, configs, self._contributions.contributed_specs
        )

    def _announce(self, topic: Topic) -> None:
        self.revision += 1
        for hook in self.on_changed:
            hook(topic)
