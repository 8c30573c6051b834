"""One queue: a topic, and a queue group that competes for its messages."""

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from features.fairness import Fairness
from features.queue.lane import Lane
from features.queue.model import BY_TIME, Counts, Policy
from gateway.errors import NotLeader
from gateway.model import Record, TopicName
from gateway.partition import Partition
from gateway.queues.contiguous import ContiguousMessages, Show
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.message_cache import Unreadable
from gateway.queues.model import DeliveryId, EarlierDelay, Outcome, QueueRow
from gateway.queues.pending_receives import OnDeliveries, PendingReceive, PendingReceives
from gateway.queues.purge_offsets import PURGED, PurgeGate, parse_purged
from gateway.queues.receivers import Receivers
from gateway.queues.settling import OnSettled, Settler
from gateway.slots import partition_for_key
from gateway.storage import OnDone
from gateway.topics.manager import Topic

BROWSED_MAX: Final = 1_000  # of one call


class Browsed(NamedTuple):
    """A browsed message; ``state`` as in ``Lane.browse``."""

    number: int
    state: str
    record: Record


class Queue:
    """A queue, as receivers use it. Loop only; made by ``QueueManager``."""

    def __init__(
        self,
        context: QueueContext,
        pending_receives: PendingReceives,
        topic: Topic,
        row: QueueRow,
    ) -> None:
        self._context = context
        self._pending_receives = pending_receives
        self._fairness = Fairness()
        self._receivers = Receivers(context, pending_receives, row.settings)
        self._settler = Settler(context, self._receivers.freed)
        self._turn = 0
        self.purged_ends = parse_purged(row.attributes)
        """End offset of the last purge, by number of the partition."""
        self.topic = topic
        self.row = row
        self.settings = row.settings
        self.lanes: list[QueueLane] = []
        self.is_gone = False
        self.is_away = False
        """Whether another node owns a partition of it; requests are refused, see ``check_here``."""

    # --- what it is

    @property
    def name(self) -> TopicName:
        """The topic's name."""
        return self.topic.name

    @property
    def group(self) -> str:
        """The queue group's name."""
        return self.row.group

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes kept by protocols beside the settings; see ``QueueRow``."""
        return self.row.attributes

    @property
    def tags(self) -> dict[str, str]:
        """Tags set by the owner."""
        return self.row.tags

    @property
    def earlier_delays(self) -> tuple[EarlierDelay, ...]:
        """Former delays, still valid for messages sent before the change."""
        return self.row.earlier_delays

    @property
    def owns_topic(self) -> bool:
        """Whether the topic is deleted with the queue."""
        return self.row.owns_topic

    @property
    def created_unix_ms(self) -> int:
        """Creation time."""
        return self.row.created_unix_ms

    @property
    def changed_unix_ms(self) -> int:
        """Time of the last change."""
        return self.row.changed_unix_ms

    @property
    def protocol(self) -> str:
        """Protocol that keeps attributes with the queue; empty when none does."""
        return next(
            (name.partition(".")[0] for name in self.row.attributes if name != PURGED), ""
        )

    @property
    def policy(self) -> Policy:
        """Policy of the lanes. Without a dead-letter topic, attempts are not limited."""
        settings = self.settings
        target = settings.dead_letter_topic
        is_there = not target or self._context.mover.is_there(
            TopicName(self.name.namespace, target)
        )
        return Policy(
            settings.order,
            settings.attempts_max if is_there else 0,
            self._context.config.lookahead,
            settings.in_flight_max,
        )

    # --- sending

    def partition_for(self, key: bytes | None) -> Partition:
        """Return the partition for a message of that key; without a key the partitions in turn.

        Error: ``NotLeader``, see ``check_here``.
        """
        if self.is_away:
            self.check_here()
        lanes = self.lanes
        if len(lanes) == 1:
            return lanes[0].partition
        if key is not None:
            return lanes[partition_for_key(key, len(lanes))].partition
        self._turn = (self._turn + 1) % len(lanes)
        return lanes[self._turn].partition

    # --- receiving

    def receive(  # noqa: PLR0913 - by keyword
        self,
        messages_max: int,
        *,
        bytes_max: int,
        on_done: OnDeliveries,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        holder: int = BY_TIME,
        on_failed: Callable[[], None] | None = None,
    ) -> PendingReceive | None:
        """Hand out up to ``messages_max`` messages, at least one whatever ``bytes_max`` says.

        ``on_done`` runs once: before this returns (then it returns None), or when there is
        something, or with an empty list when ``wait_ms`` are over. Waiting receives are served in
        order of arrival. ``on_failed`` runs instead, or after ``on_done`` has raised, when an
        internal error prevents an answer. The messages are leased for ``lease_ms`` (by default
        the queue's), or until its ``holder`` ends. Error: ``Overloaded`` when too many wait.
        """
        if wait_ms > 0:
            self._pending_receives.check_room()
        lease_ms = self.settings.lease_ms if lease_ms is None else lease_ms
        receiver = PendingReceive(
            self._receivers, messages_max, bytes_max, lease_ms, holder, on_done, on_failed
        )
        return self._receivers.receive(receiver, min(wait_ms, self._context.config.wait_ms_max))

    def receive_contiguous(
        self,
        count: int,
        *,
        bytes_max: int,
        show: Show,
        lease_ms: int | None = None,
        column: int | None = None,
    ) -> ContiguousMessages | None:
        """Hand out ``count`` contiguous messages, in the common case.

        Return None, with nothing changed, in any other case; call ``receive`` then. A given
        ``column`` of what is shown must not be empty. See ``gateway.queues.contiguous``.
        """
        lease_ms = self.settings.lease_ms if lease_ms is None else lease_ms
        return self._receivers.receive_contiguous(
            count, bytes_max=bytes_max, lease_ms=lease_ms, show=show, column=column
        )

    @property
    def waiting_count(self) -> int:
        """Number of waiting receives."""
        return len(self._receivers)

    def end_holder(self, holder: int, *, counts_attempt: bool = True) -> None:
        """Requeue the messages that a holder has in flight, after its connection has ended."""
        now = self._context.clock.steady_unix_ms()
        for lane in self.lanes:
            lane.done(lane.lane.end_holder(holder, now, counts_attempt=counts_attempt))

    # --- settling

    def settle(
        self,
        items: Sequence[tuple[DeliveryId, Outcome]],
        on_done: OnSettled,
        *,
        delay_ms: int = 0,
        reason: str = "rejected",
    ) -> None:
        """Settle messages; ``on_done`` gets one result each, once all changes are durable.

        ``delay_ms`` is for released messages, ``reason`` for rejected ones. After an error no
        acknowledgement counts; a rejected message whose move to the dead letters failed stays,
        and the move is retried. ``on_done`` never runs before this returns.
        """
        self._settler.settle(items, on_done, delay_ms=delay_ms, reason=reason)

    def ack_contiguous(
        self, number: int, offsets: range, attempt: int, on_done: OnDone
    ) -> bool:
        """Acknowledge messages of ``receive_contiguous`` if all are still in flight.

        Otherwise nothing changes and it returns False; call ``settle`` for one result each.
        ``on_done`` runs once it is durable, or with an error when nothing counts; never before
        this returns.
        """
        return self._settler.ack_contiguous(number, offsets, attempt, on_done)

    def extend(
        self,
        items: Sequence[tuple[DeliveryId, int]],
        on_done: OnSettled,
        *,
        latest_only: bool = True,
    ) -> None:
        """Set leases to end that many milliseconds from now; 0 releases. Otherwise as ``settle``.

        ``latest_only``: see ``Lane.extend``.
        """
        self._settler.extend(items, on_done, latest_only=latest_only)

    def purge(self, on_done: OnDone) -> None:
        """Drop all current messages, in flight or not; ``on_done`` once durable.

        Error: ``NotLeader``, see ``check_here``.
        """
        if self.is_away:
            self.check_here()
        gate = PurgeGate(len(self.lanes), on_done)
        self.purged_ends = tuple(lane.partition.stable_end for lane in self.lanes)
        for lane in self.lanes:
            lane.done_then(lane.lane.purge(lane.partition.stable_end), gate.one)
            lane.feed_more()
        if not self.lanes:
            self._context.loop.call_soon(on_done, None)

    # --- looking

    def counts(self) -> Counts:
        """Return the number of messages by state."""
        if len(self.lanes) == 1:
            lane = self.lanes[0]
            return lane.lane.counts(lane.partition.stable_end)
        counts = [lane.lane.counts(lane.partition.stable_end) for lane in self.lanes]
        return Counts(*map(sum, zip(*counts, strict=True))) if counts else Counts(0, 0, 0)

    @property
    def is_full(self) -> bool:
        """Whether the in-flight limit is reached: receives get nothing until some are settled."""
        in_flight_max = self.settings.in_flight_max
        if sum(lane.lane.open_count for lane in self.lanes) < in_flight_max:
            return False
        return self.counts().in_flight >= in_flight_max

    async def browse(
        self, count: int, *, from_offsets: Mapping[int, int] | None = None
    ) -> list[Browsed]:
        """Return messages without taking them, partition by partition, lowest offsets first.

        ``from_offsets``: start by number of the partition; others begin at the lowest message
        not settled. At most ``BROWSED_MAX``. Errors: ``StorageUnavailable``.
        """
        found: list[Browsed] = []
        left = min(count, BROWSED_MAX)
        starts = from_offsets or {}
        for lane in self.lanes:
            start = starts.get(lane.number, lane.lane.floor)
            end = lane.partition.stable_end
            places = lane.lane.browse_there(start, end, left - len(found))
            bodies = await self._context.message_cache.read(
                lane.partition, [place[0] for place in places]
            )
            found += [
                Browsed(lane.number, state, body)
                for (_, state), body in zip(places, bodies, strict=True)
                if not isinstance(body, Unreadable)
            ]
            if len(found) >= left:
                break
        return found

    async def get(self, number: int, offset: int) -> Record | None:
        """Return a message by partition and offset, whatever its state, or None."""
        lane = self._settler.lanes.get(number)
        if lane is None:
            return None
        partition = lane.partition
        if not partition.log_start_offset <= offset < partition.stable_end:
            return None
        body = (await self._context.message_cache.read(partition, (offset,)))[0]
        return None if isinstance(body, Unreadable) else body

    # --- for the manager, and for lanes

    def new_lane(self, partition: Partition, next_offset: int) -> QueueLane:
        """Return a new lane that begins at an offset, not fed yet."""
        lane = Lane(self.policy, next_offset, fairness=self._fairness)
        return QueueLane(self._context, self, partition, self.group, lane)

    def add_lanes(self, lanes: Sequence[QueueLane]) -> None:
        """Add lanes; they need not come in order of number."""
        self._set_lanes([*self.lanes, *lanes])

    def remove_lanes(self, lanes: Collection[QueueLane]) -> None:
        """Remove lanes whose shard has left; what they hold of the retention is released."""
        if not lanes:
            return
        self._set_lanes([lane for lane in self.lanes if lane not in lanes])
        for lane in lanes:
            lane.depart()
        self._context.message_cache.forget([lane.partition.partition_id for lane in lanes])

    def _set_lanes(self, lanes: list[QueueLane]) -> None:
        self.lanes = sorted(lanes, key=attrgetter("number"))
        self._receivers.lanes = self.lanes
        self._settler.lanes = {lane.number: lane for lane in self.lanes}

    def renew_presence(self) -> None:
        """Serve the queue when the node has all of its partitions; else refuse requests."""
        is_here = len(self.lanes) == len(self.topic.partition_ids)
        if is_here == self.is_away:
            self.is_away = not is_here
            if is_here:
                self._receivers.reopen()
            else:
                self._receivers.close()

    def wake(self, lane: QueueLane) -> None:
        """See ``gateway.queues.lanes.LaneOwner``."""
        if not self.is_gone:
            self._receivers.wake(lane)

    def set_row(self, row: QueueRow) -> None:
        """Apply a changed row."""
        self.row = row
        self.settings = self._receivers.settings = row.settings
        self.renew_policy()
        for lane in self.lanes:
            self._receivers.wake(lane)  # more may be in flight than before

    def renew_policy(self) -> None:
        """Apply changed settings, or a created or deleted dead-letter topic."""
        policy = self.policy
        for lane in self.lanes:
            lane.configure(self.settings, policy)

    def close(self) -> None:
        """Stop; messages in flight are in the journal. Waiting receives get an empty answer."""
        self._receivers.close()
        for lane in self.lanes:
            lane.close()

    def leave_node(self) -> None:
        """Hand out nothing more; waiting receives get an empty answer, and ask again."""
        self.is_away = True
        self._receivers.close()
        for lane in self.lanes:
            if lane.partition.is_gone:
                lane.close()

    def check_here(self) -> None:
        """Raise ``NotLeader`` when another node owns a partition of the queue."""
        for number in range(len(self.topic.partition_ids)):
            self._context.broker.partition(self.topic, number)
        if self.is_away:
            msg = f"queue {self.name.name} is being loaded"
            raise NotLeader(msg)

    def drop(self) -> None:
        """Close a deleted queue."""
        self.is_gone = True
        self.close()
        for lane in self.lanes:
            lane.leave()
