"""Limits of Kafka requests before a login: none keeps the node busy."""

import asyncio
import struct
from pathlib import Path
from typing import cast

import pytest

from gateway.config.admission import ListenersConfig
from tests.adapters.kafka.running_adapter import running
from tests.support.waiting import until

HALF = struct.pack(">i", 500_000) + bytes(60_000)


async def test_half_requests_before_a_login_are_counted_and_bounded(tmp_path: Path) -> None:
    config = ListenersConfig.model_validate({"unauthenticated_bytes_per_ip_budget": 1 << 20})
    async with running(tmp_path, user="anna") as live:
        admission = live.kernel.admission
        admission.config = config
        clients = [await live.client() for _ in range(8)]
        for client in clients:
            client.send(HALF)
        faults = live.adapter.listener.faults
        await until(lambda: faults["TooMuchBeforeLogin"] > 0)
        await until(lambda: admission.unauthenticated_bytes <= 1 << 20)
        assert 0 < faults["TooMuchBeforeLogin"] < len(clients)


@pytest.mark.parametrize("user", ["anna", None])
async def test_a_request_before_a_login_has_a_bound_of_its_own(
    tmp_path: Path, user: str | None
) -> None:
    kafka = {"unauthenticated_request_bytes_max": 2048}
    async with running(tmp_path, user=user, kafka=kafka) as live:
        listener = live.adapter.listener
        within = await live.client()
        within.send(struct.pack(">i", 2048))
        await until(lambda: [one.bytes_received for one in listener.connections] == [4])
        above = await live.client()
        above.send(struct.pack(">i", 2049))
        if user is None:
            await until(lambda: [one.bytes_received for one in listener.connections] == [4, 4])
        else:
            await until(lambda: listener.faults["PeerError"] == 1)
        assert listener.faults.total() == (user is not None)


async def test_thirty_two_idle_requests_that_announce_much_keep_nobody_waiting(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, kafka={"request_bytes_budget": 8 << 20}) as live:
        idle = [await live.client() for _ in range(32)]
        for client in idle:
            client.send(struct.pack(">i", 8 << 20) + b"x")
        budget = live.adapter.node.request_budget
        await until(lambda: budget.bytes_taken > 0)
        assert budget.free_bytes > 0
        assert budget.waiting_count == 0


@pytest.mark.parametrize("is_asked", [False, True])
async def test_who_does_not_log_in_has_only_the_handshake_to_do_so(
    tmp_path: Path,
    is_asked: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async with running(tmp_path, user="anna" if is_asked else None) as live:
        client = await live.client()
        client.send(api_versions())
        await client.answer()
        listener = live.adapter.listener
        listener.now_s += listener.config.handshake_s_max + 1
        [connection] = listener.connections
        assert connection.overdue(listener.now_s) == ("handshake_s_max" if is_asked else None)


async def test_a_listener_that_asks_everybody_takes_no_large_request_before_a_login(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, kafka={"authentication": "sasl"}) as live:
        client = await live.client()
        client.send(struct.pack(">i", 1 << 20) + b"x")
        assert await client.ended()
        assert live.adapter.listener.faults["PeerError"] == 1


async def test_answers_that_strangers_do_not_read_are_counted_and_bounded(
    tmp_path: Path,
) -> None:
    config = ListenersConfig.model_validate({"unauthenticated_bytes_per_ip_budget": 256 << 10})
    async with running(tmp_path, user="anna") as live:
        admission, listener = live.kernel.admission, live.adapter.listener
        admission.config = config
        client = await live.client()
        cast("asyncio.Transport", client.writer.transport).pause_reading()
        faults = listener.faults
        for _ in range(2_000):
            client.send(api_versions() * 100)
            await asyncio.sleep(0)
            if faults["TooMuchBeforeLogin"]:
                break
        await until(lambda: faults["TooMuchBeforeLogin"] > 0)
        client.writer.transport.abort()
        await until(lambda: admission.unauthenticated_bytes == 0)
        assert not admission._bytes_by_host


async def test_who_logs_in_and_whose_answers_are_read_counts_no_more(tmp_path: Path) -> None:
    async with running(tmp_path, user="anna") as live:
        client = await live.client()
        for _ in range(3):
            client.send(api_versions())
            await client.answer()
        client.send(api_versions())
        await client.answer()
        assert live.kernel.admission.unauthenticated_bytes < 4_096
        client.writer.transport.abort()
        await until(lambda: live.kernel.admission.unauthenticated_bytes == 0)


def api_versions() -> bytes:
    body = struct.pack(">hhih", 18, 0, 7, -1)
    return struct.pack(">i", len(body)) + body
