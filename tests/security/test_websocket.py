"""Frames of a WebSocket that carry nothing, or very little, do not keep the loop from others."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from websockets.frames import CloseCode, Frame, Opcode

from adapters.mqtt.connection.websocket import (
    FRAMES_PER_TURN_MAX,
    SLICE_BYTES,
    WebSocketConnection,
)
from tests.adapters.mqtt.connection.test_websocket import CONNECT, PINGRESP, Peer, peer
from tests.adapters.mqtt.live import running
from tests.support import mqtt_wire as wire
from tests.support.waiting import until

FRAME_BYTES_MIN = 6  # of a masked frame without data
CONTROL_MAX = 20
WEBSOCKET = {"bind": "127.0.0.1:0", "control_frames_max": CONTROL_MAX}


def frames(opcode: Opcode, count: int, data: bytes = b"") -> bytes:
    return Frame(opcode, data).serialize(mask=True) * count


async def refused(client: Peer) -> CloseCode | int | None:
    await client.until(lambda: client.ws.close_rcvd is not None)
    return None if client.ws.close_rcvd is None else client.ws.close_rcvd.code


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.PONG, Opcode.BINARY])
@pytest.mark.parametrize("logs_in", [False, True])
async def test_a_flood_of_empty_frames_is_closed(
    tmp_path: Path,
    opcode: Opcode,
    logs_in: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async with running(tmp_path, mqtt={"websocket": WEBSOCKET}) as live, peer(live) as client:
        if logs_in:
            client.send(CONNECT + wire.PINGREQ)
            await client.data_ending(PINGRESP)
        client.writer.write(frames(opcode, 50 * CONTROL_MAX))
        assert await refused(client) == CloseCode.POLICY_VIOLATION
        assert len(client.pongs) <= SLICE_BYTES // FRAME_BYTES_MIN
        assert live.adapter.listeners[-1].faults["ControlFrames"] == 1


async def test_before_connack_control_frames_are_bounded_in_all(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"websocket": WEBSOCKET}) as live, peer(live) as client:
        listener = live.adapter.listeners[-1]
        for number in range(CONTROL_MAX):
            client.writer.write(frames(Opcode.PING, 1, b"%d" % number))
        await client.until(lambda: len(client.pongs) == CONTROL_MAX)
        listener.now_s += 1  # a second later they count still
        client.writer.write(frames(Opcode.PING, 1))
        assert await refused(client) == CloseCode.POLICY_VIOLATION


async def test_after_the_login_they_are_counted_by_the_second(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"websocket": WEBSOCKET}) as live, peer(live) as client:
        listener = live.adapter.listeners[-1]
        client.send(CONNECT + wire.PINGREQ)
        await client.data_ending(PINGRESP)
        for second in range(1, 4):
            listener.now_s += 1
            client.writer.write(frames(Opcode.PING, CONTROL_MAX))
            await client.until(lambda second=second: len(client.pongs) == second * CONTROL_MAX)  # type: ignore[misc]


async def test_frames_of_a_read_are_taken_in_bounded_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = 0
    taken: Counter[int] = Counter()
    take = WebSocketConnection._take

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count_turns)

    def counted(connection: WebSocketConnection, frame: Frame) -> None:
        taken[turn] += 1
        take(connection, frame)

    monkeypatch.setattr(WebSocketConnection, "_take", counted)
    count = 20 * FRAMES_PER_TURN_MAX
    async with running(tmp_path) as live, peer(live) as client:
        client.send(CONNECT)
        await client.until(lambda: bool(client.data))
        count_turns()
        client.writer.write(frames(Opcode.BINARY, count, wire.PINGREQ))
        await client.until(lambda: client.data.count(PINGRESP) >= count)
    assert taken.total() >= count
    assert max(taken.values()) <= FRAMES_PER_TURN_MAX + SLICE_BYTES // FRAME_BYTES_MIN


async def test_frames_before_connect_are_counted_as_kept(tmp_path: Path) -> None:
    async with running(tmp_path) as live, peer(live) as client:
        whole = frames(Opcode.BINARY, 1, wire.connect("c", found=[(0x16, bytes(50_000))]))
        client.writer.write(whole[:10_000])
        admission = live.kernel.admission
        await until(lambda: 9_000 < admission.unauthenticated_bytes <= 10_000)
        client.writer.close()
        await until(lambda: admission.unauthenticated_bytes == 0)


async def test_a_frame_before_connect_may_be_as_large_as_connect_and_no_larger(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live, peer(live) as client:
        client.writer.write(frames(Opcode.BINARY, 1, bytes(500_000))[:20])
        assert await refused(client) == CloseCode.MESSAGE_TOO_BIG
