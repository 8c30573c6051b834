"""One partition of a queue: the pure lane, with its journal, feeder, timer and hold."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import structlog

from features.queue.lane import Lane
from features.queue.model import NO_LIMIT, Dead, Effects, LapsedRange, Order, Policy
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import Coalescer
from gateway.config.metrics import MetricsConfig
from gateway.config.queues import QueueConfig
from gateway.deadlines import Deadlines
from gateway.errors import Overloaded, StorageUnavailable
from gateway.leaser import Leaser
from gateway.model import Record, TopicName
from gateway.partition import Partition
from gateway.queues.feeder import Feeder
from gateway.queues.journal import QueueJournal, lane_id
from gateway.queues.lease_ends import LeaseEnds
from gateway.queues.message_cache import MessageCache
from gateway.queues.model import EarlierDelay, QueueSettings
from gateway.queues.no_journal import LaneJournal, NoJournal
from gateway.queues.queue_counters import CountersByQueue, QueueCounters
from gateway.retention_holds import HolderKind
from gateway.storage import OnDone
from gateway.transfer.payload import Addressed
from gateway.transfer.transfers import Transfers

TICK_MESSAGES_MAX: Final = 1_000  # leases ended in one step of the loop
COLD_READS_MAX: Final = 64  # of the disk at a time, all queues; more wait

OnMoved = Callable[[StorageUnavailable | None], None]

_log = structlog.get_logger()


class DeadLetterTarget(Protocol):
    """Destination of a queue's dead letters."""

    def addressed(
        self, lane: "QueueLane", dead: Dead, body: Record, *, left_out: str = ""
    ) -> list[Addressed]:
        """Return the dead letter of a message for each of its partitions, checked.

        Without any it is dropped. ``left_out``: why what the message held is not in it, where that
        is so; see ``dead_letter_targets.reference``. Errors: as ``Coalescer.check``.
        """
        ...


class DeadLetterMover(Protocol):
    """Mover of a lane's dead messages; see ``gateway.queues.dead_letters``."""

    def move_dead(
        self, lane: "QueueLane", dead: list[Dead], on_moved: OnMoved | None = None
    ) -> None:
        """Move messages to the dead letters, later; ``on_moved`` runs when that has ended."""
        ...

    def is_there(self, name: TopicName) -> bool:
        """Return whether there is a topic of that name to move messages to."""
        ...

    def forget(self, lane: "QueueLane") -> None:
        """Forget the moves of a lane that are to be tried again: it has gone."""
        ...

    @property
    def is_routing(self) -> bool:
        """Whether exchanges are loaded: before, what goes to them is tried again."""
        ...

    def target(self, lane: "QueueLane") -> DeadLetterTarget | None:
        """Return where dead messages of a lane go, None: nowhere. Error: ``TopicNotFound``."""
        ...


class QueueContext:
    """Parts shared by all queues of a node."""

    def __init__(  # noqa: PLR0917 - the parts, in the order of their making
        self,
        broker: Broker,
        clock: Clock,
        config: QueueConfig,
        journal: QueueJournal,
        transfers: Transfers,
        metrics: MetricsConfig | None = None,
    ) -> None:
        self.broker = broker
        self.transfers = transfers
        self.leaser = Leaser(clock)  # rights of single active consumers
        self.lease_ends = LeaseEnds()
        self.clock = clock
        self.config = config
        self.journal = journal
        self.no_journal = NoJournal()
        self.loop = asyncio.get_running_loop()
        self.messages = Coalescer(broker)
        self.message_cache = MessageCache(broker, bytes_max=config.bodies_bytes_max)
        self.leases: Deadlines[QueueLane] = Deadlines(clock, QueueLane.tick)
        self.expiries: Deadlines[QueueLane] = Deadlines(clock, QueueLane.check_expiry)
        self.cold_reads = asyncio.Semaphore(COLD_READS_MAX)
        self.counters_by_queue = CountersByQueue(metrics or MetricsConfig())
        self.mover: DeadLetterMover
        # Lanes use the steady clock, timers the monotonic one; their difference is fixed.
        self.steady_ahead_ms = clock.steady_unix_ms() - clock.monotonic_ms()
        self.touched: set[QueueLane] = set()
        """Lanes whose floor may have moved."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def counters(self) -> QueueCounters:
        """Counts of all queues together."""
        return self.counters_by_queue.total()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a background task, which ends with the node."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def arm(self, lane: "QueueLane") -> None:
        """Call a lane's ``tick`` when its next lease or delay ends."""
        due_unix_ms = lane.lane.next_due_unix_ms
        if due_unix_ms is not None:
            self.leases.arm(lane, due_unix_ms - self.steady_ahead_ms)

    async def close(self) -> None:
        """End background tasks and timers."""
        self.leases.close()
        self.expiries.close()
        self.leaser.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def policy_of(context: QueueContext, namespace: str, settings: QueueSettings) -> Policy:
    """Return the policy of a queue's lanes.

    Neither attempts nor failures are limited while the dead-letter topic is missing.
    """
    target = settings.dead_letter_topic
    is_there = not target or context.mover.is_there(TopicName(namespace, target))
    return Policy(
        settings.order,
        settings.attempts_max if is_there else 0,
        context.config.lookahead,
        settings.in_flight_max,
        settings.delivery_limit if is_there else NO_LIMIT,
        settings.retry_delay_ms,
        settings.retry_delay_ms_max,
        settings.retry_delay_on,
    )


class LaneBounds(Protocol):
    """Bounds of a queue's length and of the age of its messages; see ``queue_bounds``."""

    def check_soon(self, lane: "QueueLane") -> None:
        """Drop messages, soon, if there are too many, or their time is over; tell of room."""
        ...

    def on_due(self, lane: "QueueLane") -> None:
        """Drop the first messages of a lane whose time is over: a timer has ended."""
        ...


class LaneOwner(Protocol):
    """The queue of a lane, as far as the lane needs it."""

    settings: QueueSettings
    counters: QueueCounters

    @property
    def earlier_delays(self) -> tuple[EarlierDelay, ...]:
        """See ``QueueRow``."""
        ...

    @property
    def group(self) -> str:
        """The queue group's name."""
        ...

    @property
    def protocol(self) -> str:
        """Protocol of the queue; empty when there is none."""
        ...

    def wake(self, lane: "QueueLane") -> None:
        """Serve waiting receives: there may be new messages."""
        ...

    @property
    def bounds(self) -> LaneBounds | None:
        """Bounds of the queue, if it has any."""
        ...


class QueueLane:
    """One partition of a queue. Effects of the lane's calls go through ``done``."""

    __slots__ = (
        "_context",
        "_feeder",
        "_hold_name",
        "_loop",
        "front",
        "front_unix_ms",
        "has_left",
        "held_offset",
        "is_ahead",
        "is_gone",
        "is_open",
        "journal",
        "lane",
        "lane_id",
        "number",
        "on_wake",
        "owner",
        "partition",
        "retained_unix_ms",
    )

    def __init__(
        self,
        context: QueueContext,
        owner: LaneOwner,
        partition: Partition,
        group: str,
        lane: Lane,
    ) -> None:
        self._context = context
        self._loop = context.loop
        self.owner = owner
        self.partition = partition
        self.number = partition.number
        self.lane = lane
        self.lane_id = lane_id(partition.topic.uuid, partition.number, group)
        self.has_left = False
        self.is_ahead = False
        self.is_gone = False
        self.is_open = False
        self.held_offset = -1
        self.journal: LaneJournal = context.journal
        if partition.topic.settings.in_memory:
            self.journal = context.no_journal
        self.retained_unix_ms = 0  # until then nothing is old enough for the retention
        self.front: tuple[int, int, list[int]] | None = None  # when it was looked at last
        self.front_unix_ms = 0  # and when the first of it expires
        self.on_wake: Callable[[], None] | None = None
        """Called when there may be new messages, beside the owner; for one partition's readers."""
        self._hold_name = f"queue:{group}"
        self._feeder = Feeder(
            context.broker, context.clock, partition, context.message_cache, self.done
        )

    # --- life

    def open(self) -> None:
        """Start: hold the partition, feed the lane."""
        self.is_open = True
        self.hold()
        self._feeder.start(self.lane, self.owner.settings, self.owner.earlier_delays)

    def close(self) -> None:
        """Stop; messages in flight stay in the journal."""
        self.is_open = False
        self._feeder.close()
        self._context.leases.forget(self)
        self._context.expiries.forget(self)

    def leave(self) -> None:
        """Release the partition of a deleted queue."""
        self.is_gone = True
        self._release()

    def depart(self) -> None:
        """Release the partition of a shard that has left; nothing is written any more."""
        self.has_left = True
        self._release()

    def _release(self) -> None:
        self.close()
        self._context.mover.forget(self)
        self._context.touched.discard(self)
        self._context.broker.release_retention(self.partition.partition_id, self._hold_name)

    def configure(self, settings: QueueSettings, policy: Policy) -> None:
        """Apply changed settings."""
        is_reordered = policy.order is not self.lane.policy.order
        is_delay_other = settings.delay_ms != self._feeder.delay_ms
        self.lane.policy = policy
        self.retained_unix_ms = 0
        earlier = self.owner.earlier_delays
        self._feeder.configure(settings, earlier)
        if is_reordered:
            self._feeder.start(self.lane, settings, earlier)  # now its keys count, or do not
        elif is_delay_other and policy.order is Order.KEY:
            self.lane.unfeed()  # it goes for all that waits
            self._feeder.start(self.lane, settings, earlier)

    def seek(self, offset: int, on_done: OnDone) -> None:
        """Start again at an offset, whatever was delivered; ``on_done`` once that is durable."""
        self._feeder.close()
        effects = self.lane.seek(offset, end_offset=self.partition.stable_end)
        self.done(effects, on_done)
        self._feeder.start(self.lane, self.owner.settings, self.owner.earlier_delays)

    def hold(self) -> None:
        """Report the hold to retention; not with every settle, see ``RetentionHolds``."""
        floor = self.lane.floor
        if floor == self.held_offset:
            return
        try:
            self._context.broker.hold_retention(
                self.partition.partition_id, self._hold_name, HolderKind.QUEUE, floor
            )
        except Overloaded as error:
            _log.warning("queue holds nothing", lane=self._hold_name, error=str(error))
        self.held_offset = floor
        if not self.is_journaled:
            self._context.broker.memory.trim(self.partition)

    @property
    def is_journaled(self) -> bool:
        """Whether its state outlives the process."""
        return self.journal is self._context.journal

    def snapshot(self) -> bytes:
        """See ``gateway.queues.journal.Journaled``."""
        return self.lane.snapshot()

    # --- effects

    def done(self, effects: Effects, on_done: OnDone | None = None) -> None:
        """Carry out effects of the lane.

        ``on_done`` runs once its journal entries are durable, never before this returns.
        """
        journal = self.journal
        has_done = bool(effects.done)
        if effects.taken is not None:
            journal.put_taken(self, effects.taken)
        if effects.journal is not None:
            journal.put(self, effects.journal, None if has_done else on_done)
        if has_done:
            journal.put_done(self, effects.done, on_done)
        elif on_done is not None and effects.journal is None:
            self._loop.call_soon(on_done, None)
        if effects.dead:
            self._context.mover.move_dead(self, effects.dead)
        if self.is_open:
            if effects.wake:
                self.owner.wake(self)
                if self.on_wake is not None:
                    self.on_wake()
            if (bounds := self.owner.bounds) is not None:
                bounds.check_soon(self)
            self._context.arm(self)
            self._context.touched.add(self)

    def tick(self) -> None:
        """End due leases and delays: see ``Deadlines``."""
        now = self._context.clock.steady_unix_ms()
        lapsed: list[LapsedRange] = []
        self.done(self.lane.tick(now, messages_max=TICK_MESSAGES_MAX, lapsed=lapsed))
        if lapsed:
            self._context.lease_ends.tell(self.owner, self.number, lapsed)

    def check_expiry(self) -> None:
        """End the first messages whose time is over: see ``Deadlines``."""
        if (bounds := self.owner.bounds) is not None:
            bounds.on_due(self)

    def come_up_to_now(self, now: int) -> None:
        """Feed all acknowledged messages, and end leases and delays due at ``now``.

        A lease of 0 ms ends at once, and timers are a little late.
        """
        self._feeder.feed_held()
        due_unix_ms = self.lane.next_due_unix_ms
        if due_unix_ms is not None and due_unix_ms <= now:
            self.tick()

    def feed_more(self) -> None:
        """Feed more after a take, if the lane needs it."""
        if self._feeder.is_paused and self.lane.wants_more:
            self._feeder.resume()
