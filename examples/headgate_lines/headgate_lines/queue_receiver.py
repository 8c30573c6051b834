"""Messages of queues for one connection: taken, and done or given back."""

import asyncio
from typing import Final

from gateway.errors import InvalidRequest, StorageUnavailable, TopicNotFound
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.queues.manager import PendingReceive, Queue, QueueManager
from gateway.queues.model import Delivery, DeliveryId, Outcome, Result

_BYTES_MAX: Final = 1_048_576  # one message is given whatever this says


class QueueReceiver:
    """The holder of what a connection has taken; ``close`` gives it back to its queues."""

    def __init__(self, queues: QueueManager, *, wait_ms: int) -> None:
        self._queues = queues
        self._wait_ms = wait_ms
        self._holder = queues.new_holder()
        self._pending: PendingReceive | None = None
        self._used: dict[TopicName, Queue] = {}

    async def take(self, name: str) -> Delivery | None:
        """Return a message of a queue, or None when none comes in time, or its shard leaves.

        Errors: ``TopicNotFound``, ``NotLeader``, ``Overloaded``.
        """
        queue = self._find(name)
        loop = asyncio.get_running_loop()
        taken: asyncio.Future[list[Delivery]] = loop.create_future()
        self._pending = queue.receive(
            1,
            bytes_max=_BYTES_MAX,
            on_done=lambda deliveries: None if taken.done() else taken.set_result(deliveries),
            wait_ms=self._wait_ms,
            holder=self._holder,
        )
        try:
            deliveries = await taken
        except asyncio.CancelledError:
            if self._pending is not None:
                self._pending.cancel()
            raise
        self._pending = None
        return deliveries[0] if deliveries else None

    async def done(self, name: str, delivery_id: DeliveryId) -> None:
        """Remove a message that was taken; return once that is durable.

        Errors: ``TopicNotFound``; ``NotLeader`` when another node serves the queue;
        ``InvalidRequest`` when the lease is over; ``StorageUnavailable``.
        """
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[None] = loop.create_future()

        def on_settled(results: list[Result], error: StorageUnavailable | None) -> None:
            if settled.done():  # the connection may have gone
                return
            if error is not None:
                settled.set_exception(error)
            elif results[0] is not Result.DONE:
                msg = "the message is not in flight for this attempt"
                settled.set_exception(InvalidRequest(msg))
            else:
                settled.set_result(None)

        self._find(name).settle([(delivery_id, Outcome.ACK)], on_settled)
        await settled

    def hurry(self) -> None:
        """End the wait of ``take``."""
        if self._pending is not None:
            self._pending.time_over()

    def close(self) -> None:
        """Give back what was taken and is not done, in queues that this node still serves."""
        for queue in self._used.values():
            queue.end_holder(self._holder)

    def _find(self, name: str) -> Queue:
        full_name = TopicName(DEFAULT_NAMESPACE, name)
        queue = self._queues.find(full_name)
        if queue is None:
            msg = f"there is no queue {name}"
            raise TopicNotFound(msg)
        queue.check_here()
        self._used[full_name] = queue
        return queue
