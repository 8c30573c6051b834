"""Parts of CreateQueue and SetQueueAttributes: new queues, dead-letter targets, FifoQueue."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from adapters.sqs.call import Call
from adapters.sqs.errors import INVALID_ATTRIBUTE_NAME, INVALID_ATTRIBUTE_VALUE, SqsError
from adapters.sqs.queues.attributes import (
    FindTarget,
    new_attributes,
    new_settings,
    parse_change,
)
from adapters.sqs.queues.names import is_fifo_name
from adapters.sqs.queues.ports import QueueNode
from adapters.sqs.queues.redrive_policies import (
    RedriveTarget,
    invalid_redrive_policy,
    parse_redrive_policy,
    permits_source,
)
from adapters.sqs.queues.tags import merge_tags
from adapters.sqs.queues.urls import QueueAddress, parse_queue_arn
from gateway.auth.ports import Operation
from gateway.model import TopicName
from gateway.queues.manager import Queue
from gateway.queues.model import QueueSettings

REDRIVE_ALLOW_POLICY: Final = "sqs.RedriveAllowPolicy"


class NewQueue(NamedTuple):
    """Settings, attributes and tags of a new queue."""

    settings: QueueSettings
    attributes: dict[str, str]
    tags: dict[str, str]


def new_queue(
    text: str,
    given: Mapping[str, str],
    tags: Mapping[str, str],
    *,
    fifo: bool,
    find_target: FindTarget,
) -> NewQueue:
    """Return the parts of a new queue, with CreateQueue's defaults.

    Errors: ``SqsError``, those of ``parse_change``, ``check_throughput`` and ``merge_tags``.
    """
    change = parse_change(given, fifo=fifo, find_target=find_target)
    return NewQueue(
        new_settings(change, fifo=fifo), new_attributes(change), merge_tags(text, {}, tags)
    )


def is_fifo_requested(given: Mapping[str, str]) -> bool:
    """Return whether FifoQueue is set for a new queue. Its only legal value is ``true``."""
    value = given.get("FifoQueue")
    if value is None:
        return False
    if value.lower() == "false":
        raise SqsError(INVALID_ATTRIBUTE_NAME, "Unknown Attribute FifoQueue.")
    if value.lower() != "true":
        raise SqsError(INVALID_ATTRIBUTE_VALUE, "Invalid value for the parameter FifoQueue.")
    return True


def check_fifo_stays(given: Mapping[str, str], *, fifo: bool) -> None:
    """Refuse a FifoQueue that would change the kind of a queue."""
    value = given.get("FifoQueue")
    if value is None:
        return
    if not fifo:
        raise SqsError(INVALID_ATTRIBUTE_NAME, "Unknown Attribute FifoQueue.")
    if value.lower() != "true":
        msg = (
            "Invalid value for the parameter FifoQueue. "
            "Reason: Modifying queue type is not supported."
        )
        raise SqsError(INVALID_ATTRIBUTE_VALUE, msg)


def dead_letter_finder(
    node: QueueNode, name: TopicName, call: Call | None = None, queue: Queue | None = None
) -> FindTarget:
    """Return a function that finds the dead-letter queue of a RedrivePolicy of ``name``.

    The caller of ``call`` must be allowed to send to the dead-letter queue, because messages sent
    to ``name`` may end there, unless it is the dead-letter queue of ``queue`` already.
    """

    def find_target(text: str) -> RedriveTarget | None:
        if not text:
            return None
        policy = parse_redrive_policy(text)
        address = _address_of(node, name, text, policy.target_arn)
        if call is not None:
            _check_permission(node, call, address, queue)
        return RedriveTarget(
            _find_topic(node, name, text, policy.target_arn, address), policy.attempts_max
        )

    return find_target


def _check_permission(
    node: QueueNode, call: Call, address: QueueAddress, queue: Queue | None
) -> None:
    """Refuse a target that the caller is not allowed to send to. Error: ``SqsError``."""
    target = TopicName(node.namespace(address.account, address.region), address.name)
    if (
        queue is None
        or (queue.topic.name.namespace, queue.settings.dead_letter_topic) != target
    ):
        found = node.queues.find(target)
        node.authorize(call, found or target, Operation.WRITE, action="SendMessage")


def _address_of(node: QueueNode, name: TopicName, text: str, target_arn: str) -> QueueAddress:
    """Return the address of a target's ARN, if it is a legal target for ``name``."""
    source, target = node.address_of(name), parse_queue_arn(target_arn)
    if target is None:
        raise invalid_redrive_policy(text, "Invalid value for deadLetterTargetArn.")
    if target.account != source.account:
        raise invalid_redrive_policy(
            text, "Dead-letter target owner should be same as the source."
        )
    if target.region != source.region:
        raise invalid_redrive_policy(
            text, "Dead-letter target region should be same as the source."
        )
    if target == source:
        raise invalid_redrive_policy(text, "Dead-letter target is the source itself.")
    if is_fifo_name(target.name) != is_fifo_name(source.name):
        raise invalid_redrive_policy(
            text, "Dead-letter queue must be same type of queue as the source."
        )
    return target


def _find_topic(
    node: QueueNode, name: TopicName, text: str, target_arn: str, target: QueueAddress
) -> str:
    queue = node.queue_by_arn(target_arn)
    if queue is None:
        raise invalid_redrive_policy(text, "Dead letter target does not exist.")
    if not permits_source(
        queue.attributes.get(REDRIVE_ALLOW_POLICY, ""), node.arn_of_name(name)
    ):
        raise invalid_redrive_policy(
            text,
            "The redrive allow policy of the dead-letter queue does not permit the source.",
        )
    return target.name


def target_arn_of(node: QueueNode, name: TopicName, dead_letter_topic: str) -> str:
    """Return the ARN of a queue's dead-letter queue, or an empty text."""
    if not dead_letter_topic:
        return ""
    return node.arn_of_name(TopicName(name.namespace, dead_letter_topic))
