"""The endpoint as SDKs see it: queue URLs, admission, counts."""

from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from adapters.sqs.config import SqsConfig
from gateway.config.advice import check_exposure
from gateway.config.base import InvalidSettings
from gateway.config.loader import load_settings
from gateway.registry import adapter_class
from tests.adapters.sqs.handlers.serving import SESSION, Live, running
from tests.adapters.sqs.test_connection import connect, request
from tests.support.certificates import make_certificate

OTHER_ACCOUNT = "111111111111"


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with running(tmp_path) as live:
        yield live


async def url_for(live: Live, *headers: str) -> str:
    """Return the URL of the queue ``jobs``, to a client with these headers."""
    await live.queue("jobs")
    client = await connect(live)
    data = request("GetQueueUrl", {"QueueName": "jobs"})
    lines = "".join(f"{header}\r\n" for header in headers).encode()
    (answer,) = await client.exchange(data.replace(b"Host: h:1\r\n", lines))
    return str(answer.value["QueueUrl"])


@pytest.mark.parametrize(
    ("headers", "base_url"),
    [
        (("Host: queues.internal:1234",), "http://queues.internal:1234"),
        (("Host: [::1]:9324",), "http://[::1]:9324"),
        (("Host: sqs.us-east-1.localhost",), "http://sqs.us-east-1.localhost"),
    ],
)
async def test_queue_urls_begin_as_the_client_called(
    live: Live, headers: tuple[str, ...], base_url: str
) -> None:
    assert await url_for(live, *headers) == f"{base_url}/000000000000/jobs"


@pytest.mark.parametrize("headers", [(), ("Host:",), ("Host: a/b",), ("Host: <x>",)])
async def test_what_cannot_be_a_host_is_not_repeated(
    live: Live, headers: tuple[str, ...]
) -> None:
    assert await url_for(live, *headers) == f"{live.url}/000000000000/jobs"


async def test_the_advertised_url_wins(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"advertise": "https://sqs.example:9999/"}) as live:
        url = await url_for(live, "Host: h:1")
        assert url == "https://sqs.example:9999/000000000000/jobs"


async def test_over_tls_queue_urls_say_so(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    async with running(tmp_path, sqs={"tls_cert": cert, "tls_key": key}) as live:
        url = f"https://127.0.0.1:{live.adapter.listener.port}"
        secure = SESSION.client(
            "sqs",
            endpoint_url=url,
            aws_access_key_id="any",
            aws_secret_access_key="any",
            verify=str(cert),
        )
        live.clients.append(secure)
        assert await live.queue("jobs", by=secure) == f"{url}/000000000000/jobs"
        assert live.adapter.endpoints()[0].url == url


async def test_queues_of_other_accounts_and_regions_are_others(tmp_path: Path) -> None:
    config = {"accounts": [OTHER_ACCOUNT], "regions": ["eu-west-1"]}
    async with running(tmp_path, sqs=config) as live:
        clients = [
            live.boto,
            live.client((OTHER_ACCOUNT, "x")),
            live.client(region="eu-west-1"),
            live.client((OTHER_ACCOUNT, "x"), region="eu-west-1"),
        ]
        urls = [await live.queue("jobs", by=client) for client in clients]

        for client, url in zip(clients, urls, strict=True):
            await live.call("send_message", by=client, QueueUrl=url, MessageBody=url)
        for client, url in zip(clients, urls, strict=True):
            listed = await live.call("list_queues", by=client)
            assert listed["QueueUrls"] == [url]
            received = await live.call("receive_message", by=client, QueueUrl=url)
            assert received["Messages"][0]["Body"] == url
        assert [url.removeprefix(live.url) for url in urls] == [
            "/000000000000/jobs",
            f"/{OTHER_ACCOUNT}/jobs",
            "/queue/eu-west-1/000000000000/jobs",
            f"/queue/eu-west-1/{OTHER_ACCOUNT}/jobs",
        ]


async def test_another_account_is_not_let_in(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"accounts": [OTHER_ACCOUNT]}) as live:
        url = await live.queue("jobs")
        stranger = live.client((OTHER_ACCOUNT, "x"))

        refused = await live.refused("send_message", by=stranger, QueueUrl=url, MessageBody="a")

        assert (refused.code, refused.status) == ("AccessDenied", 403)
        assert "sqs:sendmessage on resource: arn:aws:sqs:us-east-1:0000" in refused.message


async def test_answers_bear_the_time_as_it_is(live: Live) -> None:
    """SDKs whose signature is refused set their clocks by it."""
    client = await connect(live)
    dates = []
    for step_ms in (0, 7_200_000, -3_600_000):
        live.clock.step_unix(step_ms)
        (answer,) = await client.exchange(request("ListQueues", {}))
        dates.append(parsedate_to_datetime(answer.headers["date"]).timestamp())

    assert [date - dates[0] for date in dates] == [0, 7_200, 3_600]


async def test_who_must_sign_signs(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"anonymous": "never"}) as live:
        bob = await live.user("bob")
        await live.queue("jobs", by=bob)
        liar = live.client((live.kernel.access_keys.keys()[0].key_id, "another secret"))

        unknown = await live.refused("list_queues")
        wrong = await live.refused("list_queues", by=liar)

        assert (unknown.code, unknown.status) == ("InvalidClientTokenId", 403)
        assert (wrong.code, wrong.status) == ("SignatureDoesNotMatch", 403)


async def test_a_stranger_is_refused_before_his_form_is_read(tmp_path: Path) -> None:
    """2 MiB of %41 take 300 ms to parse, in which no other client is served."""
    async with running(tmp_path, sqs={"anonymous": "never"}) as live:
        client = await connect(live)
        head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n"

        answers = await client.exchange(head + b"%ff", request("MakeTea", {}))

        assert [answer.status for answer in answers] == [403, 403]
        assert all(b"MissingAuthenticationToken" in answer.body for answer in answers)


async def test_a_signature_holds_for_a_quarter_of_an_hour(live: Live) -> None:
    bob = await live.user("bob")
    await live.call("list_queues", by=bob)
    live.clock.advance(930_000)
    refused = await live.refused("list_queues", by=bob)
    assert refused.code == "SignatureDoesNotMatch"
    assert refused.message.startswith("Signature expired: ")


async def presigned(live: Live, query: str, expires_s: int = 60) -> Any:
    key = await live.kernel.access_keys.add("bob")
    made = AWSRequest("GET", f"{live.url}/?{query}")
    SigV4QueryAuth(Credentials(key.key_id, key.secret), "sqs", "us-east-1", expires_s).add_auth(
        made
    )
    return made.url


async def test_a_presigned_url_is_a_request(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"anonymous": "never"}) as live:
        url = await presigned(live, "Action=CreateQueue&QueueName=jobs")

        made = await fetch(live, url)
        forged = await fetch(live, url.replace("QueueName=jobs", "QueueName=mine"))
        live.clock.advance(90_000)  # it stands still, botocore's does not
        late = await fetch(live, url)

        assert "/000000000000/jobs</QueueUrl>" in made
        assert "<Code>SignatureDoesNotMatch</Code>" in forged
        assert "<Code>RequestExpired</Code>" in late
        assert live.kernel.queues.queues("default")[0].topic.name.name == "jobs"


async def fetch(live: Live, url: str) -> str:
    target = url.removeprefix(live.url)
    client = await connect(live)
    host = live.url.removeprefix("http://")
    (answer,) = await client.exchange(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return str(answer.body.decode())


async def test_the_secret_of_receipt_handles_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        secret = live.adapter.node.secret
    async with running(tmp_path) as live:
        assert live.adapter.node.secret == secret
    assert len(secret) == 32


async def test_an_endpoint_that_stopped_reads_no_log_and_hears_of_no_topic(live: Live) -> None:
    url = await live.queue("jobs.fifo")
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    await live.call("send_message", QueueUrl=url, MessageBody="a", **ids)
    messages = live.adapter.node.messages
    assert messages.dedup_ids_used == 1

    await live.adapter.stop()

    assert messages.dedup_ids_used == 0
    assert messages._on_deleted not in live.kernel.topics.on_deleted


async def test_requests_are_counted_by_action(live: Live) -> None:
    await live.queue("jobs")
    await live.call("list_queues")
    await live.call("list_queues")
    assert dict(live.adapter.request_counts()) == {"CreateQueue": 1, "ListQueues": 2}
    (shown, *_) = live.adapter.connections()
    assert shown["requests_waiting"] == 0


async def test_the_endpoint_says_how_to_try_it(live: Live) -> None:
    (endpoint,) = live.adapter.endpoints()
    assert endpoint.name == "sqs"
    assert endpoint.url == live.url
    assert f"aws --endpoint-url {live.url} sqs create-queue" in endpoint.try_it


# --- settings


def test_a_node_without_a_config_serves_sqs() -> None:
    assert load_settings().adapters["sqs"] == SqsConfig()
    assert SqsConfig().bind == "127.0.0.1:9324"
    assert adapter_class("sqs").Config is SqsConfig


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("region", "mars"),
        ("regions", '["us-east-1", "Mars-1"]'),
        ("account", "12"),
        ("accounts", '["00000000000x"]'),
        ("advertise", "queues.example:9324"),
        ("advertise", "http://queues.example/path"),
        ("anonymous", "sometimes"),
        ("request_bytes_budget", "4194303"),
    ],
)
def test_a_bad_value_is_named(key: str, value: str) -> None:
    with pytest.raises(InvalidSettings, match=key):
        load_settings(assignments=[f"adapters.sqs.{key}={value}"])


def test_anybody_may_come_only_on_purpose() -> None:
    settings = load_settings()
    open_to_all = SqsConfig(bind="0.0.0.0:9324", anonymous="always")
    assert not open_to_all.refuses_strangers
    assert SqsConfig(bind="0.0.0.0:9324").refuses_strangers
    assert any("anonymous" in line for line in open_to_all.warnings(settings))
    assert SqsConfig().warnings(settings) == []


def test_where_login_is_required_nobody_may_come_unsigned() -> None:
    place = ["adapters.sqs.bind=0.0.0.0:9324", 'adapters.sqs.anonymous="always"']
    settings = load_settings(assignments=place)
    with pytest.raises(InvalidSettings, match="is open to others"):
        check_exposure(settings, users_configured=False)
    required = load_settings(assignments=[*place, "auth.required=true"])
    check_exposure(required, users_configured=True)
    assert required.adapters["sqs"].warnings(required) == []  # type: ignore[attr-defined]
