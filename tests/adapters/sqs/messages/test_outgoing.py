"""Parameters of SendMessage: every rule and its error."""

from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.errors import (
    INVALID_MESSAGE_CONTENTS,
    INVALID_PARAMETER_VALUE,
    MISSING_PARAMETER,
    ErrorCode,
    SqsError,
)
from adapters.sqs.messages.outgoing import (
    OutgoingMessage,
    check_batch_fifo,
    prepare,
    send_result,
)
from adapters.sqs.queues.queue_rules import QueueRules, parse_rules
from adapters.sqs.text import to_bytes
from gateway.records.codec import encode_headers

NOW = 1_700_000_000_000
STANDARD = QueueRules()
FIFO = QueueRules(is_fifo=True)
BY_CONTENT = QueueRules(is_fifo=True, content_based_deduplication=True)


def send(rules: QueueRules = STANDARD, /, **params: Any) -> OutgoingMessage:
    entry = {"MessageBody": "body", **params}
    return prepare(entry, rules, sender="", now_unix_ms=NOW)


def check_refusal(
    code: ErrorCode, message: str, rules: QueueRules = STANDARD, /, **params: Any
) -> None:
    with pytest.raises(SqsError) as caught:
        send(rules, **params)
    assert caught.value.code is code
    assert message in caught.value.message


def test_plain_message_has_no_headers_and_no_key() -> None:
    message = send()

    assert (message.body, message.key, message.headers) == (b"body", None, encode_headers(()))
    assert message.deliver_at_unix_ms is None


def test_answer_has_the_digests_of_what_was_sent() -> None:
    fields = {"DataType": "String", "StringValue": "There"}
    message = send(
        MessageBody="message-body-1",
        MessageAttributes={"Hello": fields},
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": "R"}},
    )
    message.message_id = "id"

    result = send_result(message)

    assert result["MD5OfMessageBody"] == "19c9e282d65f9733bc6b35d50062c7ee"
    assert result["MD5OfMessageAttributes"] == "a311262e065454b75da111d535b8dacd"
    assert len(result["MD5OfMessageSystemAttributes"]) == 32
    assert "SequenceNumber" not in result


def test_empty_body_is_refused() -> None:
    check_refusal(MISSING_PARAMETER, "must contain the parameter MessageBody", MessageBody="")


def test_characters_outside_xml_are_refused() -> None:
    check_refusal(
        INVALID_MESSAGE_CONTENTS,
        "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD",
        MessageBody="a\x00",
    )


def test_body_and_attributes_up_to_the_queues_bound_are_taken() -> None:
    rules = QueueRules(message_bytes_max=1_024)
    attributes = {"ab": {"DataType": "String", "StringValue": "cd"}}

    assert send(rules, MessageBody="é" * 507, MessageAttributes=attributes).size_bytes == 1_024
    check_refusal(
        INVALID_PARAMETER_VALUE,
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
        rules,
        MessageBody="é" * 507 + "x",
        MessageAttributes=attributes,
    )


def test_body_alone_up_to_the_queues_bound_is_taken() -> None:
    rules = QueueRules(message_bytes_max=1_024)

    assert send(rules, MessageBody="é" * 512).size_bytes == 1_024
    check_refusal(
        INVALID_PARAMETER_VALUE,
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
        rules,
        MessageBody="é" * 512 + "x",
    )


# --- delays


def test_delay_of_its_own_makes_a_message_wait_with_an_id_of_its_own() -> None:
    message = send(DelaySeconds=900)

    assert message.deliver_at_unix_ms == NOW + 900_000
    assert str(UUID(message.message_id)) == message.message_id
    assert message.headers == encode_headers((("message-id", message.message_id.encode()),))


def test_delay_that_is_the_queues_own_is_none() -> None:
    assert send(QueueRules(delay_ms=5_000), DelaySeconds=5).deliver_at_unix_ms is None
    assert send(STANDARD, DelaySeconds=0).headers == encode_headers(())


def test_no_delay_wins_over_the_queues() -> None:
    message = send(QueueRules(delay_ms=5_000), DelaySeconds=0)

    assert message.deliver_at_unix_ms is None
    assert message.headers == encode_headers((("deliver-at", b"%d" % NOW),))


@pytest.mark.parametrize("delay_s", [-1, 901])
def test_delay_outside_its_range_is_refused(delay_s: int) -> None:
    check_refusal(
        INVALID_PARAMETER_VALUE,
        f"Value {delay_s} for parameter DelaySeconds is invalid. Reason: DelaySeconds must be "
        ">= 0 and <= 900.",
        DelaySeconds=delay_s,
    )


# --- groups and deduplication


def test_group_is_the_key_on_standard_queues_too() -> None:
    assert send(MessageGroupId="tenant-1").key == b"tenant-1"


@pytest.mark.parametrize("group", ["", "a b", "é", "x" * 129, "a\n"])
def test_bad_group_is_refused(group: str) -> None:
    check_refusal(
        INVALID_PARAMETER_VALUE,
        "MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128",
        MessageGroupId=group,
    )


def test_all_punctuation_is_taken() -> None:
    ids = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" + "x" * 96

    message = send(FIFO, MessageGroupId=ids, MessageDeduplicationId=ids)

    assert (message.key, message.dedup_id) == (ids.encode(), ids)


def test_standard_queue_refuses_a_deduplication_id() -> None:
    check_refusal(
        INVALID_PARAMETER_VALUE,
        "Value d for parameter MessageDeduplicationId is invalid. Reason: The request includes "
        "a parameter that is not valid for this queue type.",
        MessageDeduplicationId="d",
    )


def test_fifo_queue_wants_a_group() -> None:
    check_refusal(
        MISSING_PARAMETER,
        "The request must contain the parameter MessageGroupId.",
        FIFO,
        MessageDeduplicationId="d",
    )


def test_fifo_queue_takes_no_body_alone() -> None:
    rules = QueueRules(is_fifo=True, content_based_deduplication=True)
    check_refusal(
        MISSING_PARAMETER, "must contain the parameter MessageGroupId", rules, MessageBody="m"
    )


def test_fifo_queue_wants_a_deduplication_id_or_the_contents() -> None:
    check_refusal(
        INVALID_PARAMETER_VALUE,
        "The queue should either have ContentBasedDeduplication enabled or "
        "MessageDeduplicationId provided explicitly",
        FIFO,
        MessageGroupId="g",
    )
    assert send(BY_CONTENT, MessageGroupId="g").dedup_id == sha256(b"body").hexdigest()


def test_given_id_wins_over_the_contents() -> None:
    message = send(BY_CONTENT, MessageGroupId="g", MessageDeduplicationId="mine")

    assert message.dedup_id == "mine"
    assert message.headers == encode_headers((("dedup-id", b"mine"),))


def test_fifo_queue_has_no_delay_per_message() -> None:
    check_refusal(
        INVALID_PARAMETER_VALUE,
        "Value 2 for parameter DelaySeconds is invalid. Reason: The request include parameter "
        "that is not valid for this queue type.",
        BY_CONTENT,
        MessageGroupId="g",
        DelaySeconds=2,
    )
    assert send(BY_CONTENT, MessageGroupId="g", DelaySeconds=0).deliver_at_unix_ms is None


@pytest.mark.parametrize("missing", ["MessageGroupId", "MessageDeduplicationId"])
def test_batch_fails_as_a_whole_without_group_or_id(missing: str) -> None:
    entry = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    check_batch_fifo(entry, FIFO)
    del entry[missing]

    with pytest.raises(SqsError) as caught:
        check_batch_fifo(entry, FIFO)

    is_group = missing == "MessageGroupId"
    assert caught.value.code is (MISSING_PARAMETER if is_group else INVALID_PARAMETER_VALUE)
    check_batch_fifo(entry, STANDARD)


# --- anything at all

ANY_TEXT = st.text(st.characters(codec=None), max_size=12)
ANY_ATTRIBUTES = st.dictionaries(
    ANY_TEXT,
    st.dictionaries(
        st.sampled_from(["DataType", "StringValue", "BinaryValue"]),
        ANY_TEXT | st.sampled_from(["String", "Number.x", "Binary", "1"]),
    ),
    max_size=3,
)


@given(
    st.fixed_dictionaries(
        {"MessageBody": ANY_TEXT},
        optional={
            "MessageGroupId": ANY_TEXT,
            "MessageDeduplicationId": ANY_TEXT,
            "DelaySeconds": st.integers(),
            "MessageAttributes": ANY_ATTRIBUTES,
            "MessageSystemAttributes": ANY_ATTRIBUTES,
        },
    ),
    st.sampled_from([STANDARD, FIFO, BY_CONTENT]),
)
def test_any_parameters_are_taken_or_refused_in_text_that_xml_can_hold(
    entry: dict[str, Any], rules: QueueRules
) -> None:
    said = "kept"
    try:
        send_result(prepare(entry, rules, sender="alice", now_unix_ms=NOW))
    except SqsError as error:
        said = error.message

    assert to_bytes(said) is not None


# --- rules


def test_rules_are_what_the_attributes_say() -> None:
    rules = parse_rules(
        "q.fifo",
        {
            "sqs.MaximumMessageSize": "2048",
            "sqs.ContentBasedDeduplication": "true",
            "sqs.DeduplicationScope": "messageGroup",
            "sqs.ReceiveMessageWaitTimeSeconds": "20",
        },
        7_000,
    )

    assert rules == QueueRules(
        is_fifo=True,
        message_bytes_max=2_048,
        content_based_deduplication=True,
        dedup_by_group=True,
        receive_wait_ms=20_000,
        delay_ms=7_000,
    )


def test_rules_without_attributes_are_the_defaults_of_sqs() -> None:
    assert parse_rules("q", {}, 0) == QueueRules()
