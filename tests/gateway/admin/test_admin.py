"""The admin endpoint over real HTTP, in front of a real kernel."""

import asyncio
import http.client
import json
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from gateway import errors
from gateway.admin import server as admin
from gateway.admin.error_answers import STATUS, error_answer
from gateway.admin.server import AdminServer
from gateway.admin.token import TOKEN_FILE, URL_FILE, ensure_token, read_url
from gateway.cli.admin_client import NodeUnreachable, Refused
from gateway.cli.app import app
from gateway.config.base import InvalidSettings
from gateway.config.settings import AdminConfig
from gateway.kernel import Kernel
from gateway.model import TopicName
from gateway.records.codec import encode_batch
from gateway.retention_holds import HolderKind
from gateway.writer import Write
from tests.gateway.admin.kernel_with_admin import Setup, running_admin


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    async with running_admin(tmp_path) as found:
        yield found


def raw(server: AdminServer, data: bytes) -> bytes:
    """Send bytes and return all that comes back before the endpoint closes."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def status_of(server: AdminServer, path: str, **headers: str) -> tuple[int, bytes]:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


async def test_health_and_metrics_are_open_and_readiness_is_told(setup: Setup) -> None:
    setup.state.metrics.gauge("headgate_open", "Open things.", lambda: 3)
    assert await asyncio.to_thread(status_of, setup.server, "/healthz") == (200, b"ok\n")
    assert (await asyncio.to_thread(status_of, setup.server, "/readyz"))[0] == 200
    setup.state.is_ready = False
    assert (await asyncio.to_thread(status_of, setup.server, "/readyz"))[0] == 503
    status, body = await asyncio.to_thread(status_of, setup.server, "/metrics")
    assert status == 200
    assert b"headgate_open 3.0\n" in body


@pytest.mark.parametrize("shown", ["", "Bearer ", "Bearer wrong", "Basic abc"])
async def test_rest_needs_the_token(setup: Setup, shown: str) -> None:
    headers = {"authorization": shown} if shown else {}
    status, body = await asyncio.to_thread(status_of, setup.server, "/v1/topics", **headers)
    assert status == 401
    assert json.loads(body)["error"] == "Unauthenticated"


async def test_what_is_not_there_is_hidden_without_the_token(setup: Setup) -> None:
    assert (await asyncio.to_thread(status_of, setup.server, "/v1/nothing"))[0] == 401
    assert (await asyncio.to_thread(status_of, setup.server, "/nothing"))[0] == 401
    with pytest.raises(Refused, match="Not Found"):
        await asyncio.to_thread(setup.client.get, "nothing")


async def test_token_and_address_are_for_the_owner_only(setup: Setup) -> None:
    for name in (TOKEN_FILE, URL_FILE):
        assert stat.S_IMODE((setup.data_dir / name).stat().st_mode) == 0o600
    token = (setup.data_dir / TOKEN_FILE).read_text().strip()
    assert len(token) >= 40
    assert ensure_token(setup.data_dir) == token


async def test_rest_answers_503_until_the_kernel_is_there(setup: Setup) -> None:
    setup.state.kernel = None
    with pytest.raises(Refused, match="ShuttingDown"):
        await asyncio.to_thread(setup.client.get, "topics")


async def test_the_way_of_a_topic(setup: Setup) -> None:
    send = setup.client.send
    body = {"name": "orders", "partitions": 2, "configs": {"retention.ms": "1000"}}
    made = await asyncio.to_thread(partial(send, "POST", "topics", body=body))
    assert (made["name"], made["partitions"]) == ("orders", 2)
    listed = await asyncio.to_thread(setup.client.get, "topics")
    assert [topic["name"] for topic in listed["topics"]] == ["orders"]
    await asyncio.to_thread(
        lambda: send("POST", "topics", "orders", "partitions", body={"total": 3})
    )
    changes = {"changes": {"retention.ms": None, "max.message.bytes": "5000"}}
    await asyncio.to_thread(partial(send, "PATCH", "topics", "orders", "configs", body=changes))
    topic = await asyncio.to_thread(setup.client.get, "topics", "orders")
    assert topic["configs_set"] == {"max.message.bytes": "5000"}
    assert [partition["number"] for partition in topic["partitions"]] == [0, 1, 2]
    await asyncio.to_thread(partial(send, "DELETE", "topics", "orders"))
    assert await asyncio.to_thread(setup.client.get, "topics") == {"topics": []}


async def test_refusals_name_the_error(setup: Setup) -> None:
    send = setup.client.send
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"name": "a/b"}, "InvalidTopicName"),
        ({"name": "a", "partitions": 0}, "InvalidPartitions"),
        ({"name": "a", "configs": {"retention.mss": "1"}}, "InvalidConfig"),
        ({"nam": "a"}, "InvalidRequest: name: Field required"),
        ({}, "InvalidRequest"),
    ]
    for body, words in refusals:
        with pytest.raises(Refused, match=words):
            await asyncio.to_thread(partial(send, "POST", "topics", body=body))
    with pytest.raises(Refused, match="TopicNotFound"):
        await asyncio.to_thread(setup.client.get, "topics", "nobody")


async def test_a_body_above_the_bound_is_refused(setup: Setup) -> None:
    body = {"name": "a" * 1_100_000}
    with pytest.raises(Refused, match="larger than 1048576 bytes"):
        await asyncio.to_thread(partial(setup.client.send, "POST", "topics", body=body))


async def append(kernel: Kernel, topic: str, count: int) -> None:
    partition = kernel.broker.partition(kernel.topics.get(TopicName("default", topic)), 0)
    records = [(kernel.clock.unix_ms(), None, b"x", ())] * count
    write = kernel.broker.prepare(partition, encode_batch(records))
    assert isinstance(write, Write)
    done = asyncio.get_running_loop().create_future()
    kernel.broker.append([write], done.set_result)
    assert await done is None


async def test_a_topic_shows_its_offsets_and_size(setup: Setup) -> None:
    await setup.kernel.topics.create(TopicName("default", "orders"))
    await append(setup.kernel, "orders", 7)
    topic = await asyncio.to_thread(setup.client.get, "topics", "orders")
    (partition,) = topic["partitions"]
    assert (partition["log_start_offset"], partition["high_watermark"]) == (0, 7)
    assert partition["size_bytes"] > 61


async def test_a_topic_shows_who_holds_it(setup: Setup) -> None:
    topic = await setup.kernel.topics.create(TopicName("default", "orders"), partitions=2)
    await append(setup.kernel, "orders", 7)
    holders = setup.kernel.broker.holders
    holders.hold(topic.partition_ids[0], "orders/billing", HolderKind.QUEUE, 5)
    holders.hold(topic.partition_ids[0], "lake", HolderKind.ARCHIVE, 2)

    described = await asyncio.to_thread(setup.client.get, "topics", "orders")
    assert [partition["holders"] for partition in described["partitions"]] == [
        [
            {"name": "lake", "kind": "archive", "offset": 2, "behind": 5},
            {"name": "orders/billing", "kind": "queue", "offset": 5, "behind": 2},
        ],
        [],
    ]

    command = ["topics", "describe", "orders", "--set", f"node.data_dir={setup.data_dir}"]
    shown = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert "held by" in shown.output
    assert any(
        line.split() == ["0", "orders/billing", "queue", "5", "2"]
        for line in shown.output.splitlines()
    )


async def test_the_way_of_a_group(setup: Setup) -> None:
    send, name = setup.client.send, "billing/eu west"
    await setup.kernel.topics.create(TopicName("default", "orders"), partitions=2)
    await append(setup.kernel, "orders", 7)
    for to, offset in [("latest", 7), ("5", 5), ("earliest", 0), ("3", 3)]:
        body = {"topic": "orders", "partition": 0, "to": to}
        moved = await asyncio.to_thread(
            partial(send, "POST", "groups", name, "offsets", body=body)
        )
        assert moved["offsets"] == [{"topic": "orders", "partition": 0, "offset": offset}]
    listed = (await asyncio.to_thread(setup.client.get, "groups"))["groups"]
    assert [(group["group_id"], group["state"]) for group in listed] == [(name, "Empty")]
    shown = await asyncio.to_thread(setup.client.get, "groups", name, "offsets")
    (position,) = shown["offsets"]
    assert (position["offset"], position["end"], position["lag"]) == (3, 7, 4)
    described = await asyncio.to_thread(setup.client.get, "groups", name)
    assert described["members"] == []
    await asyncio.to_thread(partial(send, "DELETE", "groups", name))
    with pytest.raises(Refused, match="GroupNotFound"):
        await asyncio.to_thread(setup.client.get, "groups", name, "offsets")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"topic": "orders", "to": "1"}, "OffsetOutOfRange"),
        ({"topic": "orders", "to": "-1"}, "InvalidRequest: to: earliest"),
        ({"topic": "nobody", "to": "latest"}, "TopicNotFound"),
        ({"topic": "orders", "partition": 9, "to": "latest"}, "TopicNotFound"),
        ({"topic": "orders", "topic_uuid": str(uuid4()), "to": "latest"}, "not the one with"),
    ],
)
async def test_offsets_that_are_not_there_are_refused(
    setup: Setup, body: dict[str, object], words: str
) -> None:
    await setup.kernel.topics.create(TopicName("default", "orders"))
    with pytest.raises(Refused, match=words):
        await asyncio.to_thread(
            partial(setup.client.send, "POST", "groups", "g", "offsets", body=body)
        )


async def test_the_way_of_a_user(setup: Setup) -> None:
    send, name = setup.client.send, "jürgen/ops"
    await asyncio.to_thread(partial(send, "PUT", "users", name, body={"password": "geheim"}))
    users = (await asyncio.to_thread(setup.client.get, "users"))["users"]
    mechanisms = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    shown = {"administrator": True, "origin": "store"}
    assert users == [{"name": name, "mechanisms": mechanisms, **shown}]
    assert await setup.kernel.authenticator.authenticate_plain(name, "geheim") == name
    await asyncio.to_thread(partial(send, "DELETE", "users", name))
    with pytest.raises(Refused, match="UserNotFound"):
        await asyncio.to_thread(partial(send, "DELETE", "users", name))
    with pytest.raises(Refused, match="InvalidRequest: a password has"):
        await asyncio.to_thread(partial(send, "PUT", "users", name, body={"password": ""}))


async def test_the_node_and_its_clients_are_told(setup: Setup) -> None:
    node = await asyncio.to_thread(setup.client.get, "node")
    assert node["endpoints"] == [
        {
            "protocol": "tiny",
            "name": "tiny",
            "url": "tcp://127.0.0.1:7",
            "try_it": "nc 127.0.0.1 7",
        }
    ]
    assert (node["node_id"], node["authentication_required"]) == (1, False)
    clients = await asyncio.to_thread(setup.client.get, "clients")
    assert clients == {
        "clients": [{"protocol": "tiny", "peer": "127.0.0.1:5", "client_id": "tester"}]
    }


async def test_the_address_is_there_while_the_node_is_ready(setup: Setup) -> None:
    assert read_url(setup.data_dir) == setup.server.url
    setup.state.is_ready = False
    assert read_url(setup.data_dir) is None
    await setup.server.stop()
    with pytest.raises(NodeUnreachable, match="no node answers"):
        await asyncio.to_thread(setup.client.get, "node")


async def test_a_taken_port_is_one_line_with_the_key(setup: Setup, tmp_path: Path) -> None:
    bind = setup.server.url.removeprefix("http://")
    second = AdminServer(AdminConfig(bind=bind), setup.state, data_dir=tmp_path)
    with pytest.raises(InvalidSettings, match=rf"admin\.bind: {bind}: Address already in use"):
        await second.start()


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000,
        b"POST /v1/topics HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_what_is_no_http_is_refused_and_others_do_not_notice(
    setup: Setup, data: bytes
) -> None:
    answer = await asyncio.to_thread(raw, setup.server, data)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert (await asyncio.to_thread(status_of, setup.server, "/healthz"))[0] == 200


async def test_silent_connections_end_at_a_deadline(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "REQUEST_S_MAX", 0.05)
    hasty = AdminServer(AdminConfig(bind="127.0.0.1:0"), setup.state, data_dir=tmp_path)
    await hasty.start()
    try:
        assert await asyncio.to_thread(half_request, hasty) == b""
    finally:
        await hasty.stop()


def half_request(server: AdminServer) -> bytes:
    """Send half a request and wait for what comes; the connection is not ended by us."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        try:
            return connection.recv(1)
        except ConnectionResetError:
            return b""


async def test_connections_above_the_bound_are_closed(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "CONNECTIONS_MAX", 2)
    host, _, port = setup.server.url.removeprefix("http://").rpartition(":")
    held = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
    reader, writer = await asyncio.open_connection(host, int(port))
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    for _, other in [*held, (reader, writer)]:
        other.close()


def test_every_error_has_a_status_by_its_nearest_base() -> None:
    assert error_answer(errors.TopicNotFound("x")).status_code == 404
    assert error_answer(errors.FencedInstance()).status_code == STATUS[errors.RequestError]
    body = json.loads(bytes(error_answer(errors.StorageFull()).body))
    assert body["error"] == "StorageFull"
    assert body["message"].startswith("No space could be reserved")
    assert body["retriable"] is True
