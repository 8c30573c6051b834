"""One queue: a topic, and a queue group that competes for its messages."""

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Final

from features.fairness import Fairness
from features.queue.lane import Lane
from features.queue.model import BY_TIME, Counts, Policy, SettledRange
from features.queue.retrying import DeliveryEnd
from gateway.errors import NotLeader
from gateway.model import Record
from gateway.partition import Partition
from gateway.queues.browsing import Browsed, browse, get_record
from gateway.queues.consumers import CancelReason, Consumers
from gateway.queues.delivered_ranges import DeliveredRange, deliveries_of
from gateway.queues.lanes import QueueContext, QueueLane, policy_of
from gateway.queues.model import Delivery, DeliveryId, Outcome, QueueRow
from gateway.queues.pending_receives import OnRanges, PendingReceive, PendingReceives
from gateway.queues.purge_offsets import parse_purged
from gateway.queues.purging import purge_lanes
from gateway.queues.queue_bounds import QueueBounds
from gateway.queues.queue_description import QueueDescription
from gateway.queues.receivers import Receivers
from gateway.queues.settling import OnRangesSettled, OnSettled, Settler
from gateway.queues.shown_forms import Columns, Show
from gateway.slots import partition_for_key
from gateway.storage import OnDone
from gateway.topics.manager import Topic

BROWSED_MAX: Final = 1_000  # of one call
OnDeliveries = Callable[[list[Delivery]], None]


class Queue(QueueDescription):
    """A queue, as receivers use it. Loop only; made by ``QueueManager``."""

    def __init__(
        self,
        context: QueueContext,
        pending_receives: PendingReceives,
        topic: Topic,
        row: QueueRow,
    ) -> None:
        super().__init__(topic, row)
        self._context = context
        self._pending_receives = pending_receives
        self._fairness = Fairness()
        self.counters = context.counters_by_queue.of(topic, row.group)
        self._receivers = Receivers(context, pending_receives, row.settings)
        self.usage = self._receivers.usage
        self._settler = Settler(context, self._receivers.freed)
        self.consumers = Consumers(context, pending_receives, self._receivers, self._settler)
        """Registered consumers: ``consumers.subscribe``."""
        self._bounds = QueueBounds(context, self._receivers, self.consumers)
        self.bounds = self._bounds.renew()  # see ``gateway.queues.lanes.LaneBounds``
        self._turn = 0
        self.purged_ends = parse_purged(row.attributes)
        """End offset of the last purge, by number of the partition."""
        self.lanes: list[QueueLane] = []
        self.is_gone = self.is_away = False
        """Whether another node owns a partition of it; requests are refused, see ``check_here``."""

    @property
    def policy(self) -> Policy:
        """Policy of the lanes. Without a dead-letter topic, attempts are not limited."""
        return policy_of(self._context, self.name.namespace, self.settings)

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
        something, or with an empty list when ``wait_ms`` are over; in order of arrival.
        ``on_failed`` runs instead, or after ``on_done`` has raised, when an internal error prevents
        an answer. The messages are leased for ``lease_ms`` (by default the queue's), or until the
        ``holder`` ends. Error: ``Overloaded`` when too many wait.
        """
        return self.receive_ranges(
            messages_max,
            bytes_max=bytes_max,
            on_done=lambda ranges: on_done(self.deliveries_of(ranges)),
            lease_ms=lease_ms,
            wait_ms=wait_ms,
            holder=holder,
            on_failed=on_failed,
        )

    def receive_ranges(  # noqa: PLR0913 - by keyword
        self,
        messages_max: int,
        *,
        bytes_max: int,
        on_done: OnRanges,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        holder: int = BY_TIME,
        on_failed: Callable[[], None] | None = None,
    ) -> PendingReceive | None:
        """Do as ``receive``; ``on_done`` gets ranges with their stored batches, not each message.

        ``records_of`` and ``shown_of`` return what is in them.
        """
        if wait_ms > 0:
            self._pending_receives.check_room()
        lease_ms = self.settings.lease_ms if lease_ms is None else lease_ms
        receiver = PendingReceive(
            self._receivers, messages_max, bytes_max, lease_ms, holder, on_done, on_failed
        )
        return self._receivers.receive(receiver, min(wait_ms, self._context.config.wait_ms_max))

    def records_of(self, delivered: DeliveredRange) -> Sequence[Record]:
        """Return the records of a range, in order."""
        self._context.message_cache.decode(delivered.partition, delivered.batch)
        return delivered.batch.records_of(delivered.offsets)

    def shown_of(self, delivered: DeliveredRange, show: Show) -> Columns | None:
        """Return a range in a protocol's own form, None when one of its messages is not plain.

        The form is made once for a batch, and kept with it: see ``gateway.queues.shown_forms``.
        """
        return self._context.message_cache.show(delivered, show)

    def deliveries_of(self, ranges: Sequence[DeliveredRange]) -> list[Delivery]:
        """Return the messages of ranges one by one, in order."""
        return [
            delivery for one in ranges for delivery in deliveries_of(one, self.records_of(one))
        ]

    @property
    def waiting_count(self) -> int:
        """Number of waiting receives."""
        return len(self._receivers)

    def end_holder(self, holder: int, *, ending: DeliveryEnd = DeliveryEnd.FAILED) -> None:
        """Requeue the messages that a holder has in flight, after its connection has ended."""
        now = self._context.clock.steady_unix_ms()
        for lane in self.lanes:
            lane.done(lane.lane.end_holder(holder, now, ending))

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

    def holds(self, number: int, offsets: range, attempt: int, *, holder: int) -> bool:
        """Return whether all of contiguous messages are in flight, with that attempt and holder.

        ``number``: of the partition.
        """
        lane = self._settler.lanes.get(number)
        return lane is not None and lane.lane.holds(offsets, attempt, holder=holder)

    def settle_ranges(
        self,
        number: int,
        ranges: Sequence[SettledRange],
        on_done: OnRangesSettled,
        *,
        holder: int = BY_TIME,
        delay_ms: int = 0,
        reason: str = "rejected",
    ) -> None:
        """Settle contiguous messages of a partition, each range with its own outcome.

        ``on_done`` gets the number of messages of each range that the holder had in flight by
        that attempt, which are settled; others stay as they are. ``holds`` tells before whether
        that will be all: nothing changes in between within a turn of the loop. Otherwise as
        ``settle``.
        """
        self._settler.settle_ranges(
            number, ranges, on_done, holder=holder, delay_ms=delay_ms, reason=reason
        )

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

    def purge(self, on_done: OnDone, *, ready_only: bool = False) -> None:
        """Drop all current messages; ``on_done`` once durable. Error: as ``check_here``.

        ``ready_only``: those in flight stay; delayed ones go.
        """
        if self.is_away:
            self.check_here()
        if not ready_only:
            self.purged_ends = tuple(lane.partition.stable_end for lane in self.lanes)
        purge_lanes(self._context, self.lanes, on_done, ready_only=ready_only)

    def counts(self) -> Counts:
        """Return the number of messages by state."""
        counts = [lane.lane.counts(lane.partition.stable_end) for lane in self.lanes]
        return Counts(*map(sum, zip(*counts, strict=True))) if counts else Counts(0, 0, 0)

    @property
    def is_full(self) -> bool:
        """Whether the in-flight limit is reached: receives get nothing until some are settled."""
        in_flight_count = sum(lane.lane.in_flight_count for lane in self.lanes)
        return in_flight_count >= self.settings.in_flight_max

    async def browse(
        self, count: int, *, from_offsets: Mapping[int, int] | None = None
    ) -> list[Browsed]:
        """Return messages without taking them, partition by partition, lowest offsets first.

        ``from_offsets``: start by number of the partition; others begin at the lowest message
        not settled. At most ``BROWSED_MAX``. Errors: ``StorageUnavailable``.
        """
        most = min(count, BROWSED_MAX)
        return await browse(self._context, self.lanes, most, from_offsets or {})

    async def get(self, number: int, offset: int) -> Record | None:
        """Return a message by partition and offset, whatever its state, or None."""
        lane = self._settler.lanes.get(number)
        return None if lane is None else await get_record(self._context, lane, offset)

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
        self.bounds = self._bounds.renew()

    def renew_presence(self) -> None:
        """Serve the queue when the node has all of its partitions; else refuse requests."""
        is_here = len(self.lanes) == len(self.topic.partition_ids)
        if is_here == self.is_away:
            self.is_away = not is_here
            if is_here:
                self._receivers.reopen()
            else:
                self._end_receivers(CancelReason.MOVED)

    def wake(self, lane: QueueLane) -> None:
        """See ``gateway.queues.lanes.LaneOwner``."""
        if not self.is_gone:
            self._receivers.wake(lane)

    def set_row(self, row: QueueRow) -> None:
        """Apply a changed row."""
        self.row = row
        self.settings = self._receivers.settings = row.settings
        self.renew_policy()
        self.consumers.configure()
        self.bounds = self._bounds.renew()
        for lane in self.lanes:
            self._receivers.wake(lane)  # more may be in flight than before

    def renew_policy(self) -> None:
        """Apply changed settings, or a created or deleted dead-letter topic."""
        policy = self.policy
        for lane in self.lanes:
            lane.configure(self.settings, policy)

    def close(self, reason: CancelReason = CancelReason.STOPPED) -> None:
        """Stop; messages in flight are in the journal. Waiting receives get an empty answer."""
        self._end_receivers(reason)
        self._bounds.close()
        for lane in self.lanes:
            lane.close()

    def _end_receivers(self, reason: CancelReason) -> None:
        self._receivers.close()
        self.consumers.close(reason)

    def leave_node(self) -> None:
        """Hand out nothing more; waiting receives get an empty answer, and ask again."""
        self.is_away = True
        self._end_receivers(CancelReason.MOVED)
        for lane in self.lanes:
            if lane.partition.is_gone:
                lane.close()

    def check_here(self) -> None:
        """Raise ``NotLeader`` when another node owns a partition of the queue."""
        for number in range(len(self.topic.partition_ids)):
            self._context.broker.partition(self.topic, number)
        if self.is_away:
            raise NotLeader(f"queue {self.name.name} is being loaded")

    def drop(self) -> None:
        """Close a deleted queue."""
        self.is_gone = True
        self.close(CancelReason.DELETED)
        for lane in self.lanes:
            lane.leave()
