"""Bounds of a queue: of its length, by which old or new messages go, and of their age."""

from typing import Self

from gateway.queues.consumers import Consumers
from gateway.queues.head_expiry import HeadExpiry, expires
from gateway.queues.lane_sizes import QueueSizes
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.length_limit import LengthLimit, is_dropping
from gateway.queues.publish_limit import PublishLimit, is_refusing
from gateway.queues.receivers import Receivers


class QueueBounds:
    """Bounds of one queue; see ``gateway.queues.lanes.LaneBounds``. Loop only."""

    def __init__(
        self, context: QueueContext, receivers: Receivers, consumers: Consumers
    ) -> None:
        self._receivers = receivers
        self._sizes = QueueSizes(context)
        self._length = LengthLimit(context, receivers, self._sizes)
        self._publishes = PublishLimit(context, receivers, consumers, self._sizes)
        self._expiry = HeadExpiry(context, receivers)

    def renew(self) -> Self | None:
        """Apply the settings and partitions of now; return None for a queue without bounds."""
        settings = self._receivers.settings
        self._publishes.renew()
        self._sizes.follow(self._receivers.lanes if settings.length_bytes_max else ())
        self._expiry.forget()
        if not (is_dropping(settings) or expires(settings) or is_refusing(self._receivers)):
            return None
        for lane in self._receivers.lanes:
            if lane.is_open:
                self.check_soon(lane)
        return self

    def close(self) -> None:
        """Bound nothing more."""
        self._publishes.forget()
        self._sizes.follow(())

    def check_soon(self, lane: QueueLane) -> None:
        """See ``LaneBounds``."""
        settings = self._receivers.settings
        if is_dropping(settings):
            self._length.check_soon()
        if expires(settings):
            self._expiry.check_soon(lane)
        self._publishes.check_room_soon()

    def on_due(self, lane: QueueLane) -> None:
        """See ``LaneBounds``."""
        self._expiry.on_due(lane)
