"""Limit of a queue that refuses its publishers when it is full (RabbitMQ's ``reject-publish``).

Ready messages count, those that are in flight do not; what its consumers and waiting receives
would take at once has room beyond the limit, as it does not wait.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from gateway.append_limits import add_limit, remove_limit
from gateway.errors import QueueFull
from gateway.model import Headers
from gateway.queues.consumers import Consumers
from gateway.queues.lane_sizes import QueueSizes
from gateway.queues.lanes import QueueContext
from gateway.queues.model import Overflow
from gateway.queues.receivers import Receivers
from gateway.queues.refused_messages import bury_refused
from gateway.records.record_run import RecordRun, Run

ROOM_MAX: Final = 128  # messages that are told of at a time

OnRoom = Callable[["PublishLimit", int], None]


class PublishLimit:
    """Limit of one queue, registered for each of its partitions: see ``AppendLimit``. Loop only."""

    def __init__(
        self,
        context: QueueContext,
        receivers: Receivers,
        consumers: Consumers,
        sizes: QueueSizes,
    ) -> None:
        self._context = context
        self._sizes = sizes
        self._receivers = receivers
        self._consumers = consumers
        self._pending: set[Run] = set()  # not durable yet
        self._pending_bytes = 0
        self._unplaced: OrderedDict[Run, None] = OrderedDict()  # of them, those without offsets
        self._unplaced_count = 0  # of their messages
        self._limited: list[int] = []  # ids of partitions
        self._on_room: dict[OnRoom, None] = {}
        self.awaited_bytes = 0
        """Size of the message for which there must be room, before anybody is told."""
        self._is_scheduled = False

    # --- registration

    def renew(self) -> None:
        """Register the limit for the queue's partitions, or for none, by its settings of now."""
        self.forget()
        if is_refusing(self._receivers):
            self._limited = [lane.partition.partition_id for lane in self._receivers.lanes]
            for partition_id in self._limited:
                add_limit(self._context.broker.append_limits, partition_id, self)
        self.check_room_soon()

    def forget(self) -> None:
        """Remove the limit."""
        for partition_id in self._limited:
            remove_limit(self._context.broker.append_limits, partition_id, self)
        self._limited = []

    # --- room

    def when_room(self, size_bytes: int, on_room: OnRoom) -> None:
        """Call ``on_room`` once, with the number of messages, when there is room for one.

        ``size_bytes``: of the message; of several that wait, the first counts.
        """
        if not self._on_room:
            self.awaited_bytes = size_bytes
        self._on_room[on_room] = None

    def check_room_soon(self) -> None:
        """Call the callbacks of ``when_room`` soon, if there is room by then."""
        if self._on_room and not self._is_scheduled:
            self._is_scheduled = True
            self._context.loop.call_soon(self._tell_room)

    def _tell_room(self) -> None:
        self._is_scheduled = False
        if self._receivers.is_closed or not self._on_room:
            return
        count = ROOM_MAX
        if self._limited:
            count = self._fitting_count((self.awaited_bytes,) * ROOM_MAX)
        if count:
            told, self._on_room = self._on_room, {}
            for on_room in told:
                on_room(self, count)

    # --- see ``AppendLimit``

    def check(self, size_bytes: int) -> None:
        """See ``AppendLimit``."""
        if not self._fitting_count((size_bytes,)):
            self._receivers.lanes[0].owner.counters.refused += 1
            settings = self._receivers.settings
            bounds = (
                f"{settings.length_max} messages" if settings.length_max else "",
                f"{settings.length_bytes_max} bytes" if settings.length_bytes_max else "",
            )
            raise QueueFull(
                f"the queue {self._name} is full: at most {' or '.join(filter(None, bounds))} "
                f"may be ready",
                limit=self,
                size_bytes=size_bytes,
            )

    @property
    def _name(self) -> str:
        return self._receivers.lanes[0].partition.topic.name.name

    def room_for(self, run: RecordRun) -> int:
        """See ``AppendLimit``."""
        return self._fitting_count([len(value or b"") for value in run.values])

    def alike_count(self, run: RecordRun) -> int:
        """See ``AppendLimit``."""
        sizes = [len(value or b"") for value in run.values]
        count = self._fitting_count(sizes)
        if count or not self._fitting_count((0,)):  # or not even an empty one has room
            return count or len(sizes)
        fitting = (at for at, size in enumerate(sizes) if self._fitting_count((size,)))
        return next(fitting, len(sizes))

    def reserve(self, run: Run) -> None:
        """See ``AppendLimit``."""
        if run not in self._pending:
            self._pending.add(run)
            self._pending_bytes += _bytes_of(run)
            self._unplaced[run] = None
            self._unplaced_count += len(run.values)

    def release(self, run: Run) -> None:
        """See ``AppendLimit``."""
        if run in self._pending:
            self._pending.discard(run)
            self._pending_bytes -= _bytes_of(run)
            self._forget_unplaced(run)

    def refuse(self, run: RecordRun, headers: Headers) -> None:
        """See ``AppendLimit``."""
        settings = self._receivers.settings
        self._receivers.lanes[0].owner.counters.refused += len(run.values)
        if settings.overflow is not Overflow.REJECT_PUBLISH_DLX:
            return
        if not settings.has_dead_letters:
            return
        bury_refused(self._context, self._receivers.lanes[0], run, headers)

    # --- counting

    def _count_unplaced(self) -> int:
        """Return the number of messages without an offset; runs get theirs in their order."""
        while self._unplaced:
            run = next(iter(self._unplaced))
            if run.base_offset < 0:
                break
            self._forget_unplaced(run)
        return self._unplaced_count

    def _forget_unplaced(self, run: Run) -> None:
        if run in self._unplaced:
            del self._unplaced[run]
            self._unplaced_count -= len(run.values)

    @property
    def _demand(self) -> int:
        """Messages that somebody would take at once, whatever they are."""
        credit = sum(
            one.credit for one in self._consumers if one.is_ready and one.selection is None
        )
        return self._receivers.demand + credit

    def _fitting_count(self, sizes: Sequence[int]) -> int:
        """Return how many of messages of those sizes have room, from the first on.

        What is being written counts as ready: by its offsets, or as long as it has none.
        """
        settings = self._receivers.settings
        counts = [
            lane.lane.counts(lane.partition.log_end_offset) for lane in self._receivers.lanes
        ]
        in_flight_count = sum(lane.lane.in_flight_count for lane in self._receivers.lanes)
        room = max(settings.in_flight_max - in_flight_count, 0)
        demand = min(self._demand, room)
        ready_count = sum(one.ready for one in counts)
        ready_count += self._count_unplaced()
        served_count = max(demand - ready_count, 0)  # of those that come now
        count = len(sizes)
        if settings.length_max:
            count = min(count, max(settings.length_max + demand - ready_count, 0))
        if settings.length_bytes_max and count > served_count:
            left_bytes = settings.length_bytes_max
            if demand < ready_count:
                left_bytes -= self._pending_bytes
                if self._sizes.may_exceed(left_bytes - sum(sizes)):
                    left_bytes -= self._sizes.ready_bytes
            for index in range(served_count, count):
                left_bytes -= sizes[index]
                if left_bytes < 0:
                    return index
        return count


def is_refusing(receivers: Receivers) -> bool:
    """Return whether a queue refuses its publishers when it is full."""
    settings = receivers.settings
    has_limit = settings.length_max or settings.length_bytes_max
    return bool(has_limit) and settings.overflow is not Overflow.DROP_HEAD


def _bytes_of(run: Run) -> int:
    return sum([len(value or b"") for value in run.values])
