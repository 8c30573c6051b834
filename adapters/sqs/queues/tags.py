"""Checks of queue tags.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html
"""

from collections.abc import Iterable, Mapping
from typing import Final

from adapters.sqs.errors import invalid_parameter
from adapters.sqs.text import to_bytes

TAGS_MAX: Final = 50
KEY_CHARS_MAX: Final = 128
VALUE_CHARS_MAX: Final = 256
RESERVED_PREFIX: Final = "aws:"


def check_tag_keys(keys: Iterable[str]) -> None:
    """Refuse keys that are empty, too long, or not text of SQS."""
    for key in keys:
        if not 1 <= len(key) <= KEY_CHARS_MAX or to_bytes(key) is None:
            raise invalid_parameter(
                f"Tag keys must be between 1 and {KEY_CHARS_MAX} characters in length."
            )


def merge_tags(
    queue_name: str, tags: Mapping[str, str], added: Mapping[str, str]
) -> dict[str, str]:
    """Return a queue's tags with further ones; equal keys are replaced.

    Errors: ``InvalidParameterValue``, also above ``TAGS_MAX``.
    """
    check_tag_keys(added)
    for key, value in added.items():
        if key.lower().startswith(RESERVED_PREFIX):
            raise invalid_parameter(f"Tag keys cannot start with {RESERVED_PREFIX}")
        if len(value) > VALUE_CHARS_MAX or to_bytes(value) is None:
            raise invalid_parameter(
                f"Tag values must be between 0 and {VALUE_CHARS_MAX} characters in length."
            )
    merged = {**tags, **added}
    if len(merged) > TAGS_MAX:
        raise invalid_parameter(f"Too many tags added for queue {queue_name}.")
    return merged
