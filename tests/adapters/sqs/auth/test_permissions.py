"""AddPermission and RemovePermission edit a policy."""

import json
from typing import Any

import pytest

from adapters.sqs.auth.permissions import add_permission, remove_permission
from adapters.sqs.auth.policy import SHARED_ACTIONS, parse_policy
from adapters.sqs.errors import (
    INVALID_PARAMETER_VALUE,
    MISSING_PARAMETER,
    OVER_LIMIT,
    ErrorCode,
    SqsError,
)

ARN = "arn:aws:sqs:us-east-1:000000000000:orders"
ALICE = "111111111111"
BOB = "222222222222"


def add(document: str = "", **changes: Any) -> str:
    fields: dict[str, Any] = {
        "label": "share",
        "accounts": [ALICE],
        "actions": ["SendMessage"],
        "arn": ARN,
    }
    return add_permission(document, **{**fields, **changes})


def test_the_first_permission_makes_a_policy() -> None:
    assert json.loads(add()) == {
        "Version": "2008-10-17",
        "Id": f"{ARN}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "share",
                "Effect": "Allow",
                "Principal": {"AWS": f"arn:aws:iam::{ALICE}:root"},
                "Action": "SQS:SendMessage",
                "Resource": ARN,
            }
        ],
    }


def test_several_accounts_and_actions_are_lists() -> None:
    text = add(accounts=[ALICE, BOB], actions=["SendMessage", "*"])
    [statement] = json.loads(text)["Statement"]
    assert statement["Principal"]["AWS"] == [
        f"arn:aws:iam::{ALICE}:root",
        f"arn:aws:iam::{BOB}:root",
    ]
    assert statement["Action"] == ["SQS:SendMessage", "SQS:*"]


def test_what_was_in_the_policy_stays() -> None:
    text = add(add(), label="other", accounts=[BOB])
    assert [statement["Sid"] for statement in json.loads(text)["Statement"]] == [
        "share",
        "other",
    ]


def test_every_action_that_can_be_shared_makes_a_policy_that_can_be_read() -> None:
    for action in (*SHARED_ACTIONS, "*"):
        assert len(parse_policy(add(actions=[action]))) == 1


def test_a_label_is_there_once() -> None:
    with pytest.raises(SqsError, match="Value share for parameter Label is invalid") as refused:
        add(add())
    assert refused.value.message.endswith("Reason: Already exists.")


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"label": ""}, MISSING_PARAMETER, "parameter Label"),
        ({"label": "a b"}, INVALID_PARAMETER_VALUE, "parameter Label is invalid"),
        ({"label": "x" * 81}, INVALID_PARAMETER_VALUE, "parameter Label is invalid"),
        ({"accounts": []}, INVALID_PARAMETER_VALUE, r"Value \[\] for parameter PrincipalId"),
        ({"accounts": [ALICE, "alice"]}, INVALID_PARAMETER_VALUE, r"Value \[alice\] for"),
        ({"actions": []}, MISSING_PARAMETER, "parameter Actions"),
        ({"actions": ["CreateQueue"]}, INVALID_PARAMETER_VALUE, "Only the queue owner"),
        ({"actions": ["Nothing"]}, INVALID_PARAMETER_VALUE, "Value SQS:Nothing for"),
        ({"actions": ["SendMessage"] * 8}, OVER_LIMIT, "^8 Actions were found"),
    ],
)
def test_wrong_permissions_are_refused(
    changes: dict[str, Any], code: ErrorCode, words: str
) -> None:
    with pytest.raises(SqsError, match=words) as refused:
        add(**changes)
    assert refused.value.code is code


def test_seven_actions_are_allowed() -> None:
    assert len(json.loads(add(actions=sorted(SHARED_ACTIONS)[:7]))["Statement"]) == 1


def test_more_than_20_permissions_are_over_the_limit() -> None:
    document = ""
    for index in range(20):
        document = add(document, label=f"label-{index}", actions=["*"])
    with pytest.raises(SqsError, match="max allowed is 20") as refused:
        add(document, label="one-more")
    assert refused.value.code is OVER_LIMIT


def test_a_permission_is_removed_by_its_label() -> None:
    document = add(add(), label="other", accounts=[BOB])
    left = remove_permission(document, "share")
    [statement] = json.loads(left)["Statement"]
    assert statement["Sid"] == "other"
    assert remove_permission(left, "other") == ""


@pytest.mark.parametrize("document", ["", add(label="other")])
def test_a_label_that_is_not_there_cannot_be_removed(document: str) -> None:
    with pytest.raises(SqsError, match="can't find label") as refused:
        remove_permission(document, "share")
    assert refused.value.code is INVALID_PARAMETER_VALUE
