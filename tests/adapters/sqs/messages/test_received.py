"""Received messages: attributes that were asked for, and those that name an encoding."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from adapters.sqs.mapping import body_of, read_headers
from adapters.sqs.messages.received import (
    NO_ATTRIBUTES,
    AttributeSelection,
    ReceivedMessage,
    parse_selection,
    to_message,
)
from gateway.model import Record, TopicName
from gateway.queues.model import Delivery
from gateway.records.message_ids import message_id
from gateway.topics.configs import parse_settings
from gateway.topics.manager import Topic

TOPIC = Topic(
    UUID(int=7),
    TopicName("default", "orders"),
    configs={},
    settings=parse_settings({}, {}),
    is_internal=False,
    created_unix_ms=0,
)
HEADERS = (("Hello", b"There"), ("General", b"Kenobi"), ("Help.Me", b"Me"))


def show(
    wanted: AttributeSelection,
    *,
    headers: Sequence[tuple[str, bytes | None]] = HEADERS,
    key: bytes | None = None,
    value: bytes | None = b"msg",
    is_fifo: bool = False,
) -> dict[str, Any]:
    record = Record(41, 1_700_000_000_000, key, value, tuple(headers))
    delivery = Delivery(3, 2, 1_700_000_000_500, record)
    one = ReceivedMessage(delivery, read_headers(record.headers), body_of(value), "handle")
    return to_message(
        one, TOPIC, wanted, is_fifo=is_fifo, arn_of=lambda name: "arn:aws:sqs:r:1:" + name
    )


def names(*wanted: str) -> AttributeSelection:
    return parse_selection({"MessageAttributeNames": list(wanted)})


def system(*wanted: str) -> AttributeSelection:
    return parse_selection({"MessageSystemAttributeNames": list(wanted)})


def test_nothing_asked_for_is_the_message_alone() -> None:
    assert parse_selection({}) is NO_ATTRIBUTES
    assert show(NO_ATTRIBUTES) == {
        "MessageId": message_id(TOPIC.uuid, 3, 41),
        "ReceiptHandle": "handle",
        "MD5OfBody": "6e2baaf3b97dbeef01c0043275f9a0e7",
        "Body": "msg",
    }


def test_attributes_are_chosen_and_digested_as_amazon_does() -> None:
    # Digests and choices as recorded from Amazon SQS.
    cases = {
        ("*",): ({"Hello", "General", "Help.Me"}, "4c360f3fdafd970e05fae2f149d997f5"),
        ("All",): ({"Hello", "General", "Help.Me"}, "4c360f3fdafd970e05fae2f149d997f5"),
        (".*",): ({"Hello", "General", "Help.Me"}, "4c360f3fdafd970e05fae2f149d997f5"),
        ("Hello", "General"): ({"Hello", "General"}, "fca026605781cb4126a1e9044df24232"),
        ("Hello", "Foo"): ({"Hello"}, "a311262e065454b75da111d535b8dacd"),
        ("Hel.*",): ({"Hello", "Help.Me"}, "83fee93c1bcd8b9a5a923ffacdc636c7"),
    }
    for wanted, (chosen, digest) in cases.items():
        message = show(names(*wanted))
        assert set(message["MessageAttributes"]) == chosen, wanted
        assert message["MD5OfMessageAttributes"] == digest, wanted


def test_names_that_are_not_there_show_nothing() -> None:
    for wanted in (names("Foo"), names("AWS."), names("..foo"), names("")):
        assert "MessageAttributes" not in show(wanted)
        assert "MD5OfMessageAttributes" not in show(wanted)


def test_all_system_attributes_of_a_standard_queue() -> None:
    message = show(system("All"), headers=(("sqs.sender", b"alice"),))

    assert message["Attributes"] == {
        "SenderId": "alice",
        "SentTimestamp": "1700000000000",
        "ApproximateReceiveCount": "2",
        "ApproximateFirstReceiveTimestamp": "1700000000500",
    }


def test_all_system_attributes_of_a_fifo_queue() -> None:
    headers = (("dedup-id", b"d-1"), ("sqs.trace", b"Root=1"))

    message = show(system("All"), headers=headers, key=b"g-1", is_fifo=True)

    assert message["Attributes"] == {
        "SenderId": "ANONYMOUS",
        "SentTimestamp": "1700000000000",
        "ApproximateReceiveCount": "2",
        "ApproximateFirstReceiveTimestamp": "1700000000500",
        "SequenceNumber": "00000000000000000041",
        "MessageDeduplicationId": "d-1",
        "MessageGroupId": "g-1",
        "AWSTraceHeader": "Root=1",
    }


def test_older_name_of_the_parameter_counts_too() -> None:
    wanted = parse_selection(
        {"AttributeNames": ["SenderId"], "MessageSystemAttributeNames": ["SentTimestamp"]}
    )

    assert set(show(wanted)["Attributes"]) == {"SenderId", "SentTimestamp"}


def test_system_attribute_that_means_nothing_is_passed_over() -> None:
    assert "Attributes" not in show(system("Policy", "NoSuchThing"))


def test_dead_letter_has_its_source_and_all_its_receives() -> None:
    headers = (("dlq.source.topic", b"source"), ("dlq.attempts", b"5"), ("message-id", b"id-1"))

    message = show(system("All"), headers=headers)

    assert message["MessageId"] == "id-1"
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == "arn:aws:sqs:r:1:source"
    assert message["Attributes"]["ApproximateReceiveCount"] == "7"


def test_what_a_dead_letter_says_comes_when_it_is_named() -> None:
    headers = (("a", b"v"), ("dlq.reason", b"expired"), ("dlq.group", b"g"), ("dlq.empty", b""))

    def chosen(*wanted: str) -> set[str]:
        return set(show(names(*wanted), headers=headers).get("MessageAttributes", {}))

    assert chosen("All") == {"a"}
    assert chosen(".*") == {"a"}
    assert chosen("dlq.reason") == {"dlq.reason"}
    assert chosen("All", "dlq.*") == {"a", "dlq.reason", "dlq.group"}


def test_marks_come_unasked() -> None:
    message = show(NO_ATTRIBUTES, value=b"\xff", headers=())

    assert message["Body"] == "/w=="
    assert message["MessageAttributes"] == {
        "sqs.body": {"DataType": "String", "StringValue": "base64"}
    }
    assert "MD5OfMessageAttributes" in message


def test_group_in_base64_is_marked() -> None:
    message = show(system("MessageGroupId"), key=b"\xff", headers=())

    assert message["Attributes"] == {"MessageGroupId": "/w=="}
    assert message["MessageAttributes"]["sqs.key"]["StringValue"] == "base64"
