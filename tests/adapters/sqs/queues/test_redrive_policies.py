"""Legal values of RedrivePolicy and RedriveAllowPolicy."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.errors import INVALID_ATTRIBUTE_VALUE, INVALID_PARAMETER_VALUE, SqsError
from adapters.sqs.http import json_codec
from adapters.sqs.queues.redrive_policies import (
    RedrivePolicy,
    check_redrive_allow_policy,
    parse_redrive_policy,
    permits_source,
)

ARN = "arn:aws:sqs:us-east-1:000000000000:dead"


def redrive(**changes: Any) -> str:
    fields = {"deadLetterTargetArn": ARN, "maxReceiveCount": 3, **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not None})


def allow(permission: Any = None, sources: Any = None, **more: Any) -> str:
    fields = {"redrivePermission": permission, "sourceQueueArns": sources, **more}
    return json.dumps({name: value for name, value in fields.items() if value is not None})


@pytest.mark.parametrize("count", [1, 3, 1_000, "1", "1000"])
def test_the_count_is_1_to_1000_as_a_number_or_a_text(count: int | str) -> None:
    assert parse_redrive_policy(redrive(maxReceiveCount=count)) == RedrivePolicy(
        ARN, int(count)
    )


@pytest.mark.parametrize("count", [0, 1_001, -1, "0", "1001", "", "x", 1.5, True, [], "1" * 99])
def test_other_counts_are_refused(count: Any) -> None:
    text = redrive(maxReceiveCount=count)
    with pytest.raises(SqsError, match="valid values are from 1 to 1000") as refused:
        parse_redrive_policy(text)
    assert refused.value.code is INVALID_PARAMETER_VALUE
    assert refused.value.message.startswith(
        f"Value {text[:400]} for parameter RedrivePolicy is invalid. Reason: "
    )


@pytest.mark.parametrize("count", ["\ud800", "x" * 5_000])
def test_an_error_quotes_what_can_be_answered(count: str) -> None:
    with pytest.raises(SqsError) as refused:
        parse_redrive_policy(redrive(maxReceiveCount=count))
    assert refused.value.message.isascii() or "\ufffd" in refused.value.message
    assert len(json_codec.encode_error(refused.value)) < 2_000


@pytest.mark.parametrize("name", ["maxReceiveCount", "deadLetterTargetArn"])
def test_both_members_are_mandatory(name: str) -> None:
    with pytest.raises(SqsError, match=f"mandatory attribute: {name}") as refused:
        parse_redrive_policy(redrive(**{name: None}))
    assert refused.value.code is INVALID_PARAMETER_VALUE


@pytest.mark.parametrize("arn", ["dummy", "", 1, "a:b:c:d:e", "a:b:c:d:e:f:g"])
def test_the_target_is_an_arn(arn: Any) -> None:
    with pytest.raises(SqsError, match="Invalid value for deadLetterTargetArn"):
        parse_redrive_policy(redrive(deadLetterTargetArn=arn))


def test_there_are_no_other_members() -> None:
    with pytest.raises(SqsError, match="Only following attributes are supported"):
        parse_redrive_policy(redrive(more=1))


@pytest.mark.parametrize("text", ["x", "[]", "1", "null", "{" * 3_000])
def test_it_is_a_json_map(text: str) -> None:
    with pytest.raises(SqsError, match="not a valid JSON map") as refused:
        parse_redrive_policy(text)
    assert refused.value.code is INVALID_ATTRIBUTE_VALUE


@pytest.mark.parametrize(
    ("text", "is_permitted"),
    [
        ("", True),
        (allow("allowAll"), True),
        (allow("denyAll"), False),
        (allow("byQueue", [ARN]), True),
        (allow("byQueue", ["arn:aws:sqs:us-east-1:000000000000:other"] * 10), False),
    ],
)
def test_who_may_use_the_queue_for_dead_letters(
    text: str,
    is_permitted: bool,  # noqa: FBT001
) -> None:
    if text:
        check_redrive_allow_policy(text)
    assert permits_source(text, ARN) is is_permitted


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "[]",
        allow(),
        allow("allow"),
        allow(["allowAll"]),
        allow("allowAll", more=1),
        allow("byQueue", ARN),
        allow("byQueue", [1]),
    ],
)
def test_what_is_no_redrive_allow_policy_is_refused(text: str) -> None:
    with pytest.raises(SqsError, match="in an unsupported format") as refused:
        check_redrive_allow_policy(text)
    assert refused.value.code is INVALID_ATTRIBUTE_VALUE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (allow("allowAll", [ARN]), "you must set redrivePermission to byQueue"),
        (allow("denyAll", []), "you must set redrivePermission to byQueue"),
        (allow("byQueue"), "you must also specify one or more"),
        (allow("byQueue", []), "you must also specify one or more"),
        (allow("byQueue", [ARN] * 11), "you can specify is 10"),
    ],
)
def test_a_redrive_allow_policy_does_not_contradict_itself(text: str, words: str) -> None:
    with pytest.raises(SqsError, match=words) as refused:
        check_redrive_allow_policy(text)
    assert refused.value.code is INVALID_PARAMETER_VALUE


@given(
    st.dictionaries(
        st.sampled_from(
            ["redrivePermission", "sourceQueueArns", "deadLetterTargetArn", "maxReceiveCount"]
        ),
        st.none() | st.integers() | st.text(max_size=5) | st.lists(st.text(max_size=3)),
    )
)
def test_any_json_is_taken_or_refused(value: Any) -> None:
    for parse in (parse_redrive_policy, check_redrive_allow_policy):
        with suppress(SqsError):  # anything else is our bug
            parse(json.dumps(value))
