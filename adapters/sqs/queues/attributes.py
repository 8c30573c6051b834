"""Mapping of SQS queue attributes to the gateway's settings and units.

    attribute                       unit  stored as
    VisibilityTimeout               s     settings.lease_ms
    DelaySeconds                    s     settings.delay_ms
    MessageRetentionPeriod          s     settings.retention_ms
    RedrivePolicy                   JSON  settings.dead_letter_topic, settings.attempts_max
    FifoQueue                             settings.order, and the queue's name
    MaximumMessageSize              bytes  attributes["sqs.MaximumMessageSize"]
    ReceiveMessageWaitTimeSeconds   s     attributes["sqs.ReceiveMessageWaitTimeSeconds"]
    all other settable attributes         attributes["sqs.<name>"]

Only attributes that were set are stored, except MaximumMessageSize, which marks a queue of SQS. All
attributes of a request are checked before any changes. Source: SetQueueAttributes in the API
reference.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from adapters.sqs.auth.policy import parse_policy
from adapters.sqs.errors import INVALID_ATTRIBUTE_NAME, INVALID_ATTRIBUTE_VALUE, SqsError
from adapters.sqs.mapping import MS_PER_S
from adapters.sqs.queues.attribute_specs import (
    CHOICES,
    FIFO_ONLY,
    KMS_KEY_CHARS_MAX,
    NUMBERS,
    PREFIX,
    SETTABLE,
    TEXTS,
)
from adapters.sqs.queues.redrive_policies import RedriveTarget, check_redrive_allow_policy
from adapters.sqs.text import to_bytes
from features.queue.model import Order
from gateway.queues.model import QueueSettings

_INTEGER_DIGITS_MAX: Final = 9
_MARK: Final = "sqs.MaximumMessageSize"

# Finds the dead-letter queue of a RedrivePolicy; None for "", which removes the policy.
FindTarget = Callable[[str], RedriveTarget | None]


class AttributeChange(NamedTuple):
    """A change of a queue: fields of the settings, and attributes (None removes one)."""

    settings: dict[str, int | str]
    attributes: dict[str, str | None]


def parse_change(
    given: Mapping[str, str], *, fifo: bool, find_target: FindTarget
) -> AttributeChange:
    """Return the change of a queue for the attributes of a request.

    ``FifoQueue`` changes nothing; the caller has to check it. Errors: ``InvalidAttributeName``,
    ``InvalidAttributeValue``, those of ``parse_policy`` and ``find_target``.
    """
    check_settable(given, fifo=fifo)
    change = AttributeChange({}, {})
    for name, value in given.items():
        if name in NUMBERS:
            _set_number(change, name, _parse_number(name, value))
        elif name in CHOICES:
            change.attributes[PREFIX + name] = _parse_choice(name, value)
        elif name in TEXTS:
            change.attributes[PREFIX + name] = _check_text(name, value) or None
        elif name == "RedrivePolicy":
            target = find_target(value)
            change.settings["dead_letter_topic"] = target.topic if target else ""
            change.settings["attempts_max"] = target.attempts_max if target else 0
    _check_encryption(given, change)
    return change


def check_settable(given: Mapping[str, str], *, fifo: bool) -> None:
    """Refuse unknown names, and names of FIFO queues for standard queues."""
    for name in given:
        if name not in SETTABLE:
            raise SqsError(INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name[:200]}.")
        if name in FIFO_ONLY and not fifo:
            msg = f"Unknown Attribute {name}. Should be used only with FIFO Queues."
            raise SqsError(INVALID_ATTRIBUTE_NAME, msg)


def check_throughput(attributes: Mapping[str, str | None]) -> None:
    """Refuse contradictory attributes of high throughput."""
    if (
        attributes.get("sqs.FifoThroughputLimit") == "perMessageGroupId"
        and attributes.get("sqs.DeduplicationScope") != "messageGroup"
    ):
        msg = (
            "Invalid value for the parameter FifoThroughputLimit. Reason: The perMessageGroupId "
            "value is allowed only when the value for DeduplicationScope is messageGroup."
        )
        raise SqsError(INVALID_ATTRIBUTE_VALUE, msg)


def merge(kept: Mapping[str, str], change: AttributeChange) -> dict[str, str]:
    """Return a queue's attributes after a change. Error: as ``check_throughput``."""
    merged = {**kept, **change.attributes}
    left = {name: value for name, value in merged.items() if value is not None}
    check_throughput(left)
    return left


def new_attributes(change: AttributeChange) -> dict[str, str]:
    """Return the attributes of a new queue. Error: as ``check_throughput``."""
    return merge({_MARK: str(NUMBERS["MaximumMessageSize"].default)}, change)


def new_settings(change: AttributeChange, *, fifo: bool) -> QueueSettings:
    """Return the settings of a new queue."""
    retention_ms = NUMBERS["MessageRetentionPeriod"].default * MS_PER_S
    fields: dict[str, object] = {"retention_ms": retention_ms, **change.settings}
    return QueueSettings(order=Order.KEY if fifo else Order.FAIR, **fields)


def changed_settings(settings: QueueSettings, change: AttributeChange) -> QueueSettings:
    """Return a queue's settings after a change."""
    return settings.model_copy(update=dict(change.settings))


def _set_number(change: AttributeChange, name: str, value: int) -> None:
    number = NUMBERS[name]
    if number.setting:
        change.settings[number.setting] = value * MS_PER_S
    else:
        change.attributes[PREFIX + name] = str(value)


def _parse_number(name: str, value: str) -> int:
    number = NUMBERS[name]
    if not (value.isascii() and value.isdigit() and len(value) <= _INTEGER_DIGITS_MAX):
        raise _invalid(name)
    if not number.low <= int(value) <= number.high:
        raise _invalid(name)
    return int(value)


def _parse_choice(name: str, value: str) -> str:
    found = value.lower() if value.lower() in {"true", "false"} else value
    if found not in CHOICES[name]:
        raise _invalid(name)
    return found


def _check_text(name: str, value: str) -> str:
    """Return a text to store; an empty text removes the attribute."""
    if to_bytes(value) is None:
        raise _invalid(name)
    if value and name == "Policy":
        parse_policy(value)
    elif value and name == "RedriveAllowPolicy":
        check_redrive_allow_policy(value)
    elif len(value) > KMS_KEY_CHARS_MAX and name == "KmsMasterKeyId":
        raise _invalid(name)
    return value


def _check_encryption(given: Mapping[str, str], change: AttributeChange) -> None:
    """Allow one kind of encryption only: switching one on switches the other off."""
    sse_is_on = given.get("SqsManagedSseEnabled", "").lower() == "true"
    key = given.get("KmsMasterKeyId", "")
    if sse_is_on and key:
        msg = (
            "You can use one type of server-side encryption (SSE) at one time. "
            "You can either enable KMS SSE or SQS SSE."
        )
        raise SqsError(INVALID_ATTRIBUTE_NAME, msg)
    if sse_is_on:
        change.attributes["sqs.KmsMasterKeyId"] = None
        change.attributes["sqs.KmsDataKeyReusePeriodSeconds"] = None
    elif key:
        change.attributes["sqs.SqsManagedSseEnabled"] = "false"


def _invalid(name: str) -> SqsError:
    return SqsError(INVALID_ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}.")
