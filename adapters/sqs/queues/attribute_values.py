"""Values of a queue's attributes: for GetQueueAttributes, and for comparison."""

import json
from collections.abc import Mapping

from adapters.sqs.mapping import MS_PER_S
from adapters.sqs.queues.attribute_specs import (
    CHOICES,
    FIFO_ONLY,
    NUMBERS,
    PREFIX,
    TEXTS,
    NumberSpec,
)
from adapters.sqs.queues.names import is_fifo_name
from features.queue.model import Counts
from gateway.queues.manager import Queue


def describe(queue: Queue, *, arn: str, target_arn: str, counts: Counts) -> dict[str, str]:
    """Return all attributes. ``target_arn`` is the dead-letter queue's ARN, or empty."""
    found = {
        "ApproximateNumberOfMessages": str(counts.ready),
        "ApproximateNumberOfMessagesDelayed": str(counts.delayed),
        "ApproximateNumberOfMessagesNotVisible": str(counts.in_flight),
        "CreatedTimestamp": str(queue.created_unix_ms // MS_PER_S),
        "LastModifiedTimestamp": str(queue.changed_unix_ms // MS_PER_S),
        "QueueArn": arn,
    }
    return {**found, **describe_settable(queue, target_arn=target_arn)}


def describe_settable(queue: Queue, *, target_arn: str) -> dict[str, str]:
    """Return the settable attributes of a queue, default values included."""
    kept = queue.attributes
    found = {
        name: str(_number_of(queue, name, number))
        for name, number in NUMBERS.items()
        if name != "KmsDataKeyReusePeriodSeconds" or "sqs.KmsMasterKeyId" in kept
    }
    is_fifo = is_fifo_name(queue.topic.name.name)
    for name, (default, *_) in CHOICES.items():
        if is_fifo or name not in FIFO_ONLY:
            found[name] = kept.get(PREFIX + name, default)
    if is_fifo:
        found["FifoQueue"] = "true"
    found |= {name: kept[PREFIX + name] for name in TEXTS if PREFIX + name in kept}
    if target_arn and queue.settings.attempts_max:  # otherwise only rejected messages go there
        found["RedrivePolicy"] = json.dumps(
            {
                "deadLetterTargetArn": target_arn,
                "maxReceiveCount": queue.settings.attempts_max,
            },
            separators=(",", ":"),
        )
    return found


def _number_of(queue: Queue, name: str, number: NumberSpec) -> int:
    if not number.setting:
        return int(queue.attributes.get(PREFIX + name, number.default))
    value_ms: int = getattr(queue.settings, number.setting)
    if value_ms < 0:
        return number.high  # unlimited, which SQS cannot express: its longest instead
    # Other protocols set milliseconds; a part of a second counts as one.
    return min(-(-value_ms // MS_PER_S), number.high)


def find_difference(wanted: Mapping[str, str], present: Mapping[str, str]) -> str | None:
    """Return an attribute whose value in a request differs from the queue's, or None.

    ``wanted`` was checked. What the request does not name may be as it likes.
    """
    for name, value in wanted.items():
        if _canonical(name, value) != _canonical(name, present.get(name, "")):
            return name
    return None


def _canonical(name: str, value: str) -> object:
    """Return a form that is equal for equivalent values."""
    if value and name in {"Policy", "RedriveAllowPolicy", "RedrivePolicy"}:
        parsed = json.loads(value)
        if name == "RedrivePolicy":
            return parsed["deadLetterTargetArn"], int(parsed["maxReceiveCount"])
        return parsed
    if name in NUMBERS and value:
        return int(value)
    return value.lower() if name in {*CHOICES, "FifoQueue"} else value
