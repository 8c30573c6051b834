"""SQS messages in the log, and records of other protocols as SQS messages."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.mapping import (
    CACHED_BLOCKS_MAX,
    MESSAGE_BYTES_MAX,
    Body,
    attributes_of,
    body_of,
    dead_letter_attributes_of,
    fifo_header_block,
    group_of,
    headers_of,
    is_oversize,
    oversize_note,
    plain_header_block,
    read_headers,
)
from adapters.sqs.message_attributes import MessageAttribute, is_legal_name
from gateway.model import Record
from gateway.records.codec import encode_headers

Headers = tuple[tuple[str, bytes | None], ...]

NAMES = st.text(string.ascii_letters + "_-.", min_size=1, max_size=12).filter(is_legal_name)
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF), min_size=1).map(
    str.encode
)
ATTRIBUTES = st.one_of(
    st.builds(MessageAttribute, st.sampled_from(["String", "String.json"]), TEXTS),
    st.builds(MessageAttribute, st.just("Number"), st.integers().map(lambda n: b"%d" % n)),
    st.builds(MessageAttribute, st.just("Binary.png"), st.binary(min_size=1)),
)


def shown(headers: Headers) -> dict[str, tuple[str, bytes]]:
    attributes = attributes_of(read_headers(headers))
    return {name: (one.data_type, one.value) for name, one in attributes.items()}


def more(headers: Headers) -> object:
    return json.loads(shown(headers)["sqs.headers"][1])


@given(st.dictionaries(NAMES, ATTRIBUTES, max_size=10))
def test_attributes_that_went_in_come_out(attributes: dict[str, MessageAttribute]) -> None:
    headers = headers_of(attributes, sender="alice", dedup_id="d")

    assert attributes_of(read_headers(headers)) == attributes


def test_headers_say_what_a_kafka_client_can_read() -> None:
    attributes = {
        "city": MessageAttribute("String", b"Rome"),
        "count": MessageAttribute("Number", b"7"),
    }

    headers = headers_of(
        attributes,
        sender="alice",
        trace=b"Root=1-2",
        dedup_id="d-1",
        deliver_at_unix_ms=1_700,
        message_id="some-id",
    )

    assert headers == [
        ("city", b"Rome"),
        ("count", b"7"),
        ("sqs.types", b'{"count":"Number"}'),
        ("sqs.sender", b"alice"),
        ("sqs.trace", b"Root=1-2"),
        ("dedup-id", b"d-1"),
        ("deliver-at", b"1700"),
        ("message-id", b"some-id"),
    ]


def test_message_without_anything_has_no_headers() -> None:
    assert plain_header_block("") == encode_headers(())
    assert plain_header_block("bob") == encode_headers((("sqs.sender", b"bob"),))


def test_headers_of_a_fifo_message_are_its_sender_and_id() -> None:
    for sender in ("", "bob"):
        headers = headers_of({}, sender=sender, dedup_id="d-1")
        assert fifo_header_block(sender, "d-1") == encode_headers(headers)


def test_remembered_headers_are_bounded() -> None:
    for number in range(CACHED_BLOCKS_MAX + 10):
        plain_header_block(f"user-{number}")

    assert plain_header_block.cache_info().currsize == CACHED_BLOCKS_MAX


@pytest.mark.parametrize(
    "name", ["message-id", "deliver-at", "mqtt.topic", "dlq.reason", "sqs.x"]
)
def test_reserved_name_is_kept_apart_and_shown_as_it_was(name: str) -> None:
    headers = headers_of({name: MessageAttribute("String", b"mine")})

    assert headers == [("sqs.user." + name, b"mine")]
    assert shown(tuple(headers)) == {name: ("String", b"mine")}


def test_header_prefixes_of_other_adapters_are_reserved() -> None:
    attributes = {name: MessageAttribute("String", b"mine") for name in ("lines.x", "mqtt.y")}

    headers = headers_of(attributes, reserved_prefixes=("lines.",))

    assert headers == [("sqs.user.lines.x", b"mine"), ("mqtt.y", b"mine")]


def test_what_the_gateway_says_of_a_message_is_no_attribute() -> None:
    stored = read_headers(
        (
            ("message-id", b"an-id"),
            ("sqs.sender", b"alice"),
            ("sqs.trace", b"Root=1"),
            ("dedup-id", b"d"),
            ("deliver-at", b"5"),
            ("sqs.types", b"{}"),
        )
    )

    assert stored[:4] == ("an-id", "alice", "Root=1", "d")
    assert attributes_of(stored) == {}


def test_of_a_control_header_that_repeats_the_first_counts() -> None:
    assert read_headers((("sqs.sender", b"a"), ("sqs.sender", b"b"))).sender == "a"


@pytest.mark.parametrize("value", [None, b"", b"a b", b"\xff", b"x" * 101, "é".encode()])
def test_message_id_that_no_client_could_use_is_none(value: bytes | None) -> None:
    assert read_headers((("message-id", value),)).message_id is None


def test_dead_letter_says_whence_it_came_and_how_often_it_was_received() -> None:
    headers = (("dlq.source.topic", b"orders"), ("dlq.attempts", b"3"), ("a", b"v"))
    stored = read_headers(headers)

    assert (stored.source_topic, stored.earlier_attempts) == ("orders", 3)
    assert shown(headers) == {"a": ("String", b"v")}
    assert dead_letter_attributes_of(stored) == {
        "dlq.source.topic": MessageAttribute("String", b"orders"),
        "dlq.attempts": MessageAttribute("String", b"3"),
    }


@pytest.mark.parametrize("attempts", [b"", b"-1", b"many", b"9" * 30])
def test_attempts_that_are_no_number_are_none(attempts: bytes) -> None:
    assert read_headers((("dlq.attempts", attempts),)).earlier_attempts == 0


# --- what SQS cannot carry


def test_text_is_shown_as_it_is() -> None:
    assert body_of("Grüße\n".encode()) == Body("Grüße\n", "Grüße\n".encode(), None)
    assert body_of(b"") == Body("", b"", None)


@pytest.mark.parametrize("value", [b"\xff\xfe", b"a\x00b", "\uffff".encode()])
def test_bytes_that_are_no_text_are_shown_in_base64(value: bytes) -> None:
    body = body_of(value)

    assert body.encoding == b"base64"
    assert body.text.encode() == body.data


def test_null_value_is_told_from_an_empty_one() -> None:
    assert body_of(None) == Body("", b"", b"null")


def test_key_is_the_group_as_text_or_in_base64() -> None:
    assert group_of(b"tenant-1") == ("tenant-1", None)
    assert group_of(b"\xff") == ("/w==", b"base64")
    assert group_of(None) == (None, None)
    assert group_of(b"") == (None, None)


def test_header_of_another_protocol_is_text_or_binary() -> None:
    headers = (("mqtt.topic", b"a/b"), ("trace", b"\x00\x01"))

    assert shown(headers) == {
        "mqtt.topic": ("String", b"a/b"),
        "trace": ("Binary", b"\x00\x01"),
    }


def test_header_that_no_attribute_can_show_is_in_one_attribute_with_the_others() -> None:
    headers = (
        ("ok", b"1"),
        ("ok", b"2"),
        ("null", None),
        ("empty", b""),
        ("a b", b"\xff"),
        (".dot", b"3"),
        ("u\ufffe", b"4"),
    )

    assert shown(headers)["ok"] == ("String", b"1")
    assert more(headers) == [
        {"name": "ok", "value": "2"},
        {"name": "null", "value": None},
        {"name": "empty", "value": ""},
        {"name": "a b", "base64": "/w=="},
        {"name": ".dot", "value": "3"},
        {"name": "u\ufffd", "value": "4"},
    ]


def test_eleventh_header_is_in_one_attribute_and_ten_are_not() -> None:
    headers = tuple((f"h{number}", b"v") for number in range(10))

    assert "sqs.headers" not in shown(headers)
    assert more((*headers, ("h10", b"w"))) == [{"name": "h10", "value": "w"}]


@pytest.mark.parametrize(
    "types", [b"", b"[]", b"nonsense", b'{"a": 1}', b'{"a": "Float"}', b"\xff"]
)
def test_types_that_mean_nothing_are_passed_over(types: bytes) -> None:
    assert shown((("a", b"1"), ("sqs.types", types))) == {"a": ("String", b"1")}


def test_type_that_does_not_fit_its_value_is_not_believed() -> None:
    types = b'{"a": "Number", "b": "String.x", "c": "Number.int"}'
    headers = (("a", b"ten"), ("b", b"\xff"), ("c", b"10"), ("sqs.types", types))

    assert shown(headers) == {
        "a": ("String", b"ten"),
        "b": ("Binary", b"\xff"),
        "c": ("Number.int", b"10"),
    }


@given(st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=14))
def test_any_headers_are_shown_within_the_bound(
    headers: list[tuple[str, bytes | None]],
) -> None:
    attributes = attributes_of(read_headers(headers))

    assert len(attributes) <= 11
    for name, attribute in attributes.items():
        assert is_legal_name(name)
        assert attribute.value


# --- what is too large


def check_oversize(value: bytes, headers: Headers = ()) -> bool:
    record = Record(7, 0, None, value, headers)
    return is_oversize(record, body_of(value), read_headers(headers))


def test_body_of_1_mib_is_shown_and_one_byte_more_is_not() -> None:
    assert not check_oversize(b"x" * MESSAGE_BYTES_MAX)
    assert check_oversize(b"x" * (MESSAGE_BYTES_MAX + 1))


def test_attributes_count() -> None:
    value = b"x" * (MESSAGE_BYTES_MAX - 10)

    assert not check_oversize(value, (("abc", b"v"),))  # 3 + 6 + 1
    assert check_oversize(value, (("abc", b"vw"),))


def test_base64_counts_as_it_is_shown() -> None:
    assert check_oversize(b"\xff" * (MESSAGE_BYTES_MAX - 1_000))


def test_mark_says_where_a_message_that_is_too_large_lies() -> None:
    record = Record(17, 0, None, b"12345")

    encoding = oversize_note("orders", 2, record)

    assert encoding == b"oversize topic=orders partition=2 offset=17 bytes=5"
