"""SendMessageBatch: up to ten messages, each with its own result."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from adapters.sqs.call import Call, Params, Result
from adapters.sqs.errors import SqsError, to_sqs_error
from adapters.sqs.handlers.send_message import sender_of
from adapters.sqs.messages.batch_entries import (
    batch_result,
    check_batch_bytes,
    check_entries,
    failed_entry,
)
from adapters.sqs.messages.outgoing import (
    OutgoingMessage,
    check_batch_fifo,
    prepare,
    send_result,
)
from adapters.sqs.messages.plain_batches import send_plain_batch
from adapters.sqs.messages.sending import send
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, as_value

if TYPE_CHECKING:
    from adapters.sqs.node import SqsNode

ACTION: Final = "SendMessageBatch"


def handle(call: Call, node: "SqsNode") -> Result | None:
    """Check and send; the answer comes later, unless no entry can be sent."""
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.WRITE)
    rules = node.messages.rules_of(queue)
    entries: list[Params] = call.params["Entries"]
    check_entries(entries, "SendMessageBatchRequestEntry")
    sender, now_unix_ms = sender_of(call), node.clock.unix_ms()
    trace = call.trace
    if trace is None and send_plain_batch(call, node, queue, rules, entries, sender=sender):
        return None
    sending = _BatchSend(call)
    size_bytes = 0
    for entry in entries:
        if rules.is_fifo:
            check_batch_fifo(entry, rules)
        try:
            message = prepare(entry, rules, sender=sender, now_unix_ms=now_unix_ms, trace=trace)
        except SqsError as error:
            sending.failed.append(failed_entry(entry["Id"], as_value(error)))
            size_bytes += _size_bytes(entry)
        else:
            sending.entries.append((entry["Id"], message))
            size_bytes += message.size_bytes
    check_batch_bytes(size_bytes)
    if not sending.entries:
        return batch_result([], sending.failed)
    sending.left = len(sending.entries)
    send(node, queue, rules, [message for _, message in sending.entries], sending.on_sent)
    return None


class _BatchSend:
    """A batch with messages that are not yet durable."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.entries: list[tuple[str, OutgoingMessage]] = []
        self.failed: list[Result] = []
        self.left = 0  # messages without a result
        self._errors: dict[OutgoingMessage, GatewayError] = {}

    def on_sent(self, messages: Sequence[OutgoingMessage], error: GatewayError | None) -> None:
        """Note the result of some messages; answer after the last ones."""
        if error is not None:
            self._errors.update(dict.fromkeys(messages, error))
        self.left -= len(messages)
        if not self.left:
            self._answer()

    def _answer(self) -> None:
        """Answer; if no message was stored, the request fails as a whole.

        SDKs repeat a request that failed as a whole, but not failed entries.
        """
        successful: list[Result] = []
        last_error: GatewayError | None = None
        for entry_id, message in self.entries:
            error = self._errors.get(message)
            if error is None:
                successful.append({"Id": entry_id, **send_result(message)})
            else:
                self.failed.append(failed_entry(entry_id, to_sqs_error(error)))
                last_error = error
        if last_error is not None and not successful and last_error.retriable:
            self._call.fail(to_sqs_error(last_error))
        else:
            self._call.reply(batch_result(successful, self.failed))


def _size_bytes(entry: Params) -> int:
    """Return the bytes that a failed entry adds to the size of the batch."""
    return len(entry["MessageBody"].encode(errors="replace"))
