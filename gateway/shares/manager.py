"""Share groups of a node (KIP-932): coordination by heartbeats, messages by queues.

A share group is a group of members in the shard of its name, and on each topic that they read a
queue of the group's name, which is made before a member hears of its partitions. Positions,
locks and counts of deliveries are those of the queue, in the shard of each partition.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from features.queue.retrying import DeliveryEnd
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import GroupsConfig
from gateway.errors import (
    CoordinatorLoading,
    GatewayError,
    InvalidRequest,
    NotLeader,
    TopicNotFound,
    as_value,
)
from gateway.futures import await_done
from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.consumer.manager import OnAnswered
from gateway.groups.consumer.model import Heartbeat, HeartbeatResult
from gateway.groups.cursors import CursorManager
from gateway.groups.directory import check_share_name
from gateway.groups.manager import GroupManager
from gateway.groups.model import GroupName
from gateway.queues.lanes import QueueLane
from gateway.queues.manager import QueueExists, QueueManager
from gateway.queues.queue import Queue
from gateway.shares.group_configs import (
    EARLIEST,
    GroupConfigs,
    ShareSettings,
    check_changes,
    duration_ms,
    settings_of,
)
from gateway.shares.group_queues import (
    SHARE_ATTRIBUTE,
    check_idle,
    delete_share_group,
    find_share_group,
    forget_share_topic,
    queues_of,
)
from gateway.shares.partition import SharePartition
from gateway.shares.waiting import LaneWaiters, OnReady
from gateway.topics.manager import Topic, TopicManager


class ShareGroups:
    """Share groups, their queues and their configs. Loop only."""

    def __init__(  # noqa: PLR0913, PLR0917 - the kernel's parts
        self,
        groups: GroupManager,
        cursors: CursorManager,
        queues: QueueManager,
        topics: TopicManager,
        broker: Broker,
        clock: Clock,
        config: GroupsConfig,
    ) -> None:
        self._groups = groups
        self._queues = queues
        self._topics = topics
        self._broker = broker
        self._clock = clock
        self.configs = GroupConfigs(cursors, groups_max=config.groups_max)
        self._waiters: dict[QueueLane, LaneWaiters] = {}
        self._tasks: set[asyncio.Task[GatewayError | None]] = set()

    async def close(self) -> None:
        """End what is under way; its heartbeats are not answered."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- members

    def heartbeat(self, name: GroupName, beat: Heartbeat, on_answered: OnAnswered) -> None:
        """Answer a member, once the queues of its partitions are there.

        ``on_answered`` runs once, maybe before this returns. Errors come by it: those of
        ``GroupManager.share_heartbeat`` and of ``QueueManager.create``.
        """
        self._groups.share_heartbeat(name, beat, partial(self._answer, name, on_answered))

    def _answer(
        self, name: GroupName, on_answered: OnAnswered, result: HeartbeatResult | GatewayError
    ) -> None:
        missing = []
        if not isinstance(result, GatewayError) and result.assignment:
            for uuid in {topic for topic, _ in result.assignment}:
                topic = self._topics.by_uuid(uuid)
                if topic is not None and self._queues.find(topic.name, name.name) is None:
                    missing.append(topic)
        if not missing:
            on_answered(result)
            return
        task = asyncio.get_running_loop().create_task(self._prepare(name, missing))
        self._tasks.add(task)
        task.add_done_callback(partial(self._prepared, on_answered, result))

    def _prepared(
        self,
        on_answered: OnAnswered,
        result: HeartbeatResult | GatewayError,
        task: asyncio.Task[GatewayError | None],
    ) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            on_answered(task.result() or result)

    async def _prepare(self, name: GroupName, topics: Sequence[Topic]) -> GatewayError | None:
        """Make the queues of a group on some topics; return the first error."""
        try:
            for topic in topics:
                await self._make(name, topic)
        except NotLeader as error:
            return self._refusal(error.owner_id)
        except GatewayError as error:
            return as_value(error)
        return None

    def _refusal(self, owner_id: int) -> GatewayError:
        """Return the error for a topic of which another node has a partition, or soon this one."""
        if owner_id in {-1, self._broker.placement.node_id}:
            return CoordinatorLoading("a partition of the topic is being loaded")
        return InvalidRequest("A share group reads topics that lie on one node as a whole.")

    async def _make(self, name: GroupName, topic: Topic) -> None:
        settings = self.settings(name)
        age_ms = duration_ms(settings.offset_reset)
        try:
            queue = await self._queues.create(
                topic,
                settings.queue,
                group=name.name,
                attributes={SHARE_ATTRIBUTE: "1"},
                from_start=settings.offset_reset == EARLIEST or age_ms > 0,
            )
        except (QueueExists, TopicNotFound):
            return  # Another heartbeat was faster, or the topic was deleted meanwhile.
        if age_ms:
            await self._begin_at(queue, self._clock.unix_ms() - age_ms)

    async def _begin_at(self, queue: Queue, timestamp_unix_ms: int) -> None:
        """Let a new queue begin with the first messages at or after a time."""
        for lane in queue.lanes:
            found = await self._broker.offset_for_time(lane.partition, timestamp_unix_ms)
            offset = lane.partition.stable_end if found is None else found[0]
            await await_done(partial(lane.seek, offset))

    # --- messages

    def partition(self, name: GroupName, topic: Topic, number: int) -> SharePartition:
        """Return a partition of a group.

        Errors: ``TopicNotFound``, also for a topic that the group does not read; ``NotLeader``;
        ``InvalidGroupId`` as ``check_share_name``.
        """
        check_share_name(name)
        self._broker.partition(topic, number)
        queue = self._queues.find(topic.name, name.name)
        if queue is not None:
            for lane in queue.lanes:
                if lane.number == number and lane.is_open:
                    return SharePartition(queue, lane, self._clock, queue.counters)
        msg = f"share group {name.name[:80]!r} does not read {topic.name.name} {number}"
        raise TopicNotFound(msg)

    def new_holder(self) -> int:
        """Return the id of a holder of messages, for a session."""
        return self._queues.new_holder()

    def end_holder(self, name: GroupName, holder: int, topics: Sequence[Topic]) -> None:
        """Give back what a holder has of some topics; the attempt does not count."""
        for topic in topics:
            queue = self._queues.find(topic.name, name.name)
            if queue is not None:
                queue.end_holder(holder, ending=DeliveryEnd.UNSEEN)

    def wait(self, partition: SharePartition, on_ready: OnReady) -> None:
        """Call ``on_ready`` once when the partition may have messages."""
        lane = partition.lane
        waiters = self._waiters.get(lane)
        if waiters is None:
            waiters = LaneWaiters(lane, asyncio.get_running_loop())
            self._waiters[lane] = waiters
        waiters.add(on_ready)

    def leave(self, partition: SharePartition, on_ready: OnReady) -> None:
        """Stop waiting."""
        waiters = self._waiters.get(partition.lane)
        if waiters is not None:
            waiters.discard(on_ready)
            if not waiters:
                del self._waiters[partition.lane]

    # --- administration

    def find(self, name: GroupName) -> ConsumerGroup | None:
        """Return a share group. Errors: as ``GroupManager``."""
        return find_share_group(self._groups, name)

    def queues_of(self, name: GroupName) -> list[Queue]:
        """Return the queues that the group has made, sorted by topic."""
        return queues_of(self._queues, name)

    def check_idle(self, name: GroupName) -> ConsumerGroup:
        """Return a share group without members. Errors: ``GroupNotFound``, ``GroupNotEmpty``."""
        return check_idle(self._groups, name)

    async def delete(self, name: GroupName) -> None:
        """Delete a group without members. Errors: those of ``delete_share_group``."""
        await delete_share_group(self._groups, self._queues, name)

    async def delete_offsets(self, name: GroupName, topic: Topic) -> None:
        """Forget the group's positions in a topic. Errors: those of ``forget_share_topic``."""
        await forget_share_topic(self._groups, self._queues, name, topic)

    async def alter_offset(
        self, name: GroupName, topic: Topic, number: int, offset: int
    ) -> None:
        """Set the group's position in a partition; its queue is made if it is missing.

        Errors: those of ``check_idle``, ``partition`` and ``QueueManager.create``.
        """
        self.check_idle(name)
        check_share_name(name)
        queue = self._queues.find(topic.name, name.name)
        if queue is None:
            await self._make(name, topic)
        elif SHARE_ATTRIBUTE not in queue.attributes:
            msg = f"{topic.name.name} has a queue of that name that no share group has made"
            raise TopicNotFound(msg)
        partition = self.partition(name, topic, number)
        await await_done(partial(partition.lane.seek, offset))

    def settings(self, name: GroupName) -> ShareSettings:
        """Return the effective configs of a group."""
        return self.configs.settings(name)

    async def alter_configs(self, name: GroupName, changes: Mapping[str, str | None]) -> None:
        """Set configs of a group, present or not; None restores a default.

        Errors: ``InvalidConfig``; ``NotCoordinator`` and others of ``GroupManager``;
        ``StorageUnavailable``.
        """
        check_changes(changes)
        self._groups.has(name)
        values = {**self.configs.get(name), **changes}
        kept = {key: value for key, value in values.items() if value is not None}
        await await_done(partial(self.configs.put, name, kept))
        settings = settings_of(kept).queue
        for queue in self.queues_of(name):
            if queue.settings != settings:
                await self._queues.alter(queue, settings=settings)
