"""Web pages of others do not reach listeners that ask nobody who he is."""

import http.client
from pathlib import Path
from typing import Any

import pytest

from gateway.http_origin import is_foreign_origin, is_known_host
from gateway.testing.ports import free_port
from tests.adapters.mqtt.connection.test_websocket import peer
from tests.adapters.mqtt.live import running
from tests.support.gateway import Gateway


@pytest.mark.parametrize(
    "host",
    [
        None, "", "127.0.0.1:8083", "[::1]:8083", "10.1.2.3", "localhost", "LOCALHOST:1",
        "a.localhost", "broker:8083", "broker.svc", "node1.headgate.svc.cluster.local",
        "broker.internal.", "mq.example.com:8083",
    ],
)  # fmt: skip
def test_hosts_that_no_page_of_others_can_have(host: str | None) -> None:
    assert is_known_host(host, ("mq.example.com",))


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example.com:8083", "127.0.0.1.evil.example", "x.mq.example.com"],
)
def test_hosts_of_the_public_dns_are_refused_unless_configured(host: str) -> None:
    assert not is_known_host(host, ("mq.example.com",))


@pytest.mark.parametrize(
    ("origin", "host", "foreign"),
    [
        (None, "127.0.0.1:8083", False),
        ("http://127.0.0.1:8083", "127.0.0.1:8083", False),
        ("http://localhost:3000", "[::1]:8083", False),
        ("https://mq.example.com", "mq.example.com:8083", False),
        ("https://MQ.example.com", "mq.EXAMPLE.com", False),
        ("https://evil.example", "127.0.0.1:8083", True),
        ("https://mq.example.com.evil.example", "mq.example.com", True),
        ("http://127.0.0.1.evil.example", "127.0.0.1", True),
        ("http://10.0.0.1", "127.0.0.1", True),
        ("null", "127.0.0.1", True),
        ("", "127.0.0.1", True),
        ("http://[", "127.0.0.1", True),
    ],
)
def test_foreign_origins(origin: str | None, host: str, foreign: bool) -> None:  # noqa: FBT001
    assert is_foreign_origin(origin, host) is foreign


@pytest.mark.parametrize(
    ("websocket", "users", "host", "origin", "status"),
    [
        ({}, (), None, None, 101),
        ({}, (), None, "http://127.0.0.1:9999", 101),
        ({}, (), None, "https://evil.example", 403),
        ({}, (), None, "null", 403),
        ({}, (), "evil.example", "http://evil.example", 403),
        ({}, (), "evil.example", None, 403),
        ({}, ("anna",), "mq.example.com", "https://mq.example.com", 101),
        ({}, ("anna",), "mq.example.com", "https://evil.example", 403),
        ({"hosts": ["mq.example.com"]}, (), "mq.example.com", None, 101),
        ({"origins": ["https://evil.example"]}, (), None, "https://evil.example", 101),
        ({"origins": ["https://ours.example"]}, (), None, "http://127.0.0.1:1", 403),
    ],
)
async def test_who_may_open_a_websocket(  # noqa: PLR0917 - one parameter a column
    tmp_path: Path,
    websocket: dict[str, Any],
    users: tuple[str, ...],
    host: str | None,
    origin: str | None,
    status: int,
) -> None:
    settings = {"websocket": {"bind": "127.0.0.1:0", **websocket}}
    async with (
        running(tmp_path, mqtt=settings, users=users) as live,
        peer(live, origin=origin, host=host) as client,
    ):
        assert client.response is not None
        assert client.response.status_code == status


def status_of(port: int, path: str, host: str, origin: str | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Host": host} | ({} if origin is None else {"Origin": origin})
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_http_that_asks_nobody_who_he_is_looks_at_the_host(tmp_path: Path) -> None:
    sqs_port = free_port()
    settings = {
        "adapters.sqs.bind": f"127.0.0.1:{sqs_port}",
        "adapters.sqs.hosts": '["queues.example.com"]',
        "admin.hosts": '["admin.example.com"]',
    }
    with Gateway(tmp_path / "data", settings) as gateway:
        for path in ("/metrics", "/healthz", "/readyz"):
            assert status_of(gateway.admin_port, path, "evil.example:9644") == 403
            assert status_of(gateway.admin_port, path, "admin.example.com:9644") == 200
            assert status_of(gateway.admin_port, path, "headgate.monitoring.svc") == 200
        list_queues = "/?Action=ListQueues"
        assert status_of(sqs_port, list_queues, "evil.example") == 403
        assert status_of(sqs_port, list_queues, "queues:9324", "http://queues:9324") == 403
        assert status_of(sqs_port, list_queues, "queues:9324") == 200
        assert status_of(sqs_port, list_queues, "queues.example.com") == 200
