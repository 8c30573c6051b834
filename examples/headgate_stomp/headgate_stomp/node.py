"""The node's part of STOMP, shared by all connections: queues that it makes, and positions."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final
from uuid import UUID, uuid4

from gateway.budget import Budget
from gateway.errors import GatewayError, TopicNotFound
from gateway.exchanges.manager import Binding
from gateway.exchanges.manager import Destination as BoundTo
from gateway.kernel import Kernel
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.queues.create_queue import make_queue
from gateway.queues.manager import Queue
from gateway.queues.model import QueueSettings
from gateway.storage import OnDone
from gateway.topics.manager import Topic
from headgate_stomp.config import StompConfig
from headgate_stomp.destinations import Destination
from headgate_stomp.positions import TopicPositions

TEMPORARY: Final = "stomp.temporary"
"""Attribute of a queue that ends with its session: the id of the session's node."""


class StompNode:
    """State of the endpoint. Loop only; ``start`` comes first."""

    positions: TopicPositions

    def __init__(self, config: StompConfig, kernel: Kernel) -> None:
        self.config = config
        self.kernel = kernel
        self.reserved = kernel.contributions.header_prefixes
        """Prefixes of headers that clients cannot set."""
        self.budget = Budget("request", config.request_bytes_budget)
        self.live_subscribers: set[tuple[UUID, str]] = set()
        """Durable subscriptions to topics that a connection has now: a topic's uuid, a name."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Load the positions; delete queues of sessions that a crash has ended.

        Errors: ``GatewayError``.
        """
        kernel = self.kernel
        self.positions = await TopicPositions.open(
            kernel.broker,
            kernel.topics,
            kernel.clock,
            positions_max=self.config.positions_max,
        )
        for queue in kernel.queues.queues():
            if queue.attributes.get(TEMPORARY) == self._node_id:
                await kernel.queues.delete(queue)

    async def stop(self) -> None:
        """Wait for deletions that have begun, and follow shards no more."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.positions.close()

    def call_soon(self, on_done: OnDone) -> None:
        """Call back that nothing has to be written."""
        asyncio.get_running_loop().call_soon(on_done, None)

    @property
    def _node_id(self) -> str:
        return str(self.kernel.placement.node_id)

    # --- queues and topics

    def find_queue(self, name: TopicName) -> Queue | None:
        """Return a queue."""
        return self.kernel.queues.find(name)

    def get_queue(self, name: TopicName) -> Queue:
        """Return a queue. Error: ``TopicNotFound``."""
        queue = self.find_queue(name)
        if queue is None:
            msg = f"there is no queue {name.name}"
            raise TopicNotFound(msg)
        return queue

    async def make_queue(self, name: TopicName, attributes: dict[str, str]) -> Queue:
        """Return a queue, made unless it is there. Errors: those of ``make_queue``."""
        kernel = self.kernel
        try:
            return self.find_queue(name) or await make_queue(
                kernel.queues, kernel.topics, name, QueueSettings(), attributes=attributes
            )
        except GatewayError:
            made_meanwhile = self.find_queue(name)  # by another connection
            if made_meanwhile is None:
                raise
            return made_meanwhile

    async def make_temporary_queue(self) -> Queue:
        """Make a queue that ends with a session: ``delete_soon``. Errors: ``GatewayError``."""
        name = TopicName(DEFAULT_NAMESPACE, f"stomp-gen-{uuid4().hex}")
        making = asyncio.ensure_future(self.make_queue(name, {TEMPORARY: self._node_id}))
        try:
            return await asyncio.shield(making)
        except (
            asyncio.CancelledError
        ):  # the connection has gone; the queue is made all the same
            making.add_done_callback(self._delete_made)
            raise

    def _delete_made(self, making: asyncio.Future[Queue]) -> None:
        if not making.cancelled() and making.exception() is None:
            self.delete_soon(making.result())

    def delete_soon(self, queue: Queue) -> None:
        """Delete a queue; nobody waits for it."""
        if not queue.is_gone:
            self._start(self._delete(queue))

    async def _delete(self, queue: Queue) -> None:
        if not queue.is_gone:
            await self.kernel.queues.delete(queue)

    async def bind(self, source: Destination, queue: Queue) -> None:
        """Let an exchange route to a queue. Errors: those of ``Exchanges.bind``."""
        binding = Binding(source.name, BoundTo(queue.name.name), source.key)
        await self.kernel.exchanges.bind(DEFAULT_NAMESPACE, binding)

    async def topic(self, name: TopicName) -> Topic:
        """Return a topic, made if allowed. Errors: those of ``TopicManager.auto_create``."""
        topics = self.kernel.topics
        return topics.find(name) or await topics.auto_create(name)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a queue that could not be deleted goes at the next start
