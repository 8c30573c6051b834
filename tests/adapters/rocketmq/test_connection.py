"""Connections: hostile bytes, unknown codes, limits, logins."""

import asyncio
import contextlib
import struct
from pathlib import Path

import pytest

from adapters.rocketmq.access import sign
from adapters.rocketmq.remoting.client import RemotingClient, Sign
from adapters.rocketmq.remoting.codec import encode_frame
from adapters.rocketmq.remoting.wire import Command, RequestCode, ResponseCode
from gateway.config.base import Address
from gateway.framed_connection import FramedConnection
from tests.adapters.rocketmq.running_adapter import (
    RunningRocketMq,
    pull_fields,
    running,
    send,
)
from tests.support.waiting import until

DEADLINE_S = 60


async def raw(live: RunningRocketMq) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*live.adapter.broker_address)


async def is_ended(live: RunningRocketMq, data: bytes) -> bool:
    """Send bytes; say whether the connection ends without an answer."""
    reader, writer = await raw(live)
    writer.write(data)
    async with asyncio.timeout(DEADLINE_S):
        with contextlib.suppress(ConnectionError):
            found = await reader.read(1)
            writer.close()
            return found == b""
    writer.close()
    return True


@pytest.mark.parametrize("code", [3, 200_050, -1, 999, RequestCode.CONSUMER_SEND_MSG_BACK])
async def test_an_unknown_code_is_refused_and_the_connection_stays(
    code: int, tmp_path: Path
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        response = await client.call(code)
        assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert response.remark == f" request type {code} not supported"
        await client.send_oneway(code)
        assert (await send(client, "orders", b"x")).code == ResponseCode.SUCCESS
        assert dict(live.adapter.request_counts()) == {"unserved": 2, "SEND_MESSAGE_V2": 1}


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">i", 1 << 25),
        struct.pack(">ii", 4, 1 << 20),
        struct.pack(">ii", 6, 2) + b"[]",
        struct.pack(">i", 0),
    ],
)
async def test_bytes_that_are_no_frame_end_the_connection(data: bytes, tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        assert await is_ended(live, data)
        assert live.adapter.listeners[0].faults["PeerError"] == 1
        assert (await send(await live.client(), "orders", b"x")).code == ResponseCode.SUCCESS


async def test_a_response_that_nobody_waits_for_is_ignored(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        reader, writer = await raw(live)
        frame = encode_frame(Command(RequestCode.GET_MAX_OFFSET, opaque=3).answer(0))
        writer.write(frame + encode_frame(Command(77, opaque=4)))
        async with asyncio.timeout(DEADLINE_S):
            answer = await reader.readuntil(b"}")
        assert b'"opaque":4' in answer
        writer.close()


async def test_requests_that_wait_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path, requests_pending_max=2) as live:
        await live.topic("orders")
        client = await live.client()
        fields = pull_fields("orders", 0, sysFlag=6, suspendTimeoutMillis=50_000)
        pulls = [
            asyncio.ensure_future(client.call(RequestCode.PULL_MESSAGE, fields)) for _ in "ab"
        ]
        await until(lambda: live.node.requests[RequestCode.PULL_MESSAGE] == 2)
        response = await client.call(RequestCode.GET_MAX_OFFSET, fields)
        assert response.code == ResponseCode.SYSTEM_BUSY
        await send(await live.client(), "orders", b"x")
        assert [(await one).code for one in pulls] == [0, 0]
        response = await client.call(RequestCode.GET_MAX_OFFSET, fields)
        assert response.fields == {"offset": "1"}


async def test_sends_that_are_not_stored_yet_hold_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path, unacknowledged_bytes_max=1 << 20) as live:
        await live.topic("orders")
        client = await live.client()
        live.storage.held = True
        sends = [
            asyncio.ensure_future(send(client, "orders", bytes(400_000))) for _ in range(6)
        ]
        [connection] = live.adapter.listeners[0].connections
        await until(lambda: "unacknowledged" in connection._holds)
        assert live.node.requests[RequestCode.SEND_MESSAGE_V2] == 3
        live.storage.release()
        assert [(await one).code for one in sends] == [0] * 6


async def test_a_refused_send_does_not_count_as_one_that_is_stored(tmp_path: Path) -> None:
    async with running(tmp_path, requests_pending_max=2) as live:
        await live.topic("orders")
        client = await live.client()
        live.storage.held = True
        body = bytes(400_000)
        sends = [asyncio.ensure_future(send(client, "orders", body)) for _ in "ab"]
        await until(lambda: live.node.requests[RequestCode.SEND_MESSAGE_V2] == 2)
        refused = await send(client, "orders", body)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        [connection] = live.adapter.listeners[0].connections
        assert isinstance(connection, FramedConnection)
        assert connection._unacknowledged_bytes > 2 * len(body)
        live.storage.release()
        assert [(await one).code for one in sends] == [0, 0]
        assert connection._unacknowledged_bytes == 0


# --- logins


def signed(key_id: str, secret: str) -> Sign:
    def add(command: Command) -> Command:
        named = command._replace(fields={**command.fields, "AccessKey": key_id})
        return named._replace(fields={**named.fields, "Signature": sign(named, secret)})

    return add


async def test_a_signature_is_that_of_acl_utils() -> None:
    """The values of fields in the order of their names, and the body; HMAC-SHA1 in base64."""
    command = Command(10, {"b": "2", "a": "1", "AccessKey": "k", "Signature": "old"}, b"body")
    # printf k12body | openssl dgst -sha1 -hmac secret -binary | base64
    assert sign(command, "secret") == "qV1+gazDwOYlRYwcME4hA4wRnN0="


async def test_where_login_is_required_requests_are_signed(tmp_path: Path) -> None:
    async with running(tmp_path, users={"ann": "password"}) as live:
        key = await live.kernel.access_keys.add("ann")
        stranger = await live.client()
        for client in (
            stranger,
            await live.client(sign=signed("", "")),
            await live.client(sign=signed("other", key.secret)),
            await live.client(sign=signed(key.key_id, "wrong")),
            await live.nameserver_client(),
        ):
            response = await client.call(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}
            )
            assert response.code == ResponseCode.NO_PERMISSION
        ann = await live.client(sign=signed(key.key_id, key.secret))
        assert (await send(ann, "orders", b"x")).code == ResponseCode.SUCCESS
        named = {one["user"] for one in live.adapter.connections()}
        assert named == {"ann", "ANONYMOUS"}


async def test_a_large_request_needs_a_login_first(tmp_path: Path) -> None:
    async with running(
        tmp_path, users={"ann": "password"}, unauthenticated_request_bytes_max=1_024
    ) as live:
        assert await is_ended(live, struct.pack(">i", 1_025))
        key = await live.kernel.access_keys.add("ann")
        ann = await live.client(sign=signed(key.key_id, key.secret))
        assert (await send(ann, "orders", b"x")).code == ResponseCode.SUCCESS
        assert (await send(ann, "orders", bytes(5_000))).code == ResponseCode.SUCCESS


async def test_the_connections_of_a_removed_user_are_closed(tmp_path: Path) -> None:
    async with running(tmp_path, users={"ann": "password"}) as live:
        key = await live.kernel.access_keys.add("ann")
        ann = await live.client(sign=signed(key.key_id, key.secret))
        await send(ann, "orders", b"x")
        for hook in live.kernel.authenticator.on_removed:
            hook("ann")
        await until(lambda: not live.adapter.listeners[0].connections)


async def test_a_wildcard_is_advertised_as_the_address_that_the_client_used(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, bind="0.0.0.0:0") as live:
        await live.topic("orders")
        port = live.adapter.broker_address.port
        client = await live.client(address=Address("127.0.0.1", port))
        response = await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        assert f'"127.0.0.1:{port}"'.encode() in bytes(response.body)


async def test_the_advertised_address_is_in_routes_and_ids(tmp_path: Path) -> None:
    async with running(tmp_path, advertise="10.1.2.3:999") as live:
        await live.topic("orders")
        client: RemotingClient = await live.client()
        response = await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        assert b'"10.1.2.3:999"' in bytes(response.body)
        assert (
            (await send(client, "orders", b"x")).fields["msgId"].startswith("0A010203000003E7")
        )
