"""Deletion of queues that nobody has used for their ``expires_ms`` (RabbitMQ's ``x-expires``).

A queue is used while it has a consumer or a receive that waits, and by each receive and each
declaration. Its messages are dropped with it. The span begins anew with a start of the node, or
when a queue comes to it: it is never shorter than ``expires_ms``.
"""

from typing import Final, Protocol

import structlog

from gateway.deadlines import Deadlines
from gateway.errors import GatewayError, TopicNotFound
from gateway.queues.lanes import QueueContext
from gateway.queues.queue import Queue

RETRY_MS: Final = 5_000  # until a queue is deleted that could not be

_log = structlog.get_logger()


class Queues(Protocol):
    """Manager of queues, as this uses it."""

    async def delete(self, queue: Queue, *, only_unused: bool = False) -> None:
        """Drop a queue if ``is_unused`` still holds then. Errors: ``GatewayError``."""
        ...


class UnusedQueues:
    """Timers of all queues that end when they are unused. Loop only."""

    def __init__(self, context: QueueContext, queues: Queues) -> None:
        self._context = context
        self._clock = context.clock
        self._queues = queues
        self._timers: Deadlines[Queue] = Deadlines(context.clock, self._on_due)

    def follow(self, queue: Queue) -> None:
        """Begin the span of a queue, which is new, loaded, or has other settings."""
        if queue.settings.expires_ms:
            queue.usage.touch()
            self._timers.arm(queue, self._due_ms(queue))

    def forget(self, queue: Queue) -> None:
        """Drop the timer of a queue that has ended, and the queue with it."""
        self._timers.forget(queue)

    def close(self) -> None:
        """Stop all timers."""
        self._timers.close()

    def run_due(self) -> None:
        """Look at the queues whose time is over."""
        self._timers.run_due()

    def is_unused(self, queue: Queue) -> bool:
        """Return whether a queue has been unused for long enough, and may be deleted here."""
        if queue.is_gone or not queue.settings.expires_ms:
            return False
        if queue.is_away or len(queue.consumers) or queue.waiting_count:
            queue.usage.touch()
        return self._due_ms(queue) <= self._clock.monotonic_ms()

    def _due_ms(self, queue: Queue) -> int:
        return queue.usage.last_ms + queue.settings.expires_ms

    def _on_due(self, queue: Queue) -> None:
        if queue.is_gone or not queue.settings.expires_ms:
            return
        if self.is_unused(queue):
            self._context.start(self._end(queue))
        else:
            self._timers.arm(queue, max(self._due_ms(queue), self._clock.monotonic_ms() + 1))

    async def _end(self, queue: Queue) -> None:
        try:
            await self._queues.delete(queue, only_unused=True)
        except TopicNotFound:  # somebody was faster
            return
        except GatewayError as error:
            _log.warning("unused queue not deleted", queue=queue.name.name, error=str(error))
        if queue.is_gone:
            _log.info("unused queue deleted", queue=queue.name.name, group=queue.group)
        else:  # it was used meanwhile, or its deletion is tried again
            now_ms = self._clock.monotonic_ms()
            self._timers.arm(queue, max(self._due_ms(queue), now_ms + RETRY_MS))
