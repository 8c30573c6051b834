"""All feeds of the node: one for each partition of each topic that a route leads to."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping

import structlog

from adapters.mqtt.reading.catch_up import CatchUp, Matcher
from adapters.mqtt.reading.feed import Feed, Live
from adapters.mqtt.reading.pacing import Pace
from adapters.mqtt.reading.slow_receivers import LagBounds
from adapters.mqtt.route_config import RouteConfig
from adapters.mqtt.routes import RoutedTopic, Routes
from adapters.mqtt.wire import PublishRun
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.errors import GatewayError, StorageUnavailable, TopicExists, TopicNotFound
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.partition import Partition
from gateway.placement import shard_of
from gateway.slots import partition_for_key
from gateway.topics.manager import Topic, TopicManager

log = structlog.get_logger()


class FeedSet:
    """Makes the topics of the routes when they are missing, and follows their partitions."""

    def __init__(  # noqa: PLR0913, PLR0917 - its surroundings, made once
        self,
        broker: Broker,
        topics: TopicManager,
        routes: Routes,
        live: Live,
        matcher: Matcher,
        clock: Clock,
        *,
        message_bytes: int,
        bounds: LagBounds,
    ) -> None:
        """``message_bytes``: what a topic made here takes in one message at least.

        ``bounds``: how far back in a feed a receiver of QoS 0 may be.
        """
        self.skipped: Counter[str] = Counter()  # records that are no MQTT messages, by why
        self.on_new_foreign: Callable[[PublishRun], None] | None = None
        self._broker = broker
        self._topics = topics
        self._live = live
        self._matcher = matcher
        self._message_bytes = message_bytes
        self._clock = clock
        self._bounds = bounds
        self._all_routes = routes
        self._routes = dict(routes.log_topics())
        self._by_partition: dict[int, Feed] = {}
        self._catch_ups: dict[int, CatchUp] = {}
        self._pace = Pace()  # of all that catch up together
        self._revision = -1
        self.open_shards: set[int] = set()
        self.away: dict[int, int] = {}
        """Partitions that this node does not serve, by id: up to where it has delivered them.

        They are another node's, or not all of their shard's state is open.
        """
        self.before_return: Callable[[Mapping[int, int]], Awaitable[None]] | None = None
        """Called with entries of ``away`` whose partitions are about to be followed again."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Make what is missing and follow all. Errors: those of ``TopicManager.create``."""
        self.open_shards.update(self._broker.shards.owned())
        for name, route in self._routes.items():
            await self._ensure(name, route)
        self._topics.on_changed.append(self._on_changed)
        self._topics.on_deleted.append(self._on_deleted)
        self._broker.placement.on_change.append(self._follow_owners)
        self._broker.shards.on_open.append(self._serve)
        self._broker.shards.register(self)

    def stop(self) -> None:
        """Follow no more."""
        self._broker.shards.on_open.remove(self._serve)
        self._broker.shards.unregister(self)
        self._topics.on_changed.remove(self._on_changed)
        self._topics.on_deleted.remove(self._on_deleted)
        self._broker.placement.on_change.remove(self._follow_owners)
        for task in self._tasks:
            task.cancel()
        for partition_id in tuple(self._by_partition):
            self._drop(partition_id)

    def __iter__(self) -> Iterator[Feed]:
        return iter(self._by_partition.values())

    def get(self, partition_id: int) -> Feed | None:
        """Return the feed of a partition."""
        return self._by_partition.get(partition_id)

    def catch_up(self, partition_id: int) -> CatchUp | None:
        """Return who reads the log of a partition for those who are behind."""
        return self._catch_ups.get(partition_id)

    def live_offsets(self) -> dict[int, int]:
        """Return, by partition id, the first offset that has not been handed out.

        Of a partition of another node: not handed out by this one.
        """
        return {
            **self.away,
            **{feed.partition_id: feed.live_offset for feed in self._by_partition.values()},
        }

    def end_offsets(self) -> dict[int, int]:
        """Return ``live_offsets``, but of other nodes' partitions the end that the storage knows.

        There a subscription of now begins.
        """
        return {**self.live_offsets(), **self.away_ends()}

    def away_ends(self) -> dict[int, int]:
        """Return the ends of other nodes' partitions by id, as the storage knows them."""
        stored = self._broker.stored_bounds
        return {partition_id: stored(partition_id).end for partition_id in self.away}

    def away_start(self, partition_id: int) -> int:
        """Return the log start of another node's partition, as the storage knows it."""
        return self._broker.stored_bounds(partition_id).start

    def push_held(self) -> None:
        """Hand out now what the loop's next turn would."""
        for feed in tuple(self._by_partition.values()):
            feed.push_held()

    @property
    def slow_receiver_count(self) -> int:
        """Receivers that are behind at QoS 0, one for each partition."""
        return sum(len(feed.slow_receivers.members) for feed in self)

    def settle_live(self) -> None:
        """Note that the log refused what left early: see what is still on its way into it."""
        issued = {
            feed: feed.slow_receivers.issued for feed in self if feed.slow_receivers.members
        }
        if not issued:
            return

        def settle(_error: StorageUnavailable | None) -> None:
            for feed, number in issued.items():
                feed.push_held()
                feed.slow_receivers.settle(number)

        self._broker.after_pending(settle)

    @property
    def records_scanned(self) -> int:
        """Records read for those who were behind."""
        return sum(catch_up.records_scanned for catch_up in self._catch_ups.values())

    def target(self, routed: RoutedTopic) -> Partition:
        """Return the partition of a message.

        Errors: ``TopicNotFound``, for a moment only; ``NotLeader`` for another node's.
        """
        if self._revision != self._topics.revision:
            self._revision = self._topics.revision
            self._all_routes.forget()
            routed.target = None
        partition = routed.target
        if partition is None:
            partition = routed.target = self._broker.partition(*self._place(routed))
        return partition

    def shard_of(self, routed: RoutedTopic) -> int:
        """Return the shard of a message's partition, whoever owns it. Error: ``TopicNotFound``."""
        return shard_of(*self._place(routed), self._broker.placement)

    def _place(self, routed: RoutedTopic) -> tuple[Topic, int]:
        topic = self._topics.get(TopicName(DEFAULT_NAMESPACE, routed.log_topic))
        return topic, partition_for_key(routed.key, len(topic.partition_ids))

    async def _ensure(self, name: str, route: RouteConfig) -> None:
        topic_name = TopicName(DEFAULT_NAMESPACE, name)
        topic = self._topics.find(topic_name)
        if topic is None:
            try:
                topic = await self._topics.create(
                    topic_name, partitions=route.partitions, configs=self._configs()
                )
            except TopicExists:
                topic = self._topics.get(topic_name)
        if topic.settings.message_bytes_max < self._message_bytes:
            log.warning(
                "larger packets are refused: their topic takes less than packet_bytes_max",
                topic=name,
                message_bytes_max=topic.settings.message_bytes_max,
                wanted=self._message_bytes,
            )
        self._follow(topic)

    def _configs(self) -> dict[str, str]:
        """Return topic configs that take every message that may be published.

        A 3.x client has no packet that would refuse one.
        """
        if self._topics.default_settings.message_bytes_max >= self._message_bytes:
            return {}
        return {"max.message.bytes": str(self._message_bytes)}

    def _follow(self, topic: Topic) -> None:
        route = self._routes[topic.name.name]
        for number, partition_id in enumerate(topic.partition_ids):
            if partition_id in self._by_partition:
                continue
            if not self._is_open(topic, number):
                end = self._broker.stored_bounds(partition_id).end
                self.away.setdefault(partition_id, end)
                continue
            partition = self._broker.loaded_partition(topic, number)
            feed = Feed(
                self._broker,
                partition,
                route,
                self._live,
                self.skipped,
                self._clock,
                self._bounds,
            )
            feed.on_new_foreign = self._on_foreign
            self._by_partition[partition_id] = feed
            self._catch_ups[partition_id] = CatchUp(feed, self._matcher, self._pace)

    def _is_open(self, topic: Topic, number: int) -> bool:
        placement = self._broker.placement
        shard = shard_of(topic, number, placement)
        return shard in self.open_shards and placement.owns(shard)

    def _follow_owners(self, _shards: Collection[int]) -> None:
        self._revision = -1  # targets are looked up again

    def _serve(self, shards: Collection[int]) -> None:
        """All state of shards is open: who is behind in their partitions may read."""
        for feed in self:
            if feed.partition.shard in shards:
                self.away.pop(feed.partition_id, None)

    def _present(self) -> Iterator[Topic]:
        for name in self._routes:
            topic = self._topics.find(TopicName(DEFAULT_NAMESPACE, name))
            if topic is not None:
                yield topic

    # --- ShardState

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: follow the partitions that came.

        First, sessions that had read them note their offset: the former owner's readers may have
        gone on, and what it appended meanwhile is read from the log.
        """
        returning = {
            partition_id: self.away[partition_id]
            for topic in self._present()
            for number, partition_id in enumerate(topic.partition_ids)
            if partition_id in self.away
            and shard_of(topic, number, self._broker.placement) in shards
        }
        if returning and self.before_return is not None:
            await self.before_return(returning)
        self.open_shards.update(shards)
        self._revision = -1
        for topic in self._present():
            self._follow(topic)

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: who begins to read from now on is another node's reader.

        Those that are live get what is under way, until the feed is closed.
        """
        for feed in self:
            if feed.partition.shard in shards:
                self.away[feed.partition_id] = feed.live_offset

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: hand out what was under way, then drop the feeds."""
        self.open_shards.difference_update(shards)
        for feed in [one for one in self if one.partition.shard in shards]:
            feed.push_held()  # the next owner's feed begins behind it
            self.away[feed.partition_id] = feed.live_offset
            self._drop(feed.partition_id)

    def _on_foreign(self, run: PublishRun) -> None:
        if self.on_new_foreign is not None:
            self.on_new_foreign(run)

    def _on_changed(self, topic: Topic) -> None:
        if topic.name.namespace == DEFAULT_NAMESPACE and topic.name.name in self._routes:
            self._follow(topic)

    def _on_deleted(self, topic: Topic) -> None:
        """Create a deleted topic again, empty: MQTT clients publish to it."""
        for partition_id in topic.partition_ids:
            self._drop(partition_id)
            self.away.pop(partition_id, None)
        name = topic.name.name
        if topic.name.namespace == DEFAULT_NAMESPACE and name in self._routes:
            task = asyncio.get_running_loop().create_task(self._make_again(name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _make_again(self, name: str) -> None:
        try:
            await self._ensure(name, self._routes[name])
        except (GatewayError, TopicNotFound) as error:
            log.warning("topic of a route not made", topic=name, error=str(error))

    def _drop(self, partition_id: int) -> None:
        feed = self._by_partition.pop(partition_id, None)
        if feed is not None:
            feed.close()
            self._catch_ups.pop(partition_id).close()
