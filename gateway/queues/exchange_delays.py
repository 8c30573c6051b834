"""Messages that waited at a delayed exchange: routed when they are due, once.

They wait in the delays of the internal topic ``__exchange_delays``, with a partition for each
shard. When they are due they are appended to it, and a queue on it hands them to the exchange: the
append to the topics of that time and their end in the queue are one decision, as for dead letters.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from gateway.errors import GatewayError, StorageUnavailable
from gateway.model import TopicName
from gateway.placement import Placement
from gateway.queues.manager import Queue, QueueManager
from gateway.queues.model import Delivery, Outcome, QueueSettings, Result
from gateway.topics.internal import internal_topic
from gateway.topics.manager import Topic, TopicManager

TOPIC: Final = TopicName("__exchanges", "__exchange_delays")
CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "queue",
    "delay.max.ms": str((1 << 32) - 1),  # the largest x-delay
    "max.message.bytes": str(16 * 1024 * 1024),
}
ROUTED_MAX: Final = 128
"""Messages routed in one step."""
RECEIVE_BYTES_MAX: Final = 1 << 20
WAIT_MS: Final = 60_000
RETRY_S: Final = 1.0
DUE: Final = "due"

_log = structlog.get_logger()


class ExchangeDelays:
    """Consumer of the queue of due messages. Loop only."""

    def __init__(self, queues: QueueManager, topic: Topic) -> None:
        self.topic = topic
        """The topic in whose delays messages wait."""
        self._queues = queues
        self._queue: Queue
        self._loop = asyncio.get_running_loop()
        self._starting: asyncio.Task[None] | None = None
        self._is_closed = False

    @classmethod
    async def open(
        cls, queues: QueueManager, topics: TopicManager, placement: Placement
    ) -> "ExchangeDelays":
        """Return the consumer, with its topic, which is made at the first start."""
        topic = await internal_topic(topics, TOPIC, placement.shard_count, CONFIGS)
        queues.dead_letters.due_topic = topic
        return cls(queues, topic)

    def start(self) -> None:
        """Begin to route due messages; at the first start once the queue is made.

        The node's start does not wait for that: a storage may gather appends for a minute.
        """
        self._starting = self._loop.create_task(self._start())

    async def _start(self) -> None:
        while (queue := self._queues.find(TOPIC)) is None:
            try:
                await self._queues.create(self.topic, QueueSettings(), from_start=True)
            except GatewayError as error:
                _log.warning("no queue of due messages yet", error=str(error))
                await asyncio.sleep(RETRY_S)
        self._queue = queue
        self._receive()

    def close(self) -> None:
        """Route no more."""
        self._is_closed = True
        if self._starting is not None:
            self._starting.cancel()

    def _receive(self) -> None:
        if self._is_closed:
            return
        try:
            self._queue.receive(
                ROUTED_MAX,
                bytes_max=RECEIVE_BYTES_MAX,
                wait_ms=WAIT_MS,
                on_done=self._on_messages,
            )
        except GatewayError as error:
            _log.warning("due messages are not routed", error=str(error))
            self._loop.call_later(RETRY_S, self._receive)

    def _on_messages(self, deliveries: Sequence[Delivery]) -> None:
        if self._is_closed:
            return
        if not deliveries:
            if self._queue.is_gone or self._queue.is_away:  # it answers at once
                self._loop.call_later(RETRY_S, self._receive)
            else:
                self._loop.call_soon(self._receive)
            return
        items = [(one.delivery_id, Outcome.REJECT) for one in deliveries]
        self._queue.settle(items, self._on_routed, reason=DUE)

    def _on_routed(self, results: Sequence[Result], error: StorageUnavailable | None) -> None:
        del results, error  # those that could not be routed are tried again by the queue
        self._loop.call_soon(self._receive)
