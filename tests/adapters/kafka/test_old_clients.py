"""Clients that ignore ApiVersions, use old versions, or send unusual but valid requests."""

import struct
from pathlib import Path

import pytest

from adapters.kafka.errors import ErrorCode
from tests.adapters.kafka.running_adapter import running
from tests.support.kafka_wire import FETCH, METADATA, PRODUCE, request, text

LIST_OFFSETS = 2
FETCH_V7 = struct.Struct(">iiiibii")  # replica, waits, limits, isolation, session id and epoch


def fetch_in_session(session_id: int, epoch: int) -> bytes:
    head = FETCH_V7.pack(-1, 0, 1, 1 << 20, 0, session_id, epoch)
    partition = struct.pack(">iqqi", 0, 0, -1, 1 << 20)
    topic = struct.pack(">i", 1) + text("orders") + struct.pack(">i", 1) + partition
    return request(FETCH, 7, 1, head + topic + struct.pack(">i", 0))


@pytest.mark.parametrize(
    ("session_id", "epoch", "code", "begins", "topics"),
    [
        (77, -1, ErrorCode.NONE, False, 1),
        (77, 0, ErrorCode.NONE, True, 1),
        (0, 0, ErrorCode.NONE, True, 1),
        (0, -1, ErrorCode.NONE, False, 1),
        (77, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, False, 0),
    ],
)
async def test_epochs_0_and_minus_1_ask_for_a_full_fetch_whatever_the_session(
    tmp_path: Path, session_id: int, epoch: int, code: ErrorCode, *, begins: bool, topics: int
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(fetch_in_session(session_id, epoch))
        _, answer = await client.answer()
    throttle_ms, found_code, found_session, found_topics = struct.unpack_from(">ihii", answer)
    assert (throttle_ms, found_code, found_topics) == (0, code, topics)
    assert (found_session > 0) == begins  # KIP-227: epoch 0 begins a session
    assert found_session != session_id or not found_session


@pytest.mark.parametrize(
    ("api_key", "version"), [(LIST_OFFSETS, 0), (PRODUCE, 0), (PRODUCE, 1), (PRODUCE, 2)]
)
async def test_versions_that_kafka_4_took_away_end_the_connection(
    tmp_path: Path, api_key: int, version: int
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(request(api_key, version, 1, bytes(64)))
        assert await client.ended()


@pytest.mark.parametrize(
    ("api_key", "version", "tail"),
    [
        (57, 1, b"\x00\x01\x00"),
        (57, 2, b"\x00\x00"),
    ],
)
async def test_an_api_that_is_not_served_is_refused_where_its_response_can_say_so(
    tmp_path: Path, api_key: int, version: int, tail: bytes
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(request(api_key, version, 5, b"\x00whatever"))
        client.send(request(METADATA, 1, 6, struct.pack(">i", 0)))
        correlation_id, answer = await client.answer()
        after, _ = await client.answer()
    tags, body = answer[:1], answer[1:]
    assert (correlation_id, after) == (5, 6)
    assert tags == b"\x00"
    assert body == struct.pack(">ih", 0, ErrorCode.UNSUPPORTED_VERSION) + tail


@pytest.mark.parametrize("api_key", [4, 100])
async def test_any_other_api_that_is_not_served_ends_the_connection(
    tmp_path: Path, api_key: int
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(request(api_key, 0, 1, bytes(64)))
        assert await client.ended()


async def test_an_api_that_is_not_served_is_not_answered_before_a_login(tmp_path: Path) -> None:
    async with running(tmp_path, user="ada") as live:
        client = await live.client()
        client.send(request(57, 0, 1, bytes(64)))
        assert await client.ended()
