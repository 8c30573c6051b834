"""Appending of messages to the log: coalesced, deduplicated by id, or delayed.

There is no task and no await per message. ``OnSent`` is called once for each message, together for
messages that share an append, and never before they are as durable as the flush policy promises.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from adapters.sqs.messages.deduplication import OnPlaced, scoped_id
from adapters.sqs.messages.outgoing import OutgoingMessage
from adapters.sqs.messages.received import sequence_number
from adapters.sqs.queues.queue_rules import QueueRules
from features.dedup_ids import DedupIds, FirstSent, Pending
from gateway.errors import GatewayError, StorageUnavailable, as_value
from gateway.partition import Partition
from gateway.records.message_ids import message_id, message_ids
from gateway.records.record_run import RecordRun

if TYPE_CHECKING:
    from adapters.sqs.messages.ports import MessageNode
    from gateway.queues.manager import Queue

OnSent = Callable[[Sequence[OutgoingMessage], GatewayError | None], None]


def send(
    node: "MessageNode",
    queue: "Queue",
    rules: QueueRules,
    messages: Sequence[OutgoingMessage],
    on_sent: OnSent,
) -> None:
    """Send messages in order; messages of a batch share appends where possible.

    ``on_sent`` may run before this returns: for messages that are refused at once, and for
    repetitions of messages that were sent before.
    """
    if rules.is_fifo:
        _send_fifo(node, queue, messages, on_sent)
    elif len(messages) == 1 and messages[0].deliver_at_unix_ms is None:
        _send_run(node, queue, messages, on_sent)
    else:
        _send_batch(node, queue, messages, on_sent)


# --- standard queues


def _send_run(
    node: "MessageNode", queue: "Queue", messages: Sequence[OutgoingMessage], on_sent: OnSent
) -> None:
    """Send messages with the same key and headers."""
    first = messages[0]
    partition = queue.partition_for(first.key)
    values = [message.body for message in messages]
    run = RecordRun(first.key, values, first.headers, node.clock.unix_ms())
    on_kept = partial(_on_kept, partition, run, messages, on_sent)
    try:
        node.queues.coalescer.add(partition, run, on_kept)
    except GatewayError as error:
        on_sent(messages, as_value(error))


def _send_batch(
    node: "MessageNode", queue: "Queue", messages: Sequence[OutgoingMessage], on_sent: OnSent
) -> None:
    """Send messages with the same key and headers as one run, delayed ones by themselves."""
    now_unix_ms = node.clock.unix_ms()
    alike: dict[tuple[bytes | None, bytes], list[OutgoingMessage]] = {}
    for message in messages:
        if message.deliver_at_unix_ms is not None:
            _send_later(node, queue, message, now_unix_ms, on_sent)
        else:
            alike.setdefault((message.key, message.headers), []).append(message)
    for group in alike.values():
        _send_run(node, queue, group, on_sent)


def _send_later(
    node: "MessageNode",
    queue: "Queue",
    message: OutgoingMessage,
    now_unix_ms: int,
    on_sent: OnSent,
) -> None:
    assert message.deliver_at_unix_ms is not None
    partition = queue.partition_for(message.key)
    run = RecordRun(message.key, (message.body,), message.headers, now_unix_ms)
    run.deliver_at_unix_ms = message.deliver_at_unix_ms
    try:
        node.queues.coalescer.add(partition, run, partial(on_sent, (message,)))
    except GatewayError as error:
        on_sent((message,), as_value(error))


def _on_kept(
    partition: Partition,
    run: RecordRun,
    messages: Sequence[OutgoingMessage],
    on_sent: OnSent,
    error: StorageUnavailable | None,
) -> None:
    if error is None:
        id_at = message_ids(partition.topic.uuid, partition.number).at
        for offset, message in enumerate(messages, start=run.base_offset):
            message.message_id = id_at(offset)
    on_sent(messages, error)


# --- FIFO queues


def _send_fifo(
    node: "MessageNode", queue: "Queue", messages: Sequence[OutgoingMessage], on_sent: OnSent
) -> None:
    """Send each message, unless its id was sent within the window: then give that answer again.

    The window may have to be read from the log first.
    """
    window = node.messages.window_of(queue)
    if not window.is_ready:
        window.when_ready(partial(_on_ready, node, queue, messages, on_sent))
        return
    ids = window.ids
    now_unix_ms = node.clock.unix_ms()
    for message in messages:
        assert message.dedup_id is not None
        known_by = scoped_id(message.dedup_id.encode(), message.key, by_group=window.by_group)
        answer = partial(_on_placed, queue.topic.uuid, message, on_sent)
        found = ids.find(known_by, now_unix_ms)
        if isinstance(found, FirstSent):
            answer(found, None)
        elif found is not None:
            found.waiters.append(answer)
        else:
            run = RecordRun(message.key, (message.body,), message.headers, now_unix_ms)
            try:
                partition = queue.partition_for(message.key)
            except GatewayError as error:  # it has left while the window was read
                answer(None, as_value(error))
                continue
            _FirstSend(ids, known_by, partition, run, answer).send(node)


def _on_ready(
    node: "MessageNode",
    queue: "Queue",
    messages: Sequence[OutgoingMessage],
    on_sent: OnSent,
    error: GatewayError | None,
) -> None:
    if error is None:
        _send_fifo(node, queue, messages, on_sent)
        return
    on_sent(messages, error)


def _on_placed(
    topic_uuid: UUID,
    message: OutgoingMessage,
    on_sent: OnSent,
    place: FirstSent | None,
    error: GatewayError | None,
) -> None:
    """Answer for a message that was appended now or before (``place``), or failed."""
    if place is not None:
        message.message_id = message_id(topic_uuid, place.number, place.offset)
        message.sequence_number = sequence_number(place.offset)
    on_sent((message,), error)


class _FirstSend:
    """The first send of an id, in progress; repetitions of the id wait for its result."""

    __slots__ = ("_answer", "_ids", "_known_by", "_partition", "_pending", "_run")

    def __init__(
        self,
        ids: DedupIds[OnPlaced],
        known_by: bytes,
        partition: Partition,
        run: RecordRun,
        answer: OnPlaced,
    ) -> None:
        self._ids = ids
        self._known_by = known_by
        self._partition = partition
        self._run = run
        self._answer = answer
        self._pending: Pending[OnPlaced] | None = None

    def send(self, node: "MessageNode") -> None:
        """Add the message to the open batch; a refusal is answered at once."""
        run = self._run
        try:
            self._pending = self._ids.begin(self._known_by, run.timestamp_unix_ms)
            node.queues.coalescer.add(self._partition, run, self._on_kept)
        except GatewayError as error:
            if self._pending is not None:
                self._ids.fail(self._known_by, self._pending)
            self._answer(None, as_value(error))

    def _on_kept(self, error: StorageUnavailable | None) -> None:
        """Answer after the append; when that failed, the id may be sent again."""
        assert self._pending is not None
        place: FirstSent | None = None
        if error is None:
            place = FirstSent(self._partition.number, self._run.base_offset)
            waiters = self._ids.complete(self._known_by, self._pending, place)
        else:
            waiters = self._ids.fail(self._known_by, self._pending)
        self._answer(place, error)
        for waiter in waiters:
            waiter(place, error)
