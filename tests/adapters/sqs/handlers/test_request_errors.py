"""Errors of authentication and decoding, before any operation."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from botocore import UNSIGNED
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from tests.adapters.sqs.handlers.serving import REGION, SESSION, Live, running

JSON = "application/x-amz-json-1.0"


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Live]:
    """Return an endpoint that serves nobody who does not sign."""
    async with running(tmp_path, sqs={"anonymous": "never"}) as live:
        yield live


def _ask(live: Live, method: str, path: str, body: str, headers: dict[str, str]) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", live.adapter.listener.port, timeout=10)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


async def ask(
    live: Live,
    path: str = "/",
    *,
    method: str = "POST",
    body: str = "",
    headers: dict[str, str] | None = None,
) -> Any:
    """Return (status, body, headers) of a request in bytes of our own."""
    return await asyncio.to_thread(_ask, live, method, path, body, headers or {})


async def test_a_wrong_secret(live: Live) -> None:
    key = await live.kernel.access_keys.add("alice")
    refused = await live.refused("list_queues", by=live.client((key.key_id, "wrong")))
    assert refused.code in {"SignatureDoesNotMatch", "InvalidSignatureException"}
    assert refused.status == 403


async def test_a_key_that_nobody_has(strict: Live) -> None:
    refused = await strict.refused("list_queues")
    assert refused.code in {"InvalidClientTokenId", "UnrecognizedClientException"}
    assert refused.status == 403


async def test_no_signature(strict: Live) -> None:
    unsigned = SESSION.client(
        "sqs", endpoint_url=strict.url, config=Config(signature_version=UNSIGNED)
    )
    strict.clients.append(unsigned)
    refused = await strict.refused("list_queues", by=unsigned)
    assert refused.code in {"MissingAuthenticationToken", "MissingAuthenticationTokenException"}
    assert refused.status == 403


async def test_half_a_signature(strict: Live) -> None:
    headers = {
        "X-Amz-Target": "AmazonSQS.ListQueues",
        "Content-Type": JSON,
        "Authorization": "AWS4-HMAC-SHA256 Credential=x/20261120/us-east-1/sqs/aws4_request",
    }
    status, body, _ = await ask(strict, body="{}", headers=headers)
    assert status == 400
    assert json.loads(body)["__type"].endswith("IncompleteSignature")


async def test_a_presigned_url_expires(live: Live) -> None:
    url = await live.queue()
    key = await live.kernel.access_keys.add("alice")
    request = AWSRequest("GET", f"{url}?Action=ListQueueTags")
    SigV4QueryAuth(Credentials(key.key_id, key.secret), "sqs", REGION, expires=60).add_auth(
        request
    )
    path = str(request.url).removeprefix(live.url)
    status, _, _ = await ask(live, path, method="GET")
    assert status == 200
    live.clock.advance(120_000)
    status, body, _ = await ask(live, path, method="GET")
    assert status == 403
    assert "<Code>RequestExpired</Code>" in body


async def test_an_action_that_there_is_none_of(live: Live) -> None:
    status, body, _ = await ask(
        live,
        body="Action=Nothing&Version=2012-11-05",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert status == 400
    assert "<Code>InvalidAction</Code>" in body
    status, body, _ = await ask(
        live, body="{}", headers={"X-Amz-Target": "AmazonSQS.Nothing", "Content-Type": JSON}
    )
    assert status == 400
    assert json.loads(body)["__type"].endswith("UnknownOperationException")


@pytest.mark.parametrize(
    "params", [{"QueueName": 1}, {"QueueName": ["x"]}, {"Attributes": "x"}]
)
async def test_a_parameter_of_another_type(live: Live, params: dict[str, Any]) -> None:
    headers = {"X-Amz-Target": "AmazonSQS.CreateQueue", "Content-Type": JSON}
    status, body, _ = await ask(live, body=json.dumps(params), headers=headers)
    assert status == 400
    assert json.loads(body)["__type"].endswith("SerializationException")


async def test_a_body_above_the_bound(live: Live) -> None:
    url = await live.queue()
    body = json.dumps({"QueueUrl": url, "MessageBody": "x" * 9_000_000})
    headers = {"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Type": JSON}
    status, text, _ = await ask(live, body=body, headers=headers)
    assert status == 413
    assert "RequestEntityTooLarge" in text


async def test_the_query_protocol_makes_queues_too(live: Live) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    fields = [
        "Action=CreateQueue&QueueName=orders&Version=2012-11-05",
        "Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=45",
        "Tag.1.Key=team&Tag.1.Value=a",
    ]
    status, body, _ = await ask(live, body="&".join(fields), headers=form)
    assert status == 200
    assert f"<QueueUrl>{live.url}/000000000000/orders</QueueUrl>" in body
    assert live.kept().settings.lease_ms == 45_000
    assert live.kept().tags == {"team": "a"}
    path = "/000000000000/orders?Action=GetQueueAttributes&AttributeName.1=VisibilityTimeout"
    status, body, _ = await ask(live, path, method="GET")
    assert status == 200
    assert "<Name>VisibilityTimeout</Name><Value>45</Value>" in body
    fields = ["Action=SetQueueAttributes", "Attribute.1.Name=Color", "Attribute.1.Value=x"]
    path = "/000000000000/orders?" + "&".join(fields)
    status, body, _ = await ask(live, path, method="GET")
    assert status == 400
    assert "<Code>InvalidAttributeName</Code>" in body
    assert "<Message>Unknown Attribute Color.</Message>" in body
