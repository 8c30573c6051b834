"""Field tables: bytes of RabbitMQ, both ways, and bounds."""

import contextlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.amqp.v091.errors import FrameFault
from adapters.amqp.v091.fields import (
    DEPTH_MAX,
    Field,
    Table,
    decode_table,
    encode_table,
    to_table,
)

# Made by RabbitMQ's rabbit_binary_generator: each type of field, named by its letter.
VECTORS = [
    (Field("S", "hi"), b"S\0\0\0\2hi"),
    (Field("S", b"\xff"), b"S\0\0\0\1\xff"),
    (Field("I", -2), b"I\xff\xff\xff\xfe"),
    (Field("i", 4_294_967_295), b"i\xff\xff\xff\xff"),
    (Field("l", -1), b"l" + b"\xff" * 8),
    (Field("s", -2), b"s\xff\xfe"),
    (Field("u", 65_535), b"u\xff\xff"),
    (Field("b", -1), b"b\xff"),
    (Field("B", 255), b"B\xff"),
    (Field("d", 1.5), b"d\x3f\xf8\0\0\0\0\0\0"),
    (Field("f", 1.5), b"f\x3f\xc0\0\0"),
    (Field("t", value=True), b"t\1"),
    (Field("t", value=False), b"t\0"),
    (Field("D", Decimal("1.25")), b"D\2\0\0\0\x7d"),
    (Field("T", 1_700_000_000), b"T\0\0\0\0\x65\x53\xf1\0"),
    (Field("V", None), b"V"),
    (Field("x", b"\0\1"), b"x\0\0\0\2\0\1"),
    (Field("A", (Field("t", value=True), Field("V", None))), b"A\0\0\0\3t\1V"),
    (Field("F", Table([("a", Field("V", None))])), b"F\0\0\0\3\1aV"),
]


@pytest.mark.parametrize(("field", "data"), VECTORS, ids=lambda one: repr(one)[:30])
def test_each_type_of_field(field: Field, data: bytes) -> None:
    table = Table([("n", field)])
    encoded = (len(data) + 2).to_bytes(4, "big") + b"\1n" + data
    assert encode_table(table) == encoded
    assert decode_table(encoded) == (table, len(encoded))


def test_repeated_names_and_their_order_are_kept() -> None:
    table = Table([("b", Field("V", None)), ("a", Field("V", None)), ("b", Field("I", 1))])
    assert decode_table(encode_table(table))[0] == table
    assert table.find("b") == Field("V", None)


FIELDS = st.recursive(
    st.one_of(
        st.text(max_size=20).map(lambda value: Field("S", value)),
        st.binary(max_size=20).map(lambda value: Field("x", value)),
        st.integers(-(1 << 63), (1 << 63) - 1).map(lambda value: Field("l", value)),
        st.integers(-(1 << 31), (1 << 31) - 1).map(lambda value: Field("I", value)),
        st.booleans().map(lambda value: Field("t", value)),
        st.floats(allow_nan=False).map(lambda value: Field("d", value)),
        st.just(Field("V", None)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda value: Field("A", tuple(value))),
        st.lists(st.tuples(st.text(max_size=10), inner), max_size=4).map(
            lambda value: Field("F", Table(value))
        ),
    ),
    max_leaves=12,
)
TABLES = st.lists(st.tuples(st.text(max_size=10), FIELDS), max_size=6).map(Table)


@given(TABLES)
def test_any_table_comes_back(table: Table) -> None:
    data = encode_table(table)
    assert decode_table(b"ab" + data + b"cd", 2) == (table, len(data) + 2)


@given(TABLES, st.data())
def test_damaged_tables_are_refused(table: Table, data: st.DataObject) -> None:
    encoded = bytearray(encode_table(table))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(FrameFault):
        decode_table(bytes(encoded))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_table_or_refused(data: bytes) -> None:
    with contextlib.suppress(FrameFault):
        decode_table(len(data).to_bytes(4, "big") + data)


def test_nesting_is_bounded() -> None:
    def nested(depth: int) -> bytes:
        inner = b""
        for _ in range(depth):
            inner = b"A" + len(inner).to_bytes(4, "big") + inner
        body = b"\1n" + inner
        return len(body).to_bytes(4, "big") + body

    decode_table(nested(DEPTH_MAX - 1))
    for depth in (DEPTH_MAX, 1_000, 20_000):
        with pytest.raises(FrameFault):
            decode_table(nested(depth))


def test_plain_values_are_typed_as_json_is() -> None:
    values = {"a": 1, "b": "x", "c": None, "d": [True, {"e": 1.5}]}
    assert to_table(values) == Table(
        [
            ("a", Field("l", 1)),
            ("b", Field("S", "x")),
            ("c", Field("V", None)),
            (
                "d",
                Field(
                    "A", (Field("t", value=True), Field("F", Table([("e", Field("d", 1.5))])))
                ),
            ),
        ]
    )
