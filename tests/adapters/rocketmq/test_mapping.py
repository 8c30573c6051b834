"""Messages to records and back, those of other protocols too."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.rocketmq.mapping import (
    BASE64_NAMES,
    SYSTEM_PROPERTIES,
    Header,
    Origin,
    Placed,
    headers_of,
    key_of,
    message_of,
    physical_offset,
    properties_of,
)
from adapters.rocketmq.remoting.message_codec import encode_host, encode_message
from gateway.config.base import Address
from gateway.model import Record

HOST = encode_host(Address("127.0.0.1", 10911))
PLACED = Placed("orders", 3, 5, HOST, "C")
ORIGIN = Origin(7, 1_000, "10.0.0.9:4321", 2)
ADDED = {"MSG_REGION", "TRACE_ON", "CLUSTER"}
TEXT = st.text("ab\0=é日😀", min_size=1, max_size=9)


def stored(properties: dict[str, str], origin: Origin = ORIGIN) -> Record:
    headers = tuple(headers_of(properties, origin))
    return Record(11, 2_000, key_of(properties), b"body", headers)


def shown(*headers: Header, key: bytes | None = None) -> dict[str, str]:
    """Return the properties of a record of another protocol, without those that are added."""
    found = properties_of(Record(0, 0, key, b"", headers), "C")
    return {name: value for name, value in found.items() if name not in ADDED}


@given(
    st.dictionaries(
        TEXT.filter(lambda name: name not in ADDED | {"WAIT", "POP_CK"})
        | st.sampled_from(sorted(SYSTEM_PROPERTIES - {BASE64_NAMES}))
        | st.sampled_from(["message-id", "dlq.reason", "rocketmq.tags", "deliver-at", "sqs.x"]),
        TEXT,
        max_size=6,
    )
)
def test_properties_come_back_as_they_were(properties: dict[str, str]) -> None:
    found = properties_of(stored(properties), "C")
    assert {name: value for name, value in found.items() if name not in ADDED} == properties


def test_a_message_is_a_record_with_headers() -> None:
    properties = {
        "TAGS": "a",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "id",
        "__SHARDINGKEY": "s",
        "colour": "red",
        "DELAY": "3",
        "deliver-at": "5",
        "WAIT": "true",
    }
    record = stored(properties)

    assert record.key == b"s"
    assert record.headers == (
        ("rocketmq.tags", b"a"),
        ("rocketmq.keys", b"k1 k2"),
        ("message-id", b"id"),
        ("colour", b"red"),
        ("rocketmq.property.DELAY", b"3"),
        ("rocketmq.user.deliver-at", b"5"),
        ("rocketmq.born-timestamp", b"1000"),
        ("rocketmq.born-host", b"10.0.0.9:4321"),
        ("rocketmq.flag", b"7"),
        ("rocketmq.reconsume-times", b"2"),
    )


def test_a_record_is_a_message() -> None:
    message = message_of(stored({"TAGS": "a"}), PLACED)

    assert message.properties == {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "C",
        "TAGS": "a",
    }
    assert message._replace(properties={}) == (
        "orders", 3, 11, 5 << 40 | 11, 7, 1_000, encode_host(Address("10.0.0.9", 4321)), 2_000,
        HOST, 2, b"body", {},
    )  # fmt: skip


def test_headers_of_other_protocols_are_properties() -> None:
    assert shown(("content-type", b"text"), key=b"k") == {
        "__SHARDINGKEY": "k",
        "content-type": "text",
    }
    assert shown(("a", b"1"), ("a", b"2"), ("b", b""), ("c", None), ("", b"x")) == {"a": "1"}


@pytest.mark.parametrize("value", [b"\xff", b"a\x01b", b"\x02"])
def test_a_value_that_is_no_text_is_base64(value: bytes) -> None:
    assert shown(("a", value), ("b", b"text")) == {
        "a": b64encode(value).decode(),
        "b": "text",
        BASE64_NAMES: "a",
    }


def test_properties_have_at_most_the_bytes_that_a_message_can_have() -> None:
    large = [(f"n{number}", b"\xff" * 9_000) for number in range(5)]
    found = shown(*large, ("small", b"1"))
    assert "small" in found
    assert 0 < len(found) - 2 < 5
    record = Record(0, 0, b"k" * 40_000, None, tuple(large))
    assert encode_message(message_of(record, PLACED))  # the lengths fit their fields


@pytest.mark.parametrize(
    "value", [b"9" * 300, b"99999999999", b"-99999999999", b"x", b"", None]
)
def test_headers_that_anybody_can_set_break_nothing(value: bytes | None) -> None:
    names = ("flag", "reconsume-times", "born-timestamp", "born-host")
    headers = tuple((f"rocketmq.{name}", value) for name in names)
    message = message_of(Record(1, -5, None, None, headers), PLACED)
    assert encode_message(message)
    assert message.body == b""


def test_a_negative_flag_is_kept() -> None:
    assert message_of(stored({}, Origin(-3, 1, "")), PLACED).flag == -3


def test_physical_offsets_fit_64_bits() -> None:
    assert physical_offset(1 << 32, (1 << 40) - 1) < 1 << 63
