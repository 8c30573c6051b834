"""State of message handlers, per queue and in memory; it is dropped with the queue's topic.

It holds the rules of each queue, parsed once per change, and for FIFO queues the window of
deduplication ids and the receive attempts that may be repeated. None of it has to survive a
restart: windows are rebuilt from the log.
"""

import asyncio
from collections.abc import Collection, Coroutine
from typing import TYPE_CHECKING
from uuid import UUID

from adapters.sqs.call import Call
from adapters.sqs.config import SqsConfig
from adapters.sqs.errors import SqsError, to_sqs_error
from adapters.sqs.mapping import MS_PER_S
from adapters.sqs.messages.deduplication import DeduplicationWindow, OnPlaced
from adapters.sqs.messages.receipt_handles import ReceiptHandles
from adapters.sqs.messages.receive_attempts import ReceiveAttempts
from adapters.sqs.queues.queue_rules import QueueRules, parse_rules
from features.dedup_ids import DedupIds, IdBudget
from gateway.errors import GatewayError, as_value
from gateway.kernel import Kernel
from gateway.placement import shard_of
from gateway.topics.manager import Topic

if TYPE_CHECKING:
    from gateway.queues.manager import Queue


class _QueueState:
    """Rules of a queue, the database row that they were parsed from, and its receipt handles."""

    __slots__ = ("receipts", "row", "rules")

    def __init__(
        self, queue: "Queue", secret: bytes, reserved_prefixes: tuple[str, ...]
    ) -> None:
        self.row = queue.row
        self.receipts = ReceiptHandles(secret, queue.topic.uuid)
        self.rules = parse_rules(
            queue.name.name, queue.attributes, queue.settings.delay_ms, reserved_prefixes
        )


class MessageState:
    """State of all queues, made with the node. Loop only."""

    def __init__(self, kernel: Kernel, config: SqsConfig, secret: bytes) -> None:
        self._kernel = kernel
        self._secret = secret
        self._dedup_ms = config.dedup_s * MS_PER_S
        self._room = IdBudget(config.dedup_ids_max)
        self._states: dict[UUID, _QueueState] = {}
        self._windows: dict[UUID, DeduplicationWindow] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.attempts = ReceiveAttempts(attempts_max=config.receive_attempts_max)
        kernel.topics.on_deleted.append(self._on_deleted)
        self._placement = kernel.broker.placement
        self.open_shards = set(kernel.broker.shards.owned())
        kernel.broker.shards.register(self)

    @property
    def dedup_ids_used(self) -> int:
        """Count of remembered deduplication ids of all queues."""
        return self._room.used

    def rules_of(self, queue: "Queue") -> QueueRules:
        """Return the rules of a queue."""
        return self._state_of(queue).rules

    def receipt_handles_of(self, queue: "Queue") -> ReceiptHandles:
        """Return the encoder and decoder of a queue's receipt handles."""
        return self._state_of(queue).receipts

    def _state_of(self, queue: "Queue") -> _QueueState:
        state = self._states.get(queue.topic.uuid)
        if state is None or state.row is not queue.row:  # a change makes another row
            state = self._states[queue.topic.uuid] = _QueueState(
                queue, self._secret, self._kernel.contributions.header_prefixes
            )
        return state

    def window_of(self, queue: "Queue") -> DeduplicationWindow:
        """Return the queue's window; if it is not ready, it is being read from the log."""
        by_group = self.rules_of(queue).dedup_by_group
        before = window = self._windows.get(queue.topic.uuid)
        if window is None or window.queue is not queue or window.by_group is not by_group:
            ids: DedupIds[OnPlaced] = DedupIds(window_ms=self._dedup_ms, room=self._room)
            window = self._windows[queue.topic.uuid] = DeduplicationWindow(
                queue, ids, by_group=by_group
            )
            if before is not None:
                self._replace(before, window)
        if window.purged_ends is not queue.purged_ends:
            window.purge(queue.purged_ends)
        if not window.is_ready:
            # Messages from before the queue's creation are not in the queue.
            now_unix_ms = self._kernel.clock.unix_ms()
            since_unix_ms = max(now_unix_ms - self._dedup_ms, queue.created_unix_ms)
            window.start(self._kernel.broker, queue.topic, range(since_unix_ms, now_unix_ms))
        return window

    def _replace(self, before: DeduplicationWindow, window: DeduplicationWindow) -> None:
        if before.queue is not window.queue:  # the queue was created again on its topic
            before.close()
            return
        self._kernel.queues.coalescer.seal()  # so that the log has the messages of ``before``
        for on_ready in before.take_waiting():
            window.when_ready(on_ready)

    def run(self, call: Call, work: Coroutine[None, None, None]) -> None:
        """Serve a rare call that waits in a task. An error is the call's answer."""
        task = asyncio.get_running_loop().create_task(_serve(call, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Cancel all tasks and close all windows when the node stops."""
        for task in self._tasks:
            task.cancel()
        for window in self._windows.values():
            window.close()
        self._windows.clear()
        self._states.clear()
        self._kernel.broker.shards.unregister(self)
        if self._on_deleted in self._kernel.topics.on_deleted:
            self._kernel.topics.on_deleted.remove(self._on_deleted)

    # --- ShardState: another node may serve the queues of a shard that leaves, and take ids

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: windows are read from the log when they are asked for."""
        self.open_shards.update(shards)

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: all that is kept is in the log."""

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: forget the ids and attempts of queues with a partition there."""
        self.open_shards.difference_update(shards)
        for uuid in [*self._windows, *self.attempts.topics()]:
            topic = self._kernel.topics.by_uuid(uuid)
            if topic is not None and any(
                shard_of(topic, number, self._placement) in shards
                for number in range(len(topic.partition_ids))
            ):
                self._on_deleted(topic)

    def _on_deleted(self, topic: Topic) -> None:
        self._states.pop(topic.uuid, None)
        self.attempts.forget_topic(topic.uuid)
        window = self._windows.pop(topic.uuid, None)
        if window is not None:
            window.close()


async def _serve(call: Call, work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except SqsError as error:
        call.fail(as_value(error))
    except GatewayError as error:
        call.fail(to_sqs_error(error))
