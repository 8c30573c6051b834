"""Queue attributes with their ranges and defaults.

Source: SetQueueAttributes and CreateQueue in the API reference.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from adapters.sqs.mapping import MESSAGE_BYTES_MAX

PREFIX: Final = "sqs."  # of the names of stored attributes
KMS_KEY_CHARS_MAX: Final = 2_048
ALL: Final = "All"


class NumberSpec(NamedTuple):
    """A numeric attribute. ``setting`` is the field, in milliseconds, that stores it."""

    low: int
    high: int
    default: int
    setting: str = ""


NUMBERS: Final[Mapping[str, NumberSpec]] = {
    "DelaySeconds": NumberSpec(0, 900, 0, "delay_ms"),
    "KmsDataKeyReusePeriodSeconds": NumberSpec(60, 86_400, 300),
    "MaximumMessageSize": NumberSpec(1_024, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX),
    "MessageRetentionPeriod": NumberSpec(60, 1_209_600, 345_600, "retention_ms"),
    "ReceiveMessageWaitTimeSeconds": NumberSpec(0, 20, 0),
    "VisibilityTimeout": NumberSpec(0, 43_200, 30, "lease_ms"),
}

# The first is the default.
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "ContentBasedDeduplication": ("false", "true"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
    "SqsManagedSseEnabled": ("true", "false"),
}

FIFO_ONLY: Final = frozenset(
    {"ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"}
)
TEXTS: Final = frozenset({"KmsMasterKeyId", "Policy", "RedriveAllowPolicy"})
SETTABLE: Final = (
    frozenset(NUMBERS) | frozenset(CHOICES) | TEXTS | {"FifoQueue", "RedrivePolicy"}
)
COMPUTED: Final = frozenset(
    {
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
        "CreatedTimestamp",
        "LastModifiedTimestamp",
        "QueueArn",
    }
)
NAMES: Final = SETTABLE | COMPUTED
