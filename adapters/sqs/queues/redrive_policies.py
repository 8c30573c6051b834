"""RedrivePolicy and RedriveAllowPolicy: a queue's dead-letter queue, and its permission.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html
"""

import json
from typing import Any, Final, NamedTuple

from adapters.sqs.errors import INVALID_ATTRIBUTE_VALUE, SqsError, invalid_parameter
from adapters.sqs.text import quote

ATTEMPTS_MAX: Final = 1_000  # of maxReceiveCount
SOURCES_MAX: Final = 10  # of sourceQueueArns

_PERMISSIONS: Final = ("allowAll", "denyAll", "byQueue")
_REDRIVE_KEYS: Final = ("deadLetterTargetArn", "maxReceiveCount")
_ARN_PARTS: Final = 6
_SHOWN_CHARS: Final = 400


class RedriveTarget(NamedTuple):
    """Topic of a queue's dead-letter queue, and the count of receives before a move."""

    topic: str
    attempts_max: int


class RedrivePolicy(NamedTuple):
    """A well-formed RedrivePolicy; its queue need not exist."""

    target_arn: str
    attempts_max: int


def parse_redrive_policy(text: str) -> RedrivePolicy:
    """Return a parsed RedrivePolicy.

    Errors: ``InvalidParameterValue``, ``InvalidAttributeValue``.
    """
    policy = _parse_map(text)
    if policy is None:
        msg = (
            "Invalid value for the parameter RedrivePolicy. "
            "Reason: Redrive policy is not a valid JSON map."
        )
        raise SqsError(INVALID_ATTRIBUTE_VALUE, msg)
    for name in _REDRIVE_KEYS:
        if name not in policy:
            raise invalid_redrive_policy(
                text, f"Redrive policy does not contain mandatory attribute: {name}."
            )
    if len(policy) > len(_REDRIVE_KEYS):
        raise invalid_redrive_policy(
            text,
            "Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount].",
        )
    count = _parse_count(policy["maxReceiveCount"])
    if count is None:
        raise invalid_redrive_policy(
            text,
            f"Invalid value for maxReceiveCount: {quote(str(policy['maxReceiveCount']))}, "
            f"valid values are from 1 to {ATTEMPTS_MAX} both inclusive.",
        )
    arn = policy["deadLetterTargetArn"]
    if not isinstance(arn, str) or len(arn.split(":")) != _ARN_PARTS:
        raise invalid_redrive_policy(text, "Invalid value for deadLetterTargetArn.")
    return RedrivePolicy(arn, count)


def invalid_redrive_policy(text: str, reason: str) -> SqsError:
    """Return the error for a RedrivePolicy that cannot be set, with the reason."""
    shown = text[:_SHOWN_CHARS]
    msg = f"Value {shown} for parameter RedrivePolicy is invalid. Reason: {reason}"
    return invalid_parameter(msg)


def check_redrive_allow_policy(text: str) -> None:
    """Refuse an invalid RedriveAllowPolicy. Error: ``SqsError``."""
    policy = _parse_map(text)
    if (
        policy is None
        or set(policy) - {"redrivePermission", "sourceQueueArns"}
        or policy.get("redrivePermission") not in _PERMISSIONS
        or not _are_texts(policy.get("sourceQueueArns", []))
    ):
        msg = (
            "Invalid value for the parameter RedriveAllowPolicy. Reason: Amazon SQS can't create "
            "the redrive allow policy, as it's in an unsupported format."
        )
        raise SqsError(INVALID_ATTRIBUTE_VALUE, msg)
    sources = policy.get("sourceQueueArns", [])
    if policy["redrivePermission"] != "byQueue" and "sourceQueueArns" in policy:
        raise _invalid_allow_policy(
            text,
            "To specify one or more source queue ARNs, you must set redrivePermission to byQueue.",
        )
    if policy["redrivePermission"] == "byQueue" and not sources:
        raise _invalid_allow_policy(
            text,
            "When you specify the byQueue permission type, you must also specify one or more "
            "sourceQueueArns values.",
        )
    if len(sources) > SOURCES_MAX:
        raise _invalid_allow_policy(
            text, f"The maximum number of source queue ARNs you can specify is {SOURCES_MAX}."
        )


def permits_source(allow_policy: str, source_arn: str) -> bool:
    """Return whether a RedriveAllowPolicy permits a source queue.

    ``allow_policy`` was checked when it was set; an empty one allows all.
    """
    if not allow_policy:
        return True
    policy = json.loads(allow_policy)
    if policy["redrivePermission"] == "byQueue":
        return source_arn in policy["sourceQueueArns"]
    return bool(policy["redrivePermission"] == "allowAll")


def _parse_map(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _parse_count(value: object) -> int | None:
    """Return maxReceiveCount, which SDKs send as number or text; None if it is invalid."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 4:  # noqa: PLR2004 - digits of ATTEMPTS_MAX
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 1 <= value <= ATTEMPTS_MAX else None


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _invalid_allow_policy(text: str, reason: str) -> SqsError:
    msg = (
        f"Value {text[:_SHOWN_CHARS]} for parameter RedriveAllowPolicy is invalid. "
        f"Reason: Amazon SQS can't create the redrive allow policy. {reason}"
    )
    return invalid_parameter(msg)
