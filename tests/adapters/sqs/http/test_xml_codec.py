"""The XML of answers, with the names of the last model that had the Query protocol."""

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.sqs.errors import QUEUE_DOES_NOT_EXIST, SERVICE_UNAVAILABLE, SqsError
from adapters.sqs.http.operations import OPERATIONS
from adapters.sqs.http.xml_codec import encode_error, encode_result

XMLNS = "{http://queue.amazonaws.com/doc/2012-11-05/}"


def body(action: str, result: dict[str, object]) -> str:
    """Return what stands inside of the result's element."""
    text = encode_result(OPERATIONS[action], result, "id-1").decode()
    found = re.search(rf"<{action}Result>(.*)</{action}Result>", text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("action", "result", "xml"),
    [
        ("CreateQueue", {"QueueUrl": "http://h/q"}, "<QueueUrl>http://h/q</QueueUrl>"),
        (
            "ListQueues",
            {"QueueUrls": ["a", "b"], "NextToken": "t"},
            "<QueueUrl>a</QueueUrl><QueueUrl>b</QueueUrl><NextToken>t</NextToken>",
        ),
        ("ListDeadLetterSourceQueues", {"queueUrls": ["a"]}, "<QueueUrl>a</QueueUrl>"),
        (
            "GetQueueAttributes",
            {"Attributes": {"DelaySeconds": "5"}},
            "<Attribute><Name>DelaySeconds</Name><Value>5</Value></Attribute>",
        ),
        (
            "ListQueueTags",
            {"Tags": {"k": "v"}},
            "<Tag><Key>k</Key><Value>v</Value></Tag>",
        ),
        (
            "ReceiveMessage",
            {
                "Messages": [
                    {
                        "Body": "a<b",
                        "Attributes": {"SenderId": "s"},
                        "MessageAttributes": {"n": {"DataType": "String", "StringValue": "v"}},
                    }
                ]
            },
            (
                "<Message><Body>a&lt;b</Body>"
                "<Attribute><Name>SenderId</Name><Value>s</Value></Attribute>"
                "<MessageAttribute><Name>n</Name><Value><DataType>String</DataType>"
                "<StringValue>v</StringValue></Value></MessageAttribute></Message>"
            ),
        ),
        (
            "SendMessageBatch",
            {
                "Successful": [{"Id": "1", "SequenceNumber": None}],
                "Failed": [{"Id": "2", "SenderFault": True, "Code": "C"}],
            },
            (
                "<SendMessageBatchResultEntry><Id>1</Id></SendMessageBatchResultEntry>"
                "<BatchResultErrorEntry><Id>2</Id><SenderFault>true</SenderFault><Code>C</Code>"
                "</BatchResultErrorEntry>"
            ),
        ),
        (
            "CancelMessageMoveTask",
            {"ApproximateNumberOfMessagesMoved": 3},
            "<ApproximateNumberOfMessagesMoved>3</ApproximateNumberOfMessagesMoved>",
        ),
    ],
)
def test_a_result_has_its_elements(action: str, result: dict[str, object], xml: str) -> None:
    assert body(action, result) == xml


def test_an_operation_without_a_result_says_only_its_id() -> None:
    assert encode_result(OPERATIONS["DeleteMessage"], {}, "id-1").decode() == (
        '<?xml version="1.0"?>'
        '<DeleteMessageResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        "<ResponseMetadata><RequestId>id-1</RequestId></ResponseMetadata>"
        "</DeleteMessageResponse>"
    )


@pytest.mark.parametrize(
    ("error", "fault", "code"),
    [
        (QUEUE_DOES_NOT_EXIST, "Sender", "AWS.SimpleQueueService.NonExistentQueue"),
        (SERVICE_UNAVAILABLE, "Receiver", "ServiceUnavailable"),
    ],
)
def test_an_error_has_the_older_code(error: object, fault: str, code: str) -> None:
    root = ET.fromstring(encode_error(SqsError(error, "a < b"), "id-2"))  # type: ignore[arg-type]  # noqa: S314
    assert root.tag == f"{XMLNS}ErrorResponse"
    assert root.findtext(f"{XMLNS}Error/{XMLNS}Type") == fault
    assert root.findtext(f"{XMLNS}Error/{XMLNS}Code") == code
    assert root.findtext(f"{XMLNS}Error/{XMLNS}Message") == "a < b"
    assert root.findtext(f"{XMLNS}RequestId") == "id-2"


@pytest.mark.parametrize("char", ["\x00", "\x0b", "\x1f", "\ufffe", "\uffff"])
def test_what_xml_cannot_carry_is_replaced(char: str) -> None:
    """An error may quote a client's text, and a tag may contain it."""
    error = encode_error(SqsError(QUEUE_DOES_NOT_EXIST, f"a{char}b"), "i")
    tags = encode_result(OPERATIONS["ListQueueTags"], {"Tags": {f"a{char}b": char}}, "i")

    message = ET.fromstring(error).findtext(f"{XMLNS}Error/{XMLNS}Message")  # noqa: S314
    tag = ET.fromstring(tags).find(f"{XMLNS}ListQueueTagsResult/{XMLNS}Tag")  # noqa: S314

    assert message == "a\ufffdb"
    assert tag is not None
    assert (tag.findtext(f"{XMLNS}Key"), tag.findtext(f"{XMLNS}Value")) == (
        "a\ufffdb",
        "\ufffd",
    )


# What XML 1.0 can carry (section 2.2).
XML_TEXT = st.text(
    st.characters(exclude_categories=["Cs"]).filter(
        lambda c: c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff")
    )
)


@given(text=XML_TEXT)
@example(text="a\r\nb\rc\n")  # a reader makes line feeds of returns that stand there bare
def test_any_text_that_xml_can_carry_comes_back(text: str) -> None:
    xml = encode_result(
        OPERATIONS["ReceiveMessage"],
        {"Messages": [{"Body": text, "Attributes": {text: text}}]},
        "i",
    )

    message = ET.fromstring(xml).find(f"{XMLNS}ReceiveMessageResult/{XMLNS}Message")  # noqa: S314

    assert message is not None
    assert message.findtext(f"{XMLNS}Body") == text
    assert message.findtext(f"{XMLNS}Attribute/{XMLNS}Name") == text
