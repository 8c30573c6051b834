"""ReceiveMessage: up to ten messages, at once or within a wait time."""

from typing import TYPE_CHECKING, Final

from adapters.sqs.call import Call, Params
from adapters.sqs.errors import invalid_parameter
from adapters.sqs.mapping import MS_PER_S
from adapters.sqs.messages.outgoing import check_id
from adapters.sqs.messages.receive_request import ReceiveRequest
from adapters.sqs.messages.received import parse_selection
from adapters.sqs.messages.visibility import check_timeout
from adapters.sqs.queues.queue_rules import QueueRules
from adapters.sqs.text import quote
from gateway.auth.ports import Operation

if TYPE_CHECKING:
    from adapters.sqs.node import SqsNode

ACTION: Final = "ReceiveMessage"
MESSAGES_MAX: Final = 10
WAIT_S_MAX: Final = 20


def handle(call: Call, node: "SqsNode") -> None:
    """Check and begin to receive; answers when messages have come or the wait is over."""
    params = call.params
    queue = node.queue_of(call, url=params["QueueUrl"])
    node.authorize(call, queue, Operation.READ)
    rules = node.messages.rules_of(queue)
    attempt_id = _attempt_id(params, rules)
    lease_s = params.get("VisibilityTimeout")
    if lease_s is not None:
        check_timeout(lease_s)
    lease_ms = None if lease_s is None else lease_s * MS_PER_S
    selection, count, wait_ms = parse_selection(params), _count(params), _wait_ms(params, rules)
    receiving = ReceiveRequest(
        call,
        node,
        queue,
        selection=selection,
        count=count,
        lease_ms=lease_ms,
        wait_ms=wait_ms,
        is_fifo=rules.is_fifo,
        attempt_id=attempt_id,
    )
    if attempt_id is not None:
        now_unix_ms = node.clock.steady_unix_ms()
        attempt = node.messages.attempts.find(queue.topic.uuid, attempt_id, now_unix_ms)
        if attempt is not None:
            node.messages.run(call, receiving.repeat(attempt))
            return
    receiving.start()


def _count(params: Params) -> int:
    count: int | None = params.get("MaxNumberOfMessages")
    if count is None:
        return 1
    if not 1 <= count <= MESSAGES_MAX:
        raise invalid_parameter(
            f"Value {count} for parameter MaxNumberOfMessages is invalid. Reason: Must be "
            f"between 1 and {MESSAGES_MAX}, if provided.",
        )
    return count


def _wait_ms(params: Params, rules: QueueRules) -> int:
    wait_s: int | None = params.get("WaitTimeSeconds")
    if wait_s is None:
        return rules.receive_wait_ms
    if not 0 <= wait_s <= WAIT_S_MAX:
        raise invalid_parameter(
            f"Value {wait_s} for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and "
            f"<= {WAIT_S_MAX}, if provided.",
        )
    return wait_s * MS_PER_S


def _attempt_id(params: Params, rules: QueueRules) -> str | None:
    """Return the id of the attempt, for FIFO queues only. Error: ``SqsError``."""
    attempt_id: str | None = params.get("ReceiveRequestAttemptId")
    if attempt_id is None:
        return None
    if not rules.is_fifo:
        raise invalid_parameter(
            f"Value {quote(attempt_id)} for parameter ReceiveRequestAttemptId is invalid. Reason: "
            "The request includes a parameter that is not valid for this queue type.",
        )
    check_id("ReceiveRequestAttemptId", attempt_id)
    return attempt_id
