"""Properties as headers of records, and back: byte for byte for AMQP, readable for others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.amqp.mapping import PROPERTIES, to_headers, to_properties
from adapters.amqp.v091.errors import AmqpFault
from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.properties import Properties, decode_properties, encode_properties
from features.routing.waiting import headers_when_due
from tests.adapters.amqp.v091.test_properties import PROPERTIES as ANY_PROPERTIES

RESERVED = ("dlq.", "amqp.", "mqtt.")


def headers_of(properties: Properties, exchange: str | None = None) -> dict[str, bytes | None]:
    raw = encode_properties(properties)
    found = to_headers(properties, raw, exchange=exchange, now_unix_ms=1_000, reserved=RESERVED)
    assert len(dict(found)) == len(found)
    return dict(found)


@given(ANY_PROPERTIES, st.sampled_from([None, "", "ex"]))
def test_any_properties_come_back_byte_for_byte(
    properties: Properties, exchange: str | None
) -> None:
    properties = properties._replace(expiration=None)
    found = headers_of(properties, exchange)
    restored = to_properties(list(found.items()), RESERVED)
    assert restored == encode_properties(properties)


def test_what_others_read() -> None:
    headers = Table(
        [("text", Field("S", "words")), ("n", Field("I", 5)), ("t", Field("t", value=True))]
    )
    found = headers_of(
        Properties("text/plain", headers=headers, delivery_mode=2, priority=3, expiration="500")
    )
    assert found.pop(PROPERTIES) is not None
    assert found == {
        "content-type": b"text/plain",
        "priority": b"3",
        "amqp.expiration": b"500",
        "expires-at": b"1500",
        "text": b"words",
        "n": b"5",
        "t": b"true",
    }


def test_text_headers_need_no_copy_of_the_properties() -> None:
    headers = Table([("a", Field("S", "1")), ("b", Field("S", "2"))])
    found = headers_of(Properties(headers=headers, delivery_mode=2))
    assert found == {"a": b"1", "b": b"2"}


def test_reserved_names_are_kept_apart() -> None:
    headers = Table([("mqtt.topic", Field("S", "x")), ("content-type", Field("S", "y"))])
    found = headers_of(Properties("text/plain", headers=headers, delivery_mode=2))
    assert found.keys() == {"content-type", PROPERTIES}
    assert found["content-type"] == b"text/plain"


def test_an_expiration_must_be_a_number() -> None:
    for text in ("", "x", "-1", "1x", "1" * 30):
        with pytest.raises(AmqpFault) as caught:
            headers_of(Properties(expiration=text))
        assert caught.value.code == 406


def test_records_of_other_protocols_have_readable_properties() -> None:
    found = decode_properties(
        to_properties(
            [
                ("content-type", b"text/plain"),
                ("priority", b"300"),
                ("correlation-id", b"\xff"),
                ("plain", b"text"),
                ("raw", b"\xff"),
                ("none", None),
                ("mqtt.topic", b"a/b"),
                ("expires-at", b"5"),
                ("x" * 300, b"too long a name"),
            ],
            RESERVED,
        )
    )
    assert found == Properties(
        "text/plain",
        headers=Table(
            [
                ("plain", Field("S", "text")),
                ("raw", Field("x", b"\xff")),
                ("none", Field("V", None)),
            ]
        ),
        delivery_mode=2,
    )


@pytest.mark.parametrize(
    ("sent", "delivered"),
    [
        (Field("I", 5_000), Field("I", -5_000)),
        (Field("u", 40_000), Field("I", -40_000)),
        (Field("S", "70"), Field("S", "-70")),
    ],
)
def test_delay_of_a_delivered_message_is_negative(sent: Field, delivered: Field) -> None:
    table = Table([("n", Field("l", 1)), ("x-delay", sent)])
    raw = encode_properties(Properties(headers=table))
    headers = to_headers(
        decode_properties(raw), raw, exchange="e", now_unix_ms=1, reserved=("amqp.",)
    )
    due = headers_when_due(headers, ())
    found = decode_properties(to_properties(due, ("amqp.",)))
    assert found.table == Table([("n", Field("l", 1)), ("x-delay", delivered)])
