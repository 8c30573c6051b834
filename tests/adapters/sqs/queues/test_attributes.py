"""Queue attributes: names, ranges, and their stored form."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.errors import (
    INVALID_ATTRIBUTE_NAME,
    INVALID_ATTRIBUTE_VALUE,
    OVER_LIMIT,
    UNSUPPORTED_OPERATION,
    SqsError,
)
from adapters.sqs.queues.attribute_specs import CHOICES, FIFO_ONLY, NUMBERS, SETTABLE
from adapters.sqs.queues.attributes import (
    AttributeChange,
    changed_settings,
    merge,
    new_attributes,
    new_settings,
    parse_change,
)
from adapters.sqs.queues.redrive_policies import RedriveTarget
from features.queue.model import Order
from gateway.queues.model import QueueSettings


def parse(given: dict[str, str], *, fifo: bool = False) -> AttributeChange:
    def find_target(text: str) -> RedriveTarget | None:
        return RedriveTarget("dead", 3) if text else None

    return parse_change(given, fifo=fifo, find_target=find_target)


@pytest.mark.parametrize(
    ("name", "low", "high", "field"),
    [
        ("DelaySeconds", 0, 900, "delay_ms"),
        ("MessageRetentionPeriod", 60, 1_209_600, "retention_ms"),
        ("VisibilityTimeout", 0, 43_200, "lease_ms"),
    ],
)
def test_spans_become_settings_in_milliseconds(
    name: str, low: int, high: int, field: str
) -> None:
    for value in (low, high):
        assert parse({name: str(value)}).settings == {field: value * 1_000}


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
        ("MaximumMessageSize", 1_024, 1_048_576),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
    ],
)
def test_other_numbers_are_kept_as_they_are(name: str, low: int, high: int) -> None:
    for value in (low, high):
        assert parse({name: str(value)}).attributes == {f"sqs.{name}": str(value)}


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_numbers_out_of_their_range_are_refused(name: str) -> None:
    low, high, *_ = NUMBERS[name]
    wrong = [str(low - 1), str(high + 1), "", " 5", "5 ", "1e2", "60.0", "x", "٦٠", "9" * 30]
    for value in wrong:
        with pytest.raises(SqsError) as refused:
            parse({name: value})
        assert refused.value.code is INVALID_ATTRIBUTE_VALUE
        assert refused.value.message == f"Invalid value for the parameter {name}."


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_choices_are_kept(name: str) -> None:
    for choice in CHOICES[name]:
        assert parse({name: choice}, fifo=True).attributes[f"sqs.{name}"] == choice
    for value in ("", "maybe", "true ", "messageGroups"):
        with pytest.raises(SqsError, match=f"Invalid value for the parameter {name}"):
            parse({name: value}, fifo=True)


def test_true_and_false_have_no_case() -> None:
    changed = parse({"ContentBasedDeduplication": "True"}, fifo=True)
    assert changed.attributes == {"sqs.ContentBasedDeduplication": "true"}
    with pytest.raises(SqsError):
        parse({"DeduplicationScope": "MESSAGEGROUP"}, fifo=True)


@pytest.mark.parametrize(
    "name", ["All", "QueueArn", "CreatedTimestamp", "ApproximateNumberOfMessages", "policy", ""]
)
def test_names_that_cannot_be_set_are_refused(name: str) -> None:
    with pytest.raises(SqsError) as refused:
        parse({name: "1"})
    assert refused.value.code is INVALID_ATTRIBUTE_NAME
    assert refused.value.message == f"Unknown Attribute {name}."


@pytest.mark.parametrize("name", sorted(FIFO_ONLY))
def test_standard_queues_have_no_attributes_of_fifo_queues(name: str) -> None:
    with pytest.raises(SqsError, match=f"Unknown Attribute {name}") as refused:
        parse({name: CHOICES[name][0]})
    assert refused.value.code is INVALID_ATTRIBUTE_NAME


def test_throughput_by_group_needs_deduplication_by_group() -> None:
    by_group = parse({"FifoThroughputLimit": "perMessageGroupId"}, fifo=True)
    with pytest.raises(SqsError, match="DeduplicationScope is messageGroup") as refused:
        merge({}, by_group)
    assert refused.value.code is INVALID_ATTRIBUTE_VALUE
    kept = {"sqs.DeduplicationScope": "messageGroup"}
    assert merge(kept, by_group)["sqs.FifoThroughputLimit"] == "perMessageGroupId"
    back = parse({"DeduplicationScope": "queue"}, fifo=True)
    with pytest.raises(SqsError, match="DeduplicationScope is messageGroup"):
        merge({**kept, "sqs.FifoThroughputLimit": "perMessageGroupId"}, back)


def test_a_redrive_policy_becomes_a_target_and_a_count() -> None:
    assert parse({"RedrivePolicy": "{...}"}).settings == {
        "dead_letter_topic": "dead",
        "attempts_max": 3,
    }


@pytest.mark.parametrize("name", ["Policy", "RedriveAllowPolicy", "KmsMasterKeyId"])
def test_an_empty_text_removes_what_was_kept(name: str) -> None:
    kept = {f"sqs.{name}": "x", "sqs.MaximumMessageSize": "2048", "mqtt.x": "y"}
    assert merge(kept, parse({name: ""})) == {"sqs.MaximumMessageSize": "2048", "mqtt.x": "y"}


def test_an_empty_redrive_policy_removes_the_target() -> None:
    settings = QueueSettings(dead_letter_topic="dead", attempts_max=3, lease_ms=5_000)
    changed = changed_settings(settings, parse({"RedrivePolicy": ""}))
    assert changed == QueueSettings(lease_ms=5_000)


def test_policies_are_checked_and_kept_word_for_word() -> None:
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
    text = json.dumps({"Statement": [statement]}, indent=2)
    assert parse({"Policy": text}).attributes == {"sqs.Policy": text}
    wrong = {
        "{": INVALID_ATTRIBUTE_VALUE,
        json.dumps({"Statement": [statement] * 21}): OVER_LIMIT,
        json.dumps({"Statement": {**statement, "Condition": {"x": {}}}}): UNSUPPORTED_OPERATION,
    }
    for policy, code in wrong.items():
        with pytest.raises(SqsError) as refused:
            parse({"Policy": policy})
        assert refused.value.code is code


def test_a_redrive_allow_policy_is_checked_and_kept_word_for_word() -> None:
    text = '{"redrivePermission": "denyAll"}'
    assert parse({"RedriveAllowPolicy": text}).attributes == {"sqs.RedriveAllowPolicy": text}
    with pytest.raises(SqsError, match="RedriveAllowPolicy"):
        parse({"RedriveAllowPolicy": "{}"})


@pytest.mark.parametrize("value", ["x" * 2_049, "a\x00", "\ud800"])
def test_a_key_id_is_text_of_at_most_2048_characters(value: str) -> None:
    with pytest.raises(SqsError, match="KmsMasterKeyId"):
        parse({"KmsMasterKeyId": value})
    assert parse({"KmsMasterKeyId": "x" * 2_048})


def test_only_one_kind_of_encryption_is_on() -> None:
    key = parse({"KmsMasterKeyId": "alias/aws/sqs", "KmsDataKeyReusePeriodSeconds": "600"})
    with_key = merge({}, key)
    assert with_key == {
        "sqs.KmsMasterKeyId": "alias/aws/sqs",
        "sqs.KmsDataKeyReusePeriodSeconds": "600",
        "sqs.SqsManagedSseEnabled": "false",
    }
    on = parse({"SqsManagedSseEnabled": "true"})
    assert merge(with_key, on) == {"sqs.SqsManagedSseEnabled": "true"}
    with pytest.raises(SqsError, match="one type of server-side encryption") as refused:
        parse({"SqsManagedSseEnabled": "true", "KmsMasterKeyId": "alias/aws/sqs"})
    assert refused.value.code is INVALID_ATTRIBUTE_NAME


def test_a_new_queue_is_marked_as_one_of_sqs() -> None:
    assert new_attributes(parse({})) == {"sqs.MaximumMessageSize": "1048576"}
    smaller = parse({"MaximumMessageSize": "1024", "DelaySeconds": "5"})
    assert new_attributes(smaller) == {"sqs.MaximumMessageSize": "1024"}


def test_new_queues_have_the_defaults_of_sqs() -> None:
    standard = new_settings(parse({}), fifo=False)
    assert standard == QueueSettings(order=Order.FAIR, retention_ms=345_600_000)
    assert (standard.lease_ms, standard.delay_ms) == (30_000, 0)
    assert new_settings(parse({}), fifo=True).order is Order.KEY
    short = new_settings(parse({"MessageRetentionPeriod": "60"}), fifo=False)
    assert short.retention_ms == 60_000


@given(
    st.dictionaries(
        st.sampled_from(sorted(SETTABLE - {"RedrivePolicy"})), st.text(max_size=8), max_size=4
    ),
    st.booleans(),
)
def test_any_values_are_taken_or_refused(given: dict[str, str], fifo: bool) -> None:  # noqa: FBT001
    with suppress(SqsError):  # anything else is our bug
        change = parse(given, fifo=fifo)
        merge({}, change)
        new_settings(change, fifo=fifo)
