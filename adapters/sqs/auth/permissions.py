"""Edits of a queue's policy by AddPermission and RemovePermission: one statement per label."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from adapters.sqs.auth.policy import SHARED_ACTIONS, parse_document, parse_policy
from adapters.sqs.errors import OVER_LIMIT, SqsError, invalid_parameter, missing_parameter
from adapters.sqs.text import is_account

ACTIONS_MAX: Final = 7  # of one statement
ALL_ACTIONS: Final = "*"

_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_VERSION: Final = "2008-10-17"


def add_permission(
    document: str, *, label: str, accounts: Sequence[str], actions: Sequence[str], arn: str
) -> str:
    """Return the policy with one more statement; ``document`` is empty when there was none.

    Errors: ``MissingParameter``, ``InvalidParameterValue``, ``OverLimit`` (actions of the
    statement, or statements), ``InvalidAttributeValue`` for a policy that would be too large.
    """
    _check_label(label)
    _check_accounts(accounts)
    _check_actions(actions)
    policy: dict[str, Any] = (
        parse_document(document)
        if document
        else {"Version": _VERSION, "Id": f"{arn}/SQSDefaultPolicy", "Statement": []}
    )
    if any(statement.get("Sid") == label for statement in policy["Statement"]):
        raise _invalid("Label", label, "Already exists.")
    policy["Statement"].append(
        {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {
                "AWS": _one_or_all([f"arn:aws:iam::{account}:root" for account in accounts])
            },
            "Action": _one_or_all([f"SQS:{action}" for action in actions]),
            "Resource": arn,
        }
    )
    text = json.dumps(policy)
    parse_policy(text)  # checks the limits of a policy
    return text


def remove_permission(document: str, label: str) -> str:
    """Return the policy without the statement of a label, empty when none is left.

    Errors: ``MissingParameter``, ``InvalidParameterValue``.
    """
    _check_label(label)
    policy: dict[str, Any] = parse_document(document) if document else {"Statement": []}
    kept = [statement for statement in policy["Statement"] if statement.get("Sid") != label]
    if len(kept) == len(policy["Statement"]):
        raise _invalid("Label", label, "can't find label.")
    return json.dumps({**policy, "Statement": kept}) if kept else ""


def _check_label(label: str) -> None:
    if not label:
        raise missing_parameter("Label")
    if not _LABEL.fullmatch(label):
        raise _invalid(
            "Label",
            label,
            "Can only include alphanumeric characters, hyphens, or underscores. "
            "1 to 80 in length",
        )


def _check_accounts(accounts: Sequence[str]) -> None:
    unknown = [account for account in accounts if not is_account(account)]
    if not accounts or unknown:
        raise _invalid("PrincipalId", f"[{', '.join(unknown)}]", "Unable to verify.")


def _check_actions(actions: Sequence[str]) -> None:
    if not actions:
        raise missing_parameter("Actions")
    if len(actions) > ACTIONS_MAX:
        msg = f"{len(actions)} Actions were found, maximum allowed is {ACTIONS_MAX}."
        raise SqsError(OVER_LIMIT, msg)
    for action in actions:
        if action not in SHARED_ACTIONS and action != ALL_ACTIONS:
            raise _invalid(
                "ActionName",
                f"SQS:{action}",
                "Only the queue owner is allowed to invoke this action.",
            )


def _one_or_all(texts: list[str]) -> str | list[str]:
    return texts[0] if len(texts) == 1 else texts


def _invalid(name: str, value: str, reason: str) -> SqsError:
    msg = f"Value {value[:200]} for parameter {name} is invalid. Reason: {reason}"
    return invalid_parameter(msg)
