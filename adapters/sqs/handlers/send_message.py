"""SendMessage: send one message; answered when it is durable in the log."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from adapters.sqs.call import Call
from adapters.sqs.errors import to_sqs_error
from adapters.sqs.messages.outgoing import OutgoingMessage, prepare, send_result
from adapters.sqs.messages.sending import send
from gateway.auth.ports import Operation
from gateway.errors import GatewayError

if TYPE_CHECKING:
    from adapters.sqs.node import SqsNode

ACTION: Final = "SendMessage"


def handle(call: Call, node: "SqsNode") -> None:
    """Check and send; the answer comes later."""
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.WRITE)
    rules = node.messages.rules_of(queue)
    message = prepare(
        call.params,
        rules,
        sender=sender_of(call),
        now_unix_ms=node.clock.unix_ms(),
        trace=call.trace,
    )
    send(node, queue, rules, (message,), partial(_on_sent, call))


def sender_of(call: Call) -> str:
    """Return the SenderId of a caller's messages; empty for anonymous."""
    principal = call.identity.principal
    return "" if principal.is_anonymous else principal.name


def _on_sent(
    call: Call, messages: Sequence[OutgoingMessage], error: GatewayError | None
) -> None:
    if error is None:
        call.reply(send_result(messages[0]))
    else:
        call.fail(to_sqs_error(error))
