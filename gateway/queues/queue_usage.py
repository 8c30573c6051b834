"""Time of the last use of a queue; see ``gateway.queues.unused_queues``."""

from gateway.clock import Clock


class QueueUsage:
    """Time of the last receive, consumer or declaration of one queue."""

    __slots__ = ("_clock", "last_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.last_ms = clock.monotonic_ms()
        """Monotonic milliseconds."""

    def touch(self, ahead_ms: int = 0) -> None:
        """Note that the queue is used now, and for so long."""
        self.last_ms = max(self.last_ms, self._clock.monotonic_ms() + ahead_ms)
