"""The two tables of docs/protocols/mqtt.md, cell by cell, with librdkafka on the other side.

What ``test_kafka.py`` shows of them (topics, QoS, order, known properties) is not repeated.
"""

import time
from base64 import b64encode
from contextlib import closing

import pytest
from kafka import KafkaProducer

from tests.interop.mqtt.programs import link
from tests.interop.mqtt.programs.link import V5, Properties
from tests.interop.mqtt.test_kafka import (
    LOG,
    Produce,
    Reader,
    headers,
    publish,
    reader,
    received,
)
from tests.support.mqtt_target import OWN, Target

__all__ = ["reader"]

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("mqtt-interop"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    OWN,
]

OWN_HEADERS = {"mqtt.client", "mqtt.qos"}
RESERVED = (
    "content-type", "reply-to", "correlation-id", "expires-at", "deliver-at", "dedup-id",
    "mqtt.x", "dlq.x", "kafka.x", "amqp.x", "sqs.x", "rocketmq.x",
)  # fmt: skip


def stored(
    target: Target, reader: Reader, stem: str, properties: Properties
) -> list[tuple[str, bytes | None]]:
    """Return the headers that a publish with these properties has in the log."""
    publish(target, V5, stem, link.Message(f"{stem}/a", b"x", 1, properties=properties))
    return headers(reader.next(stem))


def shown(
    target: Target, stem: str, *given: tuple[str, bytes | None], value: bytes | None = b"x"
) -> link.Message:
    """Return what a subscriber gets of a record with these headers."""
    record: dict[str, object] = {"key": f"{stem}/a", "value": value, "headers": list(given)}
    (message,) = received(target, stem, Produce(target, record), 1)
    return message


# --- from MQTT into the log


@pytest.mark.parametrize("payload_format", [None, 0, 1])
def test_the_payload_format_indicator_is_a_header_when_present(
    target: Target, reader: Reader, stem: str, payload_format: int | None
) -> None:
    found = dict(stored(target, reader, stem, Properties(payload_format=payload_format)))
    wanted = None if payload_format is None else b"%d" % payload_format
    assert found.get("mqtt.payload-format-indicator") == wanted


def test_the_client_is_a_header(target: Target, reader: Reader, stem: str) -> None:
    assert dict(stored(target, reader, stem, Properties()))["mqtt.client"] == stem.encode()


@pytest.mark.parametrize("data", [None, b"", bytes(range(256))], ids=["absent", "empty", "all"])
def test_correlation_data_may_be_any_bytes_or_none(
    target: Target, reader: Reader, stem: str, data: bytes | None
) -> None:
    found = dict(stored(target, reader, stem, Properties(correlation_data=data)))
    assert found.get("correlation-id") == data


def test_user_properties_with_reserved_names_get_one_of_their_own(
    target: Target, reader: Reader, stem: str
) -> None:
    user = (*((name, "1") for name in RESERVED), ("", ""), ("free", ""))
    found = stored(target, reader, stem, Properties(user=user))
    assert [pair for pair in found if pair[0] not in OWN_HEADERS] == [
        *((f"mqtt.user.{name}", b"1") for name in RESERVED),
        ("", b""),
        ("free", b""),
    ]


# --- out of the log to MQTT


@pytest.mark.parametrize("payload_format", [b"0", b"1"])
def test_the_payload_format_header_is_the_indicator(
    target: Target, stem: str, payload_format: bytes
) -> None:
    message = shown(target, stem, ("mqtt.payload-format-indicator", payload_format))
    assert message.properties == Properties(payload_format=int(payload_format))


def test_a_null_value_is_told_from_an_empty_one(target: Target, stem: str) -> None:
    null, empty = shown(target, stem, value=None), shown(target, f"{stem}e", value=b"")
    assert (null.payload, null.properties.user) == (b"", (("mqtt.null", "1"),))
    assert (empty.payload, empty.properties.user) == (b"", ())


def test_values_that_are_no_text_are_told_by_the_name(target: Target, stem: str) -> None:
    binary, zero = b"\xff\x00\xfe", b"a\x00b"
    message = shown(target, stem, ("none", None), ("binary", binary), ("zero", zero))
    assert message.properties.user == (
        ("none;null", ""),
        ("binary;base64", b64encode(binary).decode()),
        ("zero;base64", b64encode(zero).decode()),
    )


def test_user_headers_lose_their_prefix(target: Target, stem: str) -> None:
    message = shown(target, stem, ("mqtt.user.reply-to", b"1"), ("mqtt.user.", b"2"))
    assert message.properties.user == (("reply-to", "1"), ("", "2"))


def test_a_name_that_is_no_text_is_shown_as_far_as_it_can_be(target: Target, stem: str) -> None:
    """By kafka-python: librdkafka ends a name where U+0000 is."""

    def produce() -> None:
        with closing(KafkaProducer(bootstrap_servers=target.bootstrap)) as producer:
            key = f"{stem}/a".encode()
            producer.send(LOG, partition=0, key=key, value=b"x", headers=[("a\x00b", b"1")])
            producer.flush()

    (message,) = received(target, stem, produce, 1)
    assert message.properties.user == (("a\ufffdb", "1"),)


@pytest.mark.parametrize("name", ["long", "n" * 65_536])
def test_a_header_that_no_property_can_hold_is_left_out(
    target: Target, stem: str, name: str
) -> None:
    value = bytes(70_000) if name == "long" else b"1"
    message = shown(target, stem, (name, value), ("after", b"2"))
    assert (message.payload, message.properties.user) == (b"x", (("after", "2"),))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("expires-at", b"soon"),
        ("reply-to", b"a/#"),
        ("content-type", b"a\x00b"),
        ("expires-at", b"-1"),
    ],
)
def test_what_cannot_be_what_its_name_says_is_a_user_property(
    target: Target, stem: str, name: str, value: bytes
) -> None:
    message = shown(target, stem, (name, value))
    seen = (name, value.decode())
    if b"\x00" in value:
        seen = (f"{name};base64", b64encode(value).decode())
    assert message.properties == Properties(user=(seen,))


def test_the_first_usable_one_of_a_repeated_header_counts(target: Target, stem: str) -> None:
    given = [("reply-to", b"a/+"), ("reply-to", b"b"), ("reply-to", b"c")]
    message = shown(target, stem, *given, ("content-type", b"1"), ("content-type", b"2"))
    assert message.properties == Properties(
        content_type="1",
        response_topic="b",
        user=(("reply-to", "a/+"), ("reply-to", "c"), ("content-type", "2")),
    )


def test_control_headers_that_say_nothing_are_as_if_not_there(
    target: Target, stem: str
) -> None:
    topics = [("mqtt.topic", b"a/#"), ("mqtt.topic", f"{stem}/b".encode())]
    more = [("mqtt.topic", f"{stem}/c".encode()), ("mqtt.qos", b"7"), ("mqtt.qos", b"2")]
    message = shown(target, stem, *topics, *more, ("mqtt.retain", b"yes"))
    assert (message.topic, message.qos, message.retain) == (f"{stem}/b", 2, False)
    assert message.properties == Properties()


def test_keys_of_the_gateway_reach_nobody(target: Target, stem: str) -> None:
    records: list[dict[str, object]] = [
        {"key": f"$SYS/{stem}", "value": b"1"},
        {"key": f"${stem}/a", "value": b"2"},
        {"key": f"{stem}/a", "value": b"3"},
    ]
    (message,) = received(target, stem, Produce(target, *records), 1)
    assert message.payload == b"3"


def test_a_far_deadline_is_the_furthest_there_is(target: Target, stem: str) -> None:
    far, soon = b"9999999999999", b"%d" % (int(time.time() * 1_000) + 60_000)
    message = shown(target, stem, ("expires-at", far))
    assert message.properties == Properties(message_expiry_interval=0xFFFF_FFFF)
    left_s = shown(target, f"{stem}s", ("expires-at", soon)).properties.message_expiry_interval
    assert left_s is not None
    assert 30 <= left_s <= 60
