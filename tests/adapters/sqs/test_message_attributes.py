"""Message attributes: every rule and its error."""

import time
from base64 import b64encode
from typing import Any

import pytest

from adapters.sqs.errors import (
    INVALID_PARAMETER_VALUE,
    UNSUPPORTED_OPERATION,
    SqsError,
)
from adapters.sqs.message_attributes import (
    INVALID_CHARACTERS,
    MessageAttribute,
    parse_attributes,
    parse_trace_header,
    size_bytes,
    to_result,
)

GIVEN = {
    "text": {"DataType": "String", "StringValue": "Grüße"},
    "count": {"DataType": "Number.int", "StringValue": "-12.5e3"},
    "photo": {"DataType": "Binary.jpeg", "BinaryValue": b64encode(b"\x00\xff").decode()},
}
PARSED = {
    "text": MessageAttribute("String", "Grüße".encode()),
    "count": MessageAttribute("Number.int", b"-12.5e3"),
    "photo": MessageAttribute("Binary.jpeg", b"\x00\xff"),
}


def refusal(given: dict[str, dict[str, Any]]) -> SqsError:
    with pytest.raises(SqsError) as caught:
        parse_attributes(given)
    return caught.value


def text_named(name: str) -> dict[str, dict[str, Any]]:
    return {name: {"DataType": "String", "StringValue": "v"}}


def test_all_types_are_parsed_and_shown_again() -> None:
    assert parse_attributes(GIVEN) == PARSED
    assert to_result(PARSED) == GIVEN


def test_long_digits_that_are_no_number_are_refused_in_no_time() -> None:
    """With a backtracking expression these 40 KiB blocked the loop for 45 s."""
    started_s = time.process_time()
    for tail in ("x", ".x", ".1x", "e1x", " x"):
        value = "1" * 40_000 + tail
        error = refusal({"x": {"DataType": "Number", "StringValue": value}})
        assert "to a number" in error.message
    assert time.process_time() - started_s < 1


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "0e999",
        "-1.5e10",
        "+1.",
        ".5",
        " 1\t",
        "1" * 38,
        "00." + "1" * 38 + "0" * 100,
        "1E-128",
        "-1e126",
    ],
)
def test_what_is_a_number(text: str) -> None:
    assert parse_attributes({"x": {"DataType": "Number", "StringValue": text}})


def test_size_counts_names_types_and_values_in_bytes() -> None:
    assert size_bytes({"ab": MessageAttribute("String", "é".encode())}) == 2 + 6 + 2


def test_ten_attributes_are_taken_and_eleven_refused() -> None:
    def many(count: int) -> dict[str, dict[str, Any]]:
        return {f"a{number}": GIVEN["text"] for number in range(count)}

    assert len(parse_attributes(many(10))) == 10
    error = refusal(many(11))
    assert error.code is INVALID_PARAMETER_VALUE
    assert (
        error.message == "Number of message attributes [11] exceeds the allowed maximum [10]."
    )


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "x" * 256, "awsome", "amazon"])
def test_legal_names_are_taken(name: str) -> None:
    assert list(parse_attributes(text_named(name))) == [name]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "must contain non-empty"),
        ("x" * 257, "Length of message attribute name must be less than 256 bytes."),
        ("a b", "Invalid non-alphanumeric character '#x20' was found"),
        ("é", "Invalid non-alphanumeric character '#xE9' was found"),
        ("AWS.x", "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'."),
        ("amaZon.x", "You can't use message attribute names beginning with"),
        (".a", "starting with character '.'"),
        ("a.", "ending with character '.'"),
        ("a..b", "can not have successive '.'"),
    ],
)
def test_illegal_name_is_refused(name: str, said: str) -> None:
    error = refusal(text_named(name))

    assert error.code is INVALID_PARAMETER_VALUE
    assert said in error.message


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"StringValue": "v"}, "must contain a non-empty message attribute type."),
        ({"DataType": "", "StringValue": "v"}, "non-empty message attribute type."),
        (
            {"DataType": "Float", "StringValue": "1"},
            (
                "The type of message (user) attribute 'x' is invalid. You must use only the "
                "following supported type prefixes: Binary, Number, String."
            ),
        ),
        ({"DataType": "string", "StringValue": "v"}, "supported type prefixes"),
        ({"DataType": "String.", "StringValue": "v"}, "supported type prefixes"),
        ({"DataType": "String." + "x" * 250, "StringValue": "v"}, "less than 256 bytes"),
        (
            {"DataType": "String", "StringValue": ""},
            "Message (user) attribute 'x' must contain a non-empty value of type 'String'.",
        ),
        ({"DataType": "Binary", "BinaryValue": ""}, "non-empty value of type 'Binary'."),
        ({"DataType": "String"}, "non-empty value of type 'String'."),
        (
            {"DataType": "Binary", "StringValue": "v"},
            "with type 'Binary' must use field 'Binary'.",
        ),
        ({"DataType": "Number", "BinaryValue": "dg=="}, "must use field 'String'."),
        ({"DataType": "Binary", "BinaryValue": "d"}, "invalid Base64 value."),
        ({"DataType": "Binary", "BinaryValue": "d g=="}, "invalid Base64 value."),
        (
            {"DataType": "Number", "StringValue": "ten"},
            "Can't cast the value of message (user) attribute 'x' to a number.",
        ),
        ({"DataType": "Number", "StringValue": "1e"}, "to a number."),
        ({"DataType": "Number", "StringValue": "1" * 39}, "to a number."),
        ({"DataType": "Number", "StringValue": "0.1" + "0" * 37 + "1"}, "to a number."),
        (
            {"DataType": "Number", "StringValue": "1e300"},
            "Number attribute value 1e300 should be in range (-10**128..10**126)",
        ),
        ({"DataType": "Number.f", "StringValue": "-2e126"}, "should be in range"),
        ({"DataType": "Number", "StringValue": "9e-129"}, "should be in range"),
        (
            {"DataType": "String", "StringValue": "v", "BinaryValue": "dg=="},
            "The message (user) attribute 'x' with type 'String' must use field 'String'.",
        ),
        (
            {"DataType": "Binary", "StringValue": "v", "BinaryValue": "dg=="},
            "with type 'Binary' must use field 'Binary'.",
        ),
        ({"DataType": "Number", "StringValue": "٣"}, "to a number."),
    ],
)
def test_bad_type_or_value_is_refused(fields: dict[str, Any], said: str) -> None:
    error = refusal({"x": fields})

    assert error.code is INVALID_PARAMETER_VALUE
    assert said in error.message


def test_value_with_a_character_outside_xml_is_refused() -> None:
    error = refusal({"x": {"DataType": "String", "StringValue": "a\x00"}})

    assert error.code is INVALID_PARAMETER_VALUE  # of a body it is another
    assert error.message == INVALID_CHARACTERS


@pytest.mark.parametrize("field", ["StringListValues", "BinaryListValues"])
def test_lists_are_not_supported(field: str) -> None:
    error = refusal({"x": {"DataType": "String", "StringValue": "a", field: ["b"]}})

    assert error.code is UNSUPPORTED_OPERATION


def test_trace_header_is_the_one_system_attribute() -> None:
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
    fields = {"DataType": "String", "StringValue": trace}

    assert parse_trace_header({"AWSTraceHeader": fields}) == trace.encode()
    with pytest.raises(SqsError, match="only supported message system attribute"):
        parse_trace_header({"SenderId": fields})
    with pytest.raises(SqsError, match="must be of type 'String'"):
        parse_trace_header({"AWSTraceHeader": {"DataType": "Number", "StringValue": "1"}})
