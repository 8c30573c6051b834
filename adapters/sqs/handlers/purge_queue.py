"""PurgeQueue: drop all messages of a queue, also those in flight or delayed; once per minute.

Delayed messages are dropped only if the topic was created for the queue; on another topic they may
belong to others. A FIFO queue forgets the deduplication ids of the dropped messages.
"""

from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.errors import PURGE_QUEUE_IN_PROGRESS, SqsError, to_sqs_error
from adapters.sqs.node import SqsNode
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, StorageUnavailable, as_value
from gateway.queues.manager import Queue

ACTION: Final = "PurgeQueue"


def handle(call: Call, node: SqsNode) -> Result | None:
    """Purge, and answer when the purge is durable."""
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.DELETE)
    name = queue.name
    if name in node.purged:
        msg = (
            f"Only one PurgeQueue operation on {name.name} is allowed every "
            f"{node.config.purge_s} seconds."
        )
        raise SqsError(PURGE_QUEUE_IN_PROGRESS, msg)
    purge = _Purge(call, node, queue)
    if queue.owns_topic:
        node.delays.purge(queue.topic, purge.delayed_are_gone)
    else:
        queue.purge(purge.all_are_gone)
    node.purged.add(name)
    return None


class _Purge:
    """A purge in progress: delayed messages first, so that they do not come back, then the rest."""

    def __init__(self, call: Call, node: SqsNode, queue: Queue) -> None:
        self._call = call
        self._node = node
        self._queue = queue

    def delayed_are_gone(self, error: StorageUnavailable | None) -> None:
        if error is not None:
            self.all_are_gone(error)
            return
        try:
            self._queue.purge(self.all_are_gone)
        except StorageUnavailable as unavailable:
            self.all_are_gone(as_value(unavailable))

    def all_are_gone(self, error: StorageUnavailable | None) -> None:
        if error is None and self._node.messages.rules_of(self._queue).is_fifo:
            self._node.messages.run(self._call, self._answer_kept())
        elif error is None:
            self._call.reply({})
        else:
            self._node.purged.discard(self._queue.name)  # it may be tried again at once
            self._call.fail(to_sqs_error(error))

    async def _answer_kept(self) -> None:
        """Answer when a restart will not read the ids of purged messages from the log."""
        node = self._node
        try:
            await node.changes.make(node.queues.keep_purge, self._queue)
        except GatewayError:
            node.purged.discard(self._queue.name)
            raise
        self._call.reply({})
