"""The Query protocol: flattened fields give the parameters of the JSON protocol."""

from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.errors import (
    INVALID_PARAMETER_VALUE,
    MALFORMED_INPUT,
    MISSING_PARAMETER,
    ErrorCode,
    SqsError,
)
from adapters.sqs.http.operations import OPERATIONS
from adapters.sqs.http.query_codec import FIELDS_MAX, LARGE_BYTES, decode_query, parse_form
from adapters.sqs.http.shapes import BOOLEAN, Entries, Items, Scalar, Shape, Structure


def decode(action: str, form: str) -> dict[str, Any]:
    return decode_query(OPERATIONS[action], parse_form(form.encode()))


def refusal(action: str, form: str) -> ErrorCode:
    with pytest.raises(SqsError) as caught:
        decode(action, form)
    return caught.value.code


@pytest.mark.parametrize(
    ("action", "form", "params"),
    [
        ("SendMessage", "Action=SendMessage&MessageBody=a+b%26c", {"MessageBody": "a b&c"}),
        ("SendMessage", "MessageBody=", {"MessageBody": ""}),
        ("SendMessage", "DelaySeconds=-7", {"DelaySeconds": -7}),
        ("GetQueueAttributes", "AttributeName=All", {"AttributeNames": ["All"]}),
        (
            "GetQueueAttributes",
            "AttributeName.10=C&AttributeName.1=A&AttributeName.3=B",
            {"AttributeNames": ["A", "B", "C"]},
        ),
        (
            "CreateQueue",
            "QueueName=q&Attribute.1.Name=DelaySeconds&Attribute.1.Value=5&Tag.1.Key=k&Tag.1.Value=",
            {"QueueName": "q", "Attributes": {"DelaySeconds": "5"}, "tags": {"k": ""}},
        ),
        (
            "AddPermission",
            "Label=l&AWSAccountId.1=1&AWSAccountId.2=2&ActionName.1=SendMessage",
            {"Label": "l", "AWSAccountIds": ["1", "2"], "Actions": ["SendMessage"]},
        ),
        ("UntagQueue", "TagKey.1=a&TagKey.2=b", {"TagKeys": ["a", "b"]}),
        (
            "ReceiveMessage",
            "MessageSystemAttributeName.1=All&MessageAttributeName.1=x&MaxNumberOfMessages=10",
            {
                "MessageSystemAttributeNames": ["All"],
                "MessageAttributeNames": ["x"],
                "MaxNumberOfMessages": 10,
            },
        ),
        (
            "SendMessageBatch",
            (
                "SendMessageBatchRequestEntry.1.Id=a&"
                "SendMessageBatchRequestEntry.1.MessageBody=m&"
                "SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=n&"
                "SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=Binary&"
                "SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.BinaryValue=AA%3D%3D"
            ),
            {
                "Entries": [
                    {
                        "Id": "a",
                        "MessageBody": "m",
                        "MessageAttributes": {
                            "n": {"DataType": "Binary", "BinaryValue": "AA=="}
                        },
                    }
                ]
            },
        ),
    ],
)
def test_fields_become_parameters(action: str, form: str, params: dict[str, Any]) -> None:
    assert decode(action, form) == params


@pytest.mark.parametrize(
    ("action", "form", "code"),
    [
        ("SendMessage", "DelaySeconds=soon", INVALID_PARAMETER_VALUE),
        ("SendMessage", "DelaySeconds=", INVALID_PARAMETER_VALUE),
        ("SendMessage", "DelaySeconds=" + "9" * 5_000, INVALID_PARAMETER_VALUE),
        ("SendMessage", "DelaySeconds=\u0661", INVALID_PARAMETER_VALUE),
        ("SendMessage", "MessageBody.1=a", MALFORMED_INPUT),
        ("GetQueueAttributes", "AttributeName.x=a", MALFORMED_INPUT),
        ("GetQueueAttributes", "AttributeName.1.2=a", MALFORMED_INPUT),
        ("CreateQueue", "Attribute.1.Value=5", MISSING_PARAMETER),
        ("CreateQueue", "Attribute.1.Name=5", MISSING_PARAMETER),
        ("SendMessageBatch", "SendMessageBatchRequestEntry.1.Id=1", MISSING_PARAMETER),
        ("SendMessage", "." * 50 + "=a", MALFORMED_INPUT),
        ("GetQueueUrl", "QueueName.=a", MALFORMED_INPUT),
        ("GetQueueUrl", "QueueName=a&QueueName.=b", MALFORMED_INPUT),
        ("GetQueueAttributes", "AttributeName=a&AttributeName..=b", MALFORMED_INPUT),
        ("GetQueueAttributes", "=a", MALFORMED_INPUT),
        ("SendMessage", "MessageBody=%ff", MALFORMED_INPUT),
        ("SendMessage", "&".join(f"a{n}=1" for n in range(FIELDS_MAX + 1)), MALFORMED_INPUT),
    ],
)
def test_what_fits_no_parameter_is_refused(action: str, form: str, code: ErrorCode) -> None:
    assert refusal(action, form) is code


@given(data=st.binary() | st.text(alphabet="aAttributeName.1=&%20").map(str.encode))
def test_any_bytes_are_parameters_or_an_error(data: bytes) -> None:
    for operation in OPERATIONS.values():
        try:
            assert isinstance(decode_query(operation, parse_form(data)), dict)
        except SqsError as error:
            assert not error.code.status >= 500  # noqa: PT017 - either is right


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
SCALARS = {str: TEXT, int: st.integers(-(2**31), 2**31 - 1), bool: st.booleans()}


def values(shape: Shape) -> st.SearchStrategy[Any]:
    if isinstance(shape, Scalar):
        return SCALARS[shape.type]
    if isinstance(shape, Items):
        return st.lists(values(shape.member), min_size=1, max_size=3)
    if isinstance(shape, Entries):
        return st.dictionaries(TEXT, values(shape.value), min_size=1, max_size=3)
    members = {name: values(member) for name, member in shape.members.items()}
    optional = {name: value for name, value in members.items() if name not in shape.required}
    required = {name: members[name] for name in shape.required}
    return st.fixed_dictionaries(required, optional=optional).filter(bool)


def flatten(shape: Shape, value: Any, path: str) -> list[tuple[str, str]]:
    """Encode as SDKs did, independently of the product's code."""
    if isinstance(shape, Scalar):
        return [(path, str(value).lower() if shape is BOOLEAN else str(value))]
    if isinstance(shape, Items):
        return [
            pair
            for number, item in enumerate(value, 1)
            for pair in flatten(shape.member, item, f"{path}.{number}")
        ]
    if isinstance(shape, Entries):
        pairs = []
        for number, (key, item) in enumerate(value.items(), 1):
            pairs.append((f"{path}.{number}.{shape.key_name}", key))
            pairs += flatten(shape.value, item, f"{path}.{number}.{shape.value_name}")
        return pairs
    assert isinstance(shape, Structure)
    pairs = []
    for name, item in value.items():
        member = shape.members[name]
        query_name = name if isinstance(member, Scalar | Structure) else member.query_name
        pairs += flatten(member, item, f"{path}.{query_name}" if path else query_name)
    return pairs


@given(data=st.data(), action=st.sampled_from(sorted(OPERATIONS)))
def test_what_is_flattened_comes_back(data: st.DataObject, action: str) -> None:
    operation = OPERATIONS[action]
    params = data.draw(values(operation.input)) if operation.input.members else {}

    form = urlencode(flatten(operation.input, params, ""))

    assert decode(action, form) == params


# --- large forms, which are decoded another way

FILL = "fill=" + "x" * LARGE_BYTES + "&"


@given(fields=st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=6))
def test_a_large_form_has_the_fields_of_a_small_one(fields: dict[str, str]) -> None:
    form = urlencode(fields)

    found = parse_form((FILL + form).encode())

    del found["fill"]
    assert found == {key: value for key, value in fields.items() if key != "fill"}


@pytest.mark.parametrize("text", ["a=%zz", "a=%4", "a=%", "a=%%41", "a=%\n", "a=%C3", "%9=b"])
def test_a_large_form_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SqsError) as caught:
        parse_form((FILL + text).encode())

    assert caught.value.code is MALFORMED_INPUT


def test_a_large_form_with_odd_signs_is_read_as_it_is() -> None:
    found = parse_form((FILL + "a=b=c&d=\\x41_=3D\r\n&e=%3d%2B+%C3%A9&f").encode())

    assert (found["a"], found["d"], found["e"]) == ("b=c", "\\x41_=3D\r\n", "=+ \u00e9")
    assert found["f"] == ""


def test_a_large_form_of_too_many_fields_is_refused() -> None:
    with pytest.raises(SqsError) as caught:
        parse_form((FILL + "&".join(f"a{n}=1" for n in range(FIELDS_MAX))).encode())

    assert caught.value.code is MALFORMED_INPUT
