"""Answers of the Query protocol that differ from JSON, as in Amazon SQS."""

import json

import pytest

from tests.adapters.sqs.handlers.messages import receive, send
from tests.adapters.sqs.handlers.query import get
from tests.adapters.sqs.handlers.serving import Live

JSON = "application/json"


@pytest.mark.parametrize("action", ["ListQueues", "CreateQueue"])
async def test_actions_that_are_of_no_queue_are_refused_at_its_url(
    live: Live, action: str
) -> None:
    url = await live.queue()

    answer = await get(live, url, Action=action, QueueName="other")

    assert answer.status == 400
    assert "<Code>InvalidAction</Code>" in answer.text
    assert (
        f"<Message>The action {action} is not valid for this endpoint.</Message>" in answer.text
    )
    assert live.kernel.queues.queues()[0].name.name == "orders"
    assert len(live.kernel.queues.queues()) == 1


async def test_the_url_of_another_queue_may_be_asked_at_a_queues_url(live: Live) -> None:
    url, other = await live.queue(), await live.queue("other")

    answer = await get(live, url, Action="GetQueueUrl", QueueName="other")

    assert (answer.status, f"<QueueUrl>{other}</QueueUrl>" in answer.text) == (200, True)


@pytest.mark.parametrize("accept", ["", JSON])
async def test_a_queue_url_that_is_only_looked_at_names_no_operation(
    live: Live, accept: str
) -> None:
    url = await live.queue()

    answer = await get(live, url, accept)

    assert answer.status == 404
    assert "<UnknownOperationException" in answer.text


async def test_a_queue_that_is_not_there_is_told_by_the_wsdl_version(live: Live) -> None:
    url = f"{live.url}/000000000000/nowhere"

    answer = await get(live, url, Action="GetQueueAttributes")

    assert answer.status == 400
    assert "<Code>AWS.SimpleQueueService.NonExistentQueue</Code>" in answer.text
    assert (
        "<Message>The specified queue does not exist for this wsdl version.</Message>"
        in answer.text
    )


@pytest.mark.parametrize(
    "action",
    ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"],
)
async def test_a_batch_of_nothing_is_empty(live: Live, action: str) -> None:
    url = await live.queue()

    answer = await get(live, url, Action=action)

    assert answer.status == 400
    assert "<Code>AWS.SimpleQueueService.EmptyBatchRequest</Code>" in answer.text
    assert f"at least one {action}RequestEntry in the request." in answer.text


async def test_a_result_of_nothing_is_an_empty_element(live: Live) -> None:
    url = await live.queue()

    answer = await get(live, url, Action="ReceiveMessage")

    assert "<ReceiveMessageResult/>" in answer.text


# --- Accept: application/json


async def test_errors_come_in_json_where_that_is_asked_for(live: Live) -> None:
    url = await live.queue()

    answer = await get(live, url, JSON, Action="ListQueues")

    assert (answer.status, answer.content_type) == (400, JSON)
    document = json.loads(answer.text)
    assert document["Error"] == {
        "Code": "InvalidAction",
        "Message": "The action ListQueues is not valid for this endpoint.",
        "Type": "Sender",
        "Detail": None,
    }
    assert document["RequestId"]


async def test_attributes_come_in_json_as_names_and_values(live: Live) -> None:
    url = await live.queue()

    answer = await get(
        live, url, JSON, **{"Action": "GetQueueAttributes", "AttributeName.1": "QueueArn"}
    )

    assert (answer.status, answer.content_type) == (200, JSON)
    document = json.loads(answer.text)["GetQueueAttributesResponse"]
    assert document["GetQueueAttributesResult"] == {
        "Attributes": [{"Name": "QueueArn", "Value": live.arn("orders")}]
    }
    assert document["ResponseMetadata"]["RequestId"]


async def test_messages_come_in_json(live: Live) -> None:
    url = await live.queue()
    sent = await get(
        live,
        url,
        JSON,
        **{
            "Action": "SendMessage",
            "MessageBody": 'say "é"',
            "MessageAttribute.1.Name": "city",
            "MessageAttribute.1.Value.DataType": "String",
            "MessageAttribute.1.Value.StringValue": "Rome",
        },
    )

    came = await get(
        live, url, JSON, **{"Action": "ReceiveMessage", "MessageAttributeName.1": "All"}
    )

    own_id = json.loads(sent.text)["SendMessageResponse"]["SendMessageResult"]["MessageId"]
    result = json.loads(came.text)["ReceiveMessageResponse"]["ReceiveMessageResult"]
    [message] = result["messages"]
    assert (message["MessageId"], message["Body"]) == (own_id, 'say "é"')
    assert message["MessageAttributes"] == [
        {"Name": "city", "Value": {"DataType": "String", "StringValue": "Rome"}}
    ]


async def test_a_receive_that_finds_nothing_says_so_in_json(live: Live) -> None:
    url = await live.queue()

    answer = await get(live, url, JSON, Action="ReceiveMessage")

    result = json.loads(answer.text)["ReceiveMessageResponse"]["ReceiveMessageResult"]
    assert result == {"messages": None}


async def test_an_action_without_a_result_has_only_its_request_id_in_json(live: Live) -> None:
    url = await live.queue()

    answer = await get(live, url, JSON, Action="DeleteQueue")

    assert list(json.loads(answer.text)["DeleteQueueResponse"]) == ["ResponseMetadata"]


async def test_an_answer_has_1_mib_of_messages_or_a_single_one(live: Live) -> None:
    url = await live.queue()
    for _ in range(3):
        await send(live, url, "<" * 600_000)

    answer = await get(live, url, Action="ReceiveMessage", MaxNumberOfMessages="10")

    assert answer.text.count("<Body>") == 1
    assert len(await receive(live, url)) == 2  # by JSON
