"""Refused requests in boto3: the code of each documented error."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.interop.sqs.calls import arn_of, delete, made, refused, send, take
from tests.interop.sqs.programs.with_boto3 import Boto3
from tests.support.sqs_target import OWN, Target

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("sqs-interop"), OWN]

TEXT = {"DataType": "String", "StringValue": "x"}
URL = "{url}"  # what stands for the standard queue, and more such names below


@dataclass(frozen=True)
class Place:
    """Queues of the refused requests."""

    api: Boto3
    names: dict[str, str]

    def filled(self, value: Any) -> Any:
        """Return parameters with names in place of what stands for them."""
        if isinstance(value, dict):
            return {name: self.filled(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.filled(one) for one in value]
        return self.names.get(value, value) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def place(target: Target) -> Iterator[Place]:
    """Make the queues once."""
    api = Boto3(target.endpoint)
    url, other = made(api, "refusing"), made(api, "refusing-other")
    fifo = made(api, "refusing.fifo", FifoQueue="true")
    send(api, other, "held")
    [held] = take(api, other, VisibilityTimeout=600)
    send(api, url, "gone")
    [gone] = take(api, url)
    delete(api, url, gone)
    api.call(
        "AddPermission", QueueUrl=url, Label="taken", AWSAccountIds=["1" * 12], Actions=["*"]
    )
    yield Place(
        api,
        {
            URL: url,
            "{other}": other,
            "{fifo}": fifo,
            "{none}": f"{url}-none",
            "{arn}": arn_of(api, url),
            "{no-arn}": f"{arn_of(api, url)}-none",
            "{held}": held["ReceiptHandle"],
            "{gone}": gone["ReceiptHandle"],
            "{to-fifo}": policy(arn_of(api, fifo), 2),
            "{to-none}": policy(f"{arn_of(api, url)}-none", 2),
            "{never}": policy(arn_of(api, other), 0),
        },
    )
    api.close()


def policy(arn: str, attempts: int) -> str:
    """Return a RedrivePolicy."""
    return json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": attempts})


def entries(*ids: str, body: str = "x") -> list[dict[str, str]]:
    """Return entries of a batch of sends."""
    return [{"Id": one, "MessageBody": body} for one in ids]


def sent(**more: Any) -> dict[str, Any]:
    """Return the parameters of a send."""
    return {"QueueUrl": URL, "MessageBody": "x", **more}


def attributes(**values: str) -> dict[str, Any]:
    """Return the parameters that set attributes."""
    return {"QueueUrl": URL, "Attributes": values}


VALUE = "InvalidParameterValue"
NO_QUEUE = "NonExistentQueue"
NO_HANDLE = "ReceiptHandleIsInvalid"
HANDLE = {"QueueUrl": URL, "ReceiptHandle": "forged"}
CASES: list[tuple[str, dict[str, Any], str]] = [
    (
        "AddPermission",
        {"QueueUrl": URL, "Label": "taken", "AWSAccountIds": ["1" * 12], "Actions": ["*"]},
        VALUE,
    ),
    ("CancelMessageMoveTask", {"TaskHandle": "forged"}, VALUE),
    ("ChangeMessageVisibility", {**HANDLE, "VisibilityTimeout": 1}, NO_HANDLE),
    ("ChangeMessageVisibility", {**HANDLE, "VisibilityTimeout": 43_201}, VALUE),
    (
        "ChangeMessageVisibility",
        {"QueueUrl": URL, "ReceiptHandle": "{gone}", "VisibilityTimeout": 1},
        VALUE,
    ),
    ("ChangeMessageVisibilityBatch", {"QueueUrl": URL, "Entries": []}, "EmptyBatchRequest"),
    ("CreateQueue", {"QueueName": "a b"}, VALUE),
    ("CreateQueue", {"QueueName": "a" * 81}, VALUE),
    ("CreateQueue", {"QueueName": "x", "Attributes": {"Nothing": "1"}}, "InvalidAttributeName"),
    (
        "CreateQueue",
        {"QueueName": "refusing", "Attributes": {"VisibilityTimeout": "3"}},
        "QueueAlreadyExists",
    ),
    ("DeleteMessage", HANDLE, NO_HANDLE),
    ("DeleteMessage", {"QueueUrl": URL, "ReceiptHandle": "{held}"}, NO_HANDLE),  # the other's
    ("DeleteMessageBatch", {"QueueUrl": URL, "Entries": []}, "EmptyBatchRequest"),
    ("DeleteQueue", {"QueueUrl": "{none}"}, NO_QUEUE),
    (
        "GetQueueAttributes",
        {"QueueUrl": URL, "AttributeNames": ["Nothing"]},
        "InvalidAttributeName",
    ),
    ("GetQueueUrl", {"QueueName": "none"}, NO_QUEUE),
    ("ListDeadLetterSourceQueues", {"QueueUrl": "{none}"}, NO_QUEUE),
    ("ListMessageMoveTasks", {"SourceArn": "{no-arn}"}, "ResourceNotFoundException"),
    ("ListQueueTags", {"QueueUrl": "{none}"}, NO_QUEUE),
    ("ListQueues", {"MaxResults": 1_001}, VALUE),
    ("ListQueues", {"MaxResults": 1, "NextToken": "forged"}, VALUE),
    ("PurgeQueue", {"QueueUrl": "{none}"}, NO_QUEUE),
    ("ReceiveMessage", {"QueueUrl": "{none}"}, NO_QUEUE),
    ("ReceiveMessage", {"QueueUrl": URL, "MaxNumberOfMessages": 11}, VALUE),
    ("ReceiveMessage", {"QueueUrl": URL, "WaitTimeSeconds": 21}, VALUE),
    ("ReceiveMessage", {"QueueUrl": URL, "VisibilityTimeout": -1}, VALUE),
    ("ReceiveMessage", {"QueueUrl": URL, "ReceiveRequestAttemptId": "x"}, VALUE),
    ("RemovePermission", {"QueueUrl": URL, "Label": "none"}, VALUE),
    ("SendMessage", sent(MessageBody=""), "MissingParameter"),
    ("SendMessage", sent(MessageBody="\x00"), "InvalidMessageContents"),
    ("SendMessage", sent(DelaySeconds=901), VALUE),
    ("SendMessage", sent(QueueUrl="{none}"), NO_QUEUE),
    ("SendMessage", sent(MessageDeduplicationId="x"), VALUE),
    ("SendMessage", sent(QueueUrl="{fifo}", MessageGroupId="g" * 129), VALUE),
    ("SendMessage", sent(MessageAttributes={f"a{n}": TEXT for n in range(11)}), VALUE),
    ("SendMessage", sent(MessageAttributes={"AWS.a": TEXT}), VALUE),
    ("SendMessage", sent(MessageAttributes={"a": {**TEXT, "DataType": "Number"}}), VALUE),
    ("SendMessage", sent(MessageAttributes={"a": {**TEXT, "DataType": "Nothing"}}), VALUE),
    ("SendMessageBatch", {"QueueUrl": URL, "Entries": []}, "EmptyBatchRequest"),
    ("SendMessageBatch", {"QueueUrl": URL, "Entries": entries("a b")}, "InvalidBatchEntryId"),
    (
        "SendMessageBatch",
        {"QueueUrl": URL, "Entries": entries("a", "a")},
        "BatchEntryIdsNotDistinct",
    ),
    (
        "SendMessageBatch",
        {"QueueUrl": URL, "Entries": entries(*"abcdefghijk")},
        "TooManyEntriesInBatchRequest",
    ),
    (
        "SendMessageBatch",
        {"QueueUrl": URL, "Entries": entries("a", "b", body="x" * 600_000)},
        "BatchRequestTooLong",
    ),
    ("SetQueueAttributes", attributes(VisibilityTimeout="43201"), "InvalidAttributeValue"),
    ("SetQueueAttributes", attributes(FifoQueue="true"), "InvalidAttributeName"),
    ("SetQueueAttributes", attributes(RedrivePolicy="{to-fifo}"), VALUE),
    ("SetQueueAttributes", attributes(RedrivePolicy="{to-none}"), VALUE),
    ("SetQueueAttributes", attributes(RedrivePolicy="{never}"), VALUE),
    ("StartMessageMoveTask", {"SourceArn": "{arn}"}, VALUE),  # nobody's dead letters
    ("StartMessageMoveTask", {"SourceArn": "{no-arn}"}, "ResourceNotFoundException"),
    ("TagQueue", {"QueueUrl": URL, "Tags": {f"k{n}": "v" for n in range(51)}}, VALUE),
    ("UntagQueue", {"QueueUrl": "{none}", "TagKeys": ["a"]}, NO_QUEUE),
]


@pytest.mark.parametrize(
    ("action", "params", "code"),
    CASES,
    ids=[f"{action}-{code}-{n}" for n, (action, _, code) in enumerate(CASES)],
)
def test_a_request_that_cannot_be_served_is_refused_by_its_code(
    place: Place, action: str, params: dict[str, Any], code: str
) -> None:
    assert refused(place.api, action, **place.filled(params)) == code
