"""Conditions of policies: tests of a request, and of keys that it does not have."""

from typing import Any

import pytest

from adapters.sqs.auth.policy_conditions import RequestContext, holds, parse_condition
from adapters.sqs.call import Identity
from adapters.sqs.errors import INVALID_ATTRIBUTE_VALUE, UNSUPPORTED_OPERATION, SqsError
from gateway.auth.ports import ANONYMOUS, Principal

NOON = 1_700_000_000_000  # 2023-11-14T22:13:20Z
TOPIC = "arn:aws:sns:us-east-1:000000000000:news"
ALICE = "arn:aws:iam::000000000000:user/alice"


def context(
    user: str = "alice", *, host: str = "10.1.2.3", is_tls: bool = False, now: int = NOON
) -> RequestContext:
    principal = Principal(user, "sqs", host)
    return RequestContext(Identity(principal, "000000000000", "us-east-1"), now, is_tls=is_tls)


def met(
    operator: str,
    key: str,
    value: Any,
    by: RequestContext | None = None,
    *,
    allows: bool = True,
) -> bool:
    condition = parse_condition({operator: {key: value}})
    return holds(condition, by or context(), allows=allows)


@pytest.mark.parametrize("operator", ["Bool", "bool", "BoolIfExists"])
@pytest.mark.parametrize("key", ["aws:SecureTransport", "AWS:securetransport"])
def test_tls_is_told_from_none(operator: str, key: str) -> None:
    for is_tls in (True, False):
        by = context(is_tls=is_tls)
        assert met(operator, key, "true", by) is is_tls
        assert met(operator, key, "False", by) is not is_tls
        assert met(operator, key, is_tls, by)


@pytest.mark.parametrize(
    ("host", "networks", "is_within"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.9.9.9/8", True),
        ("10.1.2.3", ["192.168.0.0/16", "10.1.2.0/24"], True),
        ("10.1.2.3", "10.1.3.0/24", False),
        ("::ffff:10.1.2.3", "10.1.2.0/24", True),
        ("2001:db8::7", "2001:db8::/32", True),
        ("2001:db8::7", "0.0.0.0/0", False),
        ("", "0.0.0.0/0", False),
    ],
)
def test_an_address_is_within_a_network(
    host: str,
    networks: Any,
    is_within: bool,  # noqa: FBT001
) -> None:
    assert met("IpAddress", "aws:SourceIp", networks, context(host=host)) is is_within
    assert met("NotIpAddress", "aws:SourceIp", networks, context(host=host)) is not is_within


@pytest.mark.parametrize(
    ("operator", "value", "is_met"),
    [
        ("DateLessThan", "2023-11-15T00:00:00Z", True),
        ("DateLessThan", "2023-11-14T22:13:20Z", False),
        ("DateLessThanEquals", "2023-11-14T22:13:20Z", True),
        ("DateGreaterThan", "2023-11-14", True),
        ("DateGreaterThanEquals", "2023-11-14T23:13:20+01:00", True),
        ("DateEquals", 1_700_000_000, True),
        ("DateNotEquals", "1700000000", False),
        ("NumericLessThan", 1_700_000_001, True),
        ("NumericGreaterThan", "1700000000", False),
        ("NumericEquals", ["1", "1700000000.0"], True),
        ("NumericNotEquals", ["1", "1700000000"], False),
    ],
)
def test_times_are_compared(operator: str, value: Any, is_met: bool) -> None:  # noqa: FBT001
    assert met(operator, "aws:EpochTime", value) is is_met
    if operator.startswith("Date"):
        assert met(operator, "aws:CurrentTime", value) is is_met


@pytest.mark.parametrize(
    ("operator", "key", "value", "is_met"),
    [
        ("StringEquals", "aws:username", "alice", True),
        ("StringEquals", "aws:username", ["bob", "alice"], True),
        ("StringEquals", "aws:username", "Alice", False),
        ("StringEqualsIgnoreCase", "aws:username", "Alice", True),
        ("StringNotEquals", "aws:username", ["bob", "alice"], False),
        ("StringNotEquals", "aws:username", ["bob", "carol"], True),
        ("StringNotEqualsIgnoreCase", "aws:username", "ALICE", False),
        ("StringLike", "aws:username", "a*c?", True),
        ("StringNotLike", "aws:username", "a*", False),
        ("ArnLike", "aws:PrincipalArn", "arn:aws:iam::*:user/*", True),
        ("ArnEquals", "aws:PrincipalArn", ALICE, True),
        ("ArnLike", "aws:PrincipalArn", "arn:aws:*:user/alice", False),
        ("ArnLike", "aws:PrincipalArn", "*", True),
        ("ArnNotLike", "aws:PrincipalArn", "arn:aws:iam::*:role/*", True),
        ("ArnNotEquals", "aws:PrincipalArn", ALICE, False),
        ("StringEquals", "aws:PrincipalAccount", "000000000000", True),
        ("StringEquals", "aws:RequestedRegion", "us-east-1", True),
        ("Bool", "aws:PrincipalIsAWSService", "false", True),
        ("ForAnyValue:StringEquals", "aws:username", "alice", True),
        ("ForAllValues:StringEquals", "aws:username", "bob", False),
    ],
)
def test_who_asks_is_compared(operator: str, key: str, value: Any, is_met: bool) -> None:  # noqa: FBT001
    assert met(operator, key, value) is is_met


@pytest.mark.parametrize(
    ("operator", "is_met"),
    [
        ("ArnEquals", False),
        ("ArnLike", False),
        ("StringLike", False),
        ("ArnNotEquals", True),
        ("StringNotLike", True),
        ("ArnLikeIfExists", True),
        ("StringNotEqualsIfExists", True),
        ("ForAllValues:ArnLike", True),
        ("ForAnyValue:ArnLike", False),
        ("ForAnyValue:ArnNotLike", False),
        ("ForAnyValue:ArnLikeIfExists", True),
    ],
)
def test_what_only_services_bring_is_absent(operator: str, is_met: bool) -> None:  # noqa: FBT001
    for key in ("aws:SourceArn", "aws:PrincipalOrgID", "aws:PrincipalTag/team"):
        assert met(operator, key, [TOPIC, "*"]) is is_met


def test_null_asks_whether_a_key_is_there() -> None:
    for key, is_there in (("aws:SourceArn", False), ("aws:SourceIp", True)):
        assert met("Null", key, "true") is not is_there
        assert met("Null", key, ["false"]) is is_there


def test_all_tests_have_to_hold() -> None:
    both = parse_condition(
        {
            "StringEquals": {"aws:username": "alice", "aws:RequestedRegion": "us-east-1"},
            "IpAddress": {"aws:SourceIp": "10.0.0.0/8"},
        }
    )
    assert holds(both, context(), allows=True)
    assert not holds(both, context("bob"), allows=True)
    assert not holds(both, context(host="192.168.1.1"), allows=True)
    assert holds(parse_condition({}), context(), allows=True)


@pytest.mark.parametrize("operator", ["StringEquals", "StringNotEquals", "StringLikeIfExists"])
def test_nobody_gains_by_leaving_his_signature_away(operator: str) -> None:
    nobody = context(ANONYMOUS)
    assert not met(operator, "aws:username", "bob", nobody, allows=True)
    assert met(operator, "aws:username", "bob", nobody, allows=False)


@pytest.mark.parametrize(
    "condition",
    [
        {"BinaryEquals": {"aws:username": "x"}},
        {"StringEqual": {"aws:username": "x"}},
        {"NullIfExists": {"aws:username": "true"}},
        {"ForSomeValues:StringEquals": {"aws:username": "x"}},
        {"StringEquals": {"aws:ResourceTag/team": "x"}},
        {"StringEquals": {"sns:Protocol": "x"}},
        {"StringEquals": {"aws:username": "${aws:userid}"}},
    ],
)
def test_what_nobody_could_answer_is_refused(condition: dict[str, Any]) -> None:
    with pytest.raises(SqsError, match="in a policy is not supported") as refused:
        parse_condition(condition)
    assert refused.value.code is UNSUPPORTED_OPERATION


@pytest.mark.parametrize(
    "condition",
    [
        [],
        "x",
        {"StringEquals": "x"},
        {"StringEquals": {"aws:username": []}},
        {"StringEquals": {"aws:username": None}},
        {"StringEquals": {"aws:username": [{}]}},
        {"Bool": {"aws:SecureTransport": "no"}},
        {"Null": {"aws:SourceArn": ["true", "false"]}},
        {"IpAddress": {"aws:SourceIp": "10.0.0.0/33"}},
        {"NumericEquals": {"aws:EpochTime": "NaN"}},
        {"NumericEquals": {"aws:EpochTime": "soon"}},
        {"DateLessThan": {"aws:CurrentTime": "tomorrow"}},
    ],
)
def test_what_is_no_condition_is_refused(condition: Any) -> None:
    with pytest.raises(SqsError, match="Invalid value for the parameter Policy") as refused:
        parse_condition(condition)
    assert refused.value.code is INVALID_ATTRIBUTE_VALUE
