"""Access keys, presigned URLs and users' permissions; refusal without a key."""

import base64
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import urllib3
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.interop.sqs.calls import look, made, send, take
from tests.interop.sqs.programs.client_api import Api, Endpoint, Refused
from tests.interop.sqs.programs.with_aiobotocore import Aiobotocore
from tests.interop.sqs.programs.with_boto3 import Boto3
from tests.interop.sqs.programs.with_cli import AwsCli
from tests.interop.sqs.programs.with_query import Query, QueryByGet
from tests.support.sqs_gateway import SqsGateway
from tests.support.sqs_target import OWN

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("sqs-interop"), OWN]

CLIENTS = [Boto3, Aiobotocore, Query, QueryByGet, AwsCli]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsGateway]:
    """Run a gateway that requires signatures."""
    folder: Path = tmp_path_factory.mktemp("sqs-keys")
    with SqsGateway(folder / "data", {"adapters.sqs.anonymous": "never"}) as running:
        yield running


@pytest.fixture(scope="module")
def keyed(gateway: SqsGateway) -> Endpoint:
    """Return the endpoint with the key of an unrestricted user."""
    return gateway.with_key("alice")


@pytest.fixture
def api(keyed: Endpoint) -> Iterator[Boto3]:
    client = Boto3(keyed)
    yield client
    client.close()


@pytest.mark.parametrize("maker", CLIENTS)
def test_a_right_signature_is_served_and_a_wrong_one_refused(
    keyed: Endpoint, stem: str, maker: type[Api]
) -> None:
    right = maker(keyed)
    send(right, made(right, stem), "\u2603 signed & sent +%20~*'")
    right.close()

    seen = []
    for endpoint in (replace(keyed, secret="wrong"), replace(keyed, key_id="AKIAUNKNOWN")):
        wrong = maker(endpoint)
        with pytest.raises(Refused) as refused:
            wrong.call("GetQueueUrl", QueueName=stem)
        wrong.close()
        seen.append(refused.value.code)
    assert seen == ["SignatureDoesNotMatch", "InvalidClientTokenId"]


def test_who_does_not_sign_is_refused(gateway: SqsGateway) -> None:
    status, text = fetch(f"{gateway.endpoint.url}/?Action=ListQueues")
    assert (status, "<Code>MissingAuthenticationToken</Code>" in text) == (403, True)


def test_a_body_that_was_changed_on_its_way_is_refused(api: Boto3, stem: str) -> None:
    url = made(api, stem)
    changed = io.BytesIO()

    def change(request: Any, **_more: Any) -> None:
        changed.write(request.body)
        request.body = request.body.replace(b"pay 10", b"pay 99")

    api.client.meta.events.register("before-send.sqs.SendMessage", change)
    with pytest.raises(Refused) as refused:
        send(api, url, "pay 10")
    assert b"pay 10" in changed.getvalue()
    assert refused.value.code == "SignatureDoesNotMatch"
    assert look(api, url) == []


def presigned(endpoint: Endpoint, url: str, *, expires_s: int = 60) -> str:
    """Return a URL that may be fetched by whoever has it."""
    request = AWSRequest(method="GET", url=url)
    who = Credentials(endpoint.key_id, endpoint.secret)
    SigV4QueryAuth(who, "sqs", endpoint.region, expires=expires_s).add_auth(request)
    return str(request.url)


def fetch(url: str) -> tuple[int, str]:
    """GET a URL; return status and text."""
    answer = urllib3.request("GET", url, retries=False)
    return answer.status, answer.data.decode()


def test_a_presigned_url_sends_and_receives(keyed: Endpoint, api: Boto3, stem: str) -> None:
    url = made(api, stem)
    body = base64.urlsafe_b64encode(b"any text").decode()
    query = f"Action=SendMessage&Version=2012-11-05&MessageBody={body}%20%26%2B%E2%98%83"

    status, text = fetch(presigned(keyed, f"{url}?{query}"))
    assert (status, "<MessageId>" in text) == (200, True)
    assert [message["Body"] for message in take(api, url)] == [f"{body} &+\u2603"]


def test_a_presigned_url_for_one_thing_is_good_for_no_other(
    keyed: Endpoint, api: Boto3, stem: str
) -> None:
    url = presigned(keyed, f"{made(api, stem)}?Action=GetQueueAttributes&Version=2012-11-05")

    status, text = fetch(url.replace("GetQueueAttributes", "DeleteQueue"))
    assert (status, "<Code>SignatureDoesNotMatch</Code>" in text) == (403, True)


def test_a_removed_key_is_refused_from_then_on(gateway: SqsGateway, stem: str) -> None:
    endpoint = gateway.with_key("bob")
    client = Boto3(endpoint)
    made(client, stem)
    gateway.without_key(endpoint)

    with pytest.raises(Refused) as refused:
        client.call("GetQueueUrl", QueueName=stem)
    client.close()
    assert refused.value.code == "InvalidClientTokenId"


def test_two_keys_of_a_user_are_the_same_user(
    gateway: SqsGateway, api: Boto3, stem: str
) -> None:
    other = Boto3(gateway.with_key("alice"))
    url = made(api, stem)
    senders = set()
    for client in (api, other):
        send(client, url, "mine")
        [message] = take(api, url)
        senders.add(message["Attributes"]["SenderId"])
    other.close()
    assert len(senders) == 1
