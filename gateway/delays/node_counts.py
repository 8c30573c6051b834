"""Counts of delayed messages over all shards of the node, and their bounds."""

import asyncio
from typing import Final

from features.delay.state import DelayState
from features.delay.wheel import DUE_UNIX_MS_MAX
from gateway.clock import Clock
from gateway.config.queues import DelayConfig
from gateway.errors import Overloaded, PolicyViolation
from gateway.topics.manager import Topic

_COUNTER_BITS: Final = 40  # of a number, below the incarnation that gave it


class NodeCounts:
    """Messages on their way into ``__delays``, checks of bounds, and the last number given.

    *Reserved* messages are of batches that are checked, and not appended yet. They count until the
    turn of the loop ends: a batch may be dropped after its check.
    """

    def __init__(self, clock: Clock, config: DelayConfig, incarnation: int) -> None:
        self._clock = clock
        self._config = config
        self._loop = asyncio.get_running_loop()
        self.states: list[DelayState] = []
        """States of the shards that have delayed messages."""
        self.pending_count = 0
        self.pending_bytes = 0
        self.reserved_count = 0
        self.reserved_bytes = 0
        self.last_number = incarnation << _COUNTER_BITS

    def check(self, topic: Topic, due_unix_ms: int, count: int, size_bytes: int) -> None:
        """Check the bounds for ``count`` more messages, of which the last is due then.

        Errors: ``PolicyViolation`` above the topic's ``delay.max.ms``, ``Overloaded`` above
        ``delay.messages_max`` and ``delay.drafted_bytes_max``.
        """
        pending_bytes = self.pending_bytes + self.reserved_bytes
        if pending_bytes and pending_bytes + size_bytes > self._config.drafted_bytes_max:
            msg = f"{pending_bytes} bytes of delayed messages are on their way into the log"
            raise Overloaded(msg)
        waiting = self.pending_count + self.reserved_count
        for state in self.states:
            waiting += state.count
        if waiting + count > self._config.messages_max:
            msg = f"{waiting} messages wait, at most {self._config.messages_max} may"
            raise Overloaded(msg)
        ahead_ms = due_unix_ms - self._clock.unix_ms()
        ahead_ms_max = topic.settings.delay_ms_max
        if ahead_ms > ahead_ms_max or due_unix_ms > DUE_UNIX_MS_MAX:
            msg = f"due in {ahead_ms} ms, the topic's delay.max.ms is {ahead_ms_max}"
            raise PolicyViolation(msg)

    def reserve(self, count: int, size_bytes: int) -> None:
        """Count messages that are about to be appended, for this turn of the loop."""
        if not self.reserved_count:
            self._loop.call_soon(self._release)
        self.reserved_count += count
        self.reserved_bytes += size_bytes

    def unreserve(self, count: int, size_bytes: int) -> None:
        """Give back what was reserved: its append begins."""
        self.reserved_count = max(self.reserved_count - count, 0)
        self.reserved_bytes = max(self.reserved_bytes - size_bytes, 0)

    def _release(self) -> None:
        self.reserved_count = self.reserved_bytes = 0

    def begin(self, count: int, size_bytes: int) -> None:
        """Count messages as on their way into the log, until ``end``."""
        self.pending_count += count
        self.pending_bytes += size_bytes

    def end(self, count: int, size_bytes: int) -> None:
        """Count messages as on their way no more."""
        self.pending_count -= count
        self.pending_bytes -= size_bytes
