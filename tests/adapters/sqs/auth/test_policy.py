"""Queue policies: decisions on requests, and refused documents."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.auth.policy import (
    POLICY_BYTES_MAX,
    PRINCIPALS_MAX,
    STATEMENTS_MAX,
    Decision,
    decide,
    evaluate,
    parse_policy,
)
from adapters.sqs.auth.policy_conditions import RequestContext
from adapters.sqs.call import Identity
from adapters.sqs.errors import (
    INVALID_ATTRIBUTE_VALUE,
    OVER_LIMIT,
    UNSUPPORTED_OPERATION,
    SqsError,
)
from gateway.auth.ports import ANONYMOUS, Principal

OWN = "000000000000"
OTHER = "111111111111"
ARN = f"arn:aws:sqs:us-east-1:{OWN}:orders"


def identity(user: str = "alice", account: str = OWN) -> Identity:
    return Identity(Principal(user, "sqs", "127.0.0.1"), account, "us-east-1")


def context(who: Identity | None = None) -> RequestContext:
    return RequestContext(who or identity(), 0)


def statement(**changes: Any) -> dict[str, Any]:
    fields = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": ARN}
    made = {**fields, **changes}
    return {name: value for name, value in made.items() if value is not None}


def document(*statements: Any, **changes: Any) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements), **changes})


def said(
    *statements: dict[str, Any],
    who: Identity | None = None,
    action: str = "SendMessage",
    arn: str = ARN,
) -> Decision:
    return evaluate(parse_policy(document(*statements)), context(who), action, arn)


def test_a_statement_for_everybody_speaks_of_everybody() -> None:
    for who in (identity(), identity(account=OTHER), identity(ANONYMOUS)):
        assert said(statement(), who=who) is Decision.ALLOW
        assert said(statement(Principal={"AWS": "*"}), who=who) is Decision.ALLOW


@pytest.mark.parametrize(
    "principal",
    [OTHER, f"arn:aws:iam::{OTHER}:root", [OWN, OTHER], f"arn:aws-cn:iam::{OTHER}:root"],
)
def test_an_account_is_all_of_its_users(principal: Any) -> None:
    allowed = statement(Principal={"AWS": principal})
    assert said(allowed, who=identity("bob", OTHER)) is Decision.ALLOW
    assert said(allowed, who=identity("bob", "222222222222")) is Decision.SILENT


@pytest.mark.parametrize("path", ["", "finance/", "a/b/"])
def test_a_user_is_only_that_user_of_that_account(path: str) -> None:
    allowed = statement(Principal={"AWS": f"arn:aws:iam::{OWN}:user/{path}alice"})
    assert said(allowed, who=identity("alice")) is Decision.ALLOW
    assert said(allowed, who=identity("alice", OTHER)) is Decision.SILENT
    assert said(allowed, who=identity("bob")) is Decision.SILENT


@pytest.mark.parametrize(
    "principal",
    [
        {"Service": "sns.amazonaws.com"},
        {"Federated": "cognito-identity.amazonaws.com"},
        {"CanonicalUser": "79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be"},
        {"AWS": f"arn:aws:iam::{OWN}:role/alice"},
        {"AWS": f"arn:aws:sts::{OWN}:assumed-role/alice/alice"},
    ],
)
def test_nobody_here_is_a_service_or_a_role(principal: dict[str, str]) -> None:
    for who in (identity(), identity(ANONYMOUS)):
        assert said(statement(Principal=principal), who=who) is Decision.SILENT
        assert said(statement(Principal=principal, Effect="Deny"), who=who) is Decision.SILENT


def test_a_denial_wins_whatever_comes_first() -> None:
    denied = statement(Effect="Deny", Principal={"AWS": f"arn:aws:iam::{OWN}:user/alice"})
    assert said(statement(), denied) is Decision.DENY
    assert said(denied, statement()) is Decision.DENY
    assert said(denied, statement(), who=identity("bob")) is Decision.ALLOW


def test_nobody_gains_by_leaving_his_signature_away() -> None:
    of_account = {"AWS": OWN}
    anonymous = identity(ANONYMOUS)
    assert said(statement(Principal=of_account), who=anonymous) is Decision.SILENT
    denied = statement(Principal=of_account, Effect="Deny")
    assert said(denied, who=anonymous) is Decision.DENY
    user = {"AWS": f"arn:aws:iam::{OWN}:user/alice"}
    assert said(statement(Principal=user, Effect="Deny"), who=anonymous) is Decision.DENY


@pytest.mark.parametrize("action", ["sqs:SendMessage", "SQS:sendmessage", "sqs:Send*", "*"])
def test_actions_have_wildcards_and_no_case(action: str) -> None:
    assert said(statement(Action=action)) is Decision.ALLOW
    assert said(statement(Action=action), action="SendMessageBatch") is Decision.ALLOW


@pytest.mark.parametrize("action", ["sqs:SendMessages", "sqs:SendMessag", "sqs:Receive*"])
def test_another_action_is_not_meant(action: str) -> None:
    assert said(statement(Action=["sqs:DeleteQueue", action])) is Decision.SILENT


@pytest.mark.parametrize(
    ("resource", "is_meant"),
    [
        (ARN, True),
        ("*", True),
        (f"arn:aws:sqs:*:{OWN}:*", True),
        (f"arn:aws:sqs:us-east-1:{OWN}:order?", True),
        (f"arn:aws:sqs:us-east-1:{OWN}:o*d*s", True),
        (f"arn:aws:sqs:us-east-1:{OWN}:order", False),
        (f"arn:aws:sqs:us-east-1:{OWN}:o*x*s", False),
        (f"arn:aws:sqs:us-east-1:{OWN}:ORDERS", False),
        (f"arn:aws:sqs:us-east-1:{OWN}:orders.", False),
        (f"arn.aws:sqs:us-east-1:{OWN}:orders", False),
    ],
)
def test_a_resource_may_have_wildcards(resource: str, is_meant: bool) -> None:  # noqa: FBT001
    expected = Decision.ALLOW if is_meant else Decision.SILENT
    assert said(statement(Resource=resource)) is expected
    assert said(statement(Resource=["arn:aws:sqs:x:1:y", resource])) is expected


@given(st.text(alphabet="ab*?", min_size=1, max_size=12), st.text(alphabet="ab", max_size=12))
def test_wildcards_mean_what_they_mean_to_a_plain_matcher(pattern: str, name: str) -> None:
    reached = {0}
    for sign in pattern:
        if sign == "*":
            reached = {end for at in reached for end in range(at, len(name) + 1)}
        else:
            reached = {at + 1 for at in reached if at < len(name) and sign in {"?", name[at]}}
    expected = Decision.ALLOW if len(name) in reached else Decision.SILENT
    assert said(statement(Resource=pattern), arn=name) is expected


def test_many_stars_do_not_make_matching_slow() -> None:
    policy = parse_policy(document(statement(Resource="*a" * 2_000 + "b")))
    before = time.perf_counter()
    assert evaluate(policy, context(), "SendMessage", "a" * 250) is Decision.SILENT
    assert time.perf_counter() - before < 1.0


@pytest.mark.parametrize(
    "action", ["DeleteQueue", "SetQueueAttributes", "AddPermission", "StartMessageMoveTask"]
)
def test_what_only_the_owner_may_do_is_never_shared_with_another_account(action: str) -> None:
    assert said(statement(), who=identity(), action=action) is Decision.ALLOW
    assert said(statement(), who=identity(account=OTHER), action=action) is Decision.SILENT
    denied = statement(Effect="Deny")
    assert said(denied, who=identity(account=OTHER), action=action) is Decision.DENY


def test_a_single_statement_needs_no_list() -> None:
    policy = parse_policy(json.dumps({"Statement": statement()}))
    assert evaluate(policy, context(), "SendMessage", ARN) is Decision.ALLOW


def test_the_decision_of_a_document_is_one_word() -> None:
    for effect, word in (("Allow", True), ("Deny", False)):
        text = document(statement(Effect=effect))
        assert decide(text, action="SendMessage", context=context(), arn=ARN) is word
    text = document(statement(Action="sqs:DeleteQueue"))
    assert decide(text, action="SendMessage", context=context(), arn=ARN) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "1",
        "[" * 3_000,
        document(),
        json.dumps({"Version": "2012-10-17"}),
        document(statement(), Version="2020-01-01"),
        document(statement(), Version=["2012-10-17"]),
        document(statement(), Extra=1),
        document("text"),
        document(statement(Effect="allow")),
        document(statement(Effect=None)),
        document(statement(Effect=["Allow"])),
        document(statement(Sid=1)),
        document(statement(Principal=None)),
        document(statement(Principal="alice")),
        document(statement(Principal={})),
        document(statement(Principal={"User": "alice"})),
        document(statement(Principal={"AWS": []})),
        document(statement(Principal={"AWS": "alice"})),
        document(statement(Principal={"AWS": f"arn:aws:iam::{OWN}:user/*"})),
        document(statement(Principal={"AWS": [OWN] * (PRINCIPALS_MAX + 1)})),
        document(statement(Action=None)),
        document(statement(Action=[])),
        document(statement(Action=[1])),
        document(statement(Action="s3:GetObject")),
        document(statement(Resource=None)),
        document(statement(Resource="")),
        document(statement(Extra="x")),
        document(statement(Sid="s" * POLICY_BYTES_MAX)),
    ],
)
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(SqsError, match="Invalid value for the parameter Policy") as refused:
        parse_policy(text)
    assert refused.value.code is INVALID_ATTRIBUTE_VALUE


def test_more_than_20_statements_are_over_the_limit() -> None:
    parse_policy(document(*[statement(Resource="*")] * STATEMENTS_MAX))
    with pytest.raises(SqsError, match="21 statements were found") as refused:
        parse_policy(document(*[statement(Resource="*")] * (STATEMENTS_MAX + 1)))
    assert refused.value.code is OVER_LIMIT


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("NotPrincipal", {"Principal": None, "NotPrincipal": {"AWS": OTHER}}),
        ("NotAction", {"Action": None, "NotAction": "sqs:DeleteQueue"}),
        ("NotResource", {"Resource": None, "NotResource": "*"}),
        ("A variable", {"Resource": "arn:aws:sqs:us-east-1:1:${aws:username}"}),
    ],
)
def test_what_could_not_be_enforced_is_refused(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(SqsError, match=f"^{name} in a policy is not supported") as refused:
        parse_policy(document(statement(**changes)))
    assert refused.value.code is UNSUPPORTED_OPERATION


def test_a_condition_for_services_is_kept_because_it_concerns_nobody() -> None:
    for_sns = statement(
        Principal={"Service": "sns.amazonaws.com"},
        Condition={"NewOperator": {"sns:Key": "arn:aws:sns:us-east-1:000000000000:t"}},
    )
    assert said(for_sns) is Decision.SILENT
    assert said(for_sns, statement(Action="sqs:SendMessage")) is Decision.ALLOW


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["Version", "Statement", "Effect", "Principal", "AWS", "Action"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_a_policy_or_refused(value: Any) -> None:
    with suppress(SqsError):  # anything else is our bug
        parse_policy(json.dumps(value))
