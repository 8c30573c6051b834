"""Members of groups of KIP-848 that send heartbeats: a thin asyncio client of its own.

All members join, send heartbeats until their epochs stand, and then send one every ``--interval``
seconds each, spread evenly. A latency is the time from when a heartbeat is due to its answer.
"""

import argparse
import asyncio
import json
import struct
import time
from typing import Final
from uuid import uuid4

import uvloop

from gateway.model import decode_uvarint, encode_uvarint
from tests.support.process_usage import cpu_s

_API: Final = struct.pack(">hh", 68, 1)
_CLIENT_ID: Final = struct.pack(">h", 4) + b"wire" + b"\0"
_LOADING: Final = frozenset({14, 15, 16})
_RETRY_S: Final = 0.2
_SETTLED_S_MAX: Final = 120.0


def _text(value: str) -> bytes:
    data = value.encode()
    return encode_uvarint(len(data) + 1) + data


class CoordinatorLoading(ConnectionError):
    """The coordinator of a group is not there yet."""


class GroupMemberClient:
    """A member, and the epoch that it knows."""

    def __init__(self, group: str, topic: str) -> None:
        self.epoch = 0
        self._head = _text(group) + _text(str(uuid4()))
        self._names = encode_uvarint(2) + _text(topic)

    def body(self) -> bytes:
        """Return a heartbeat: a full one to join, else one without news."""
        epoch = struct.pack(">i", self.epoch)
        if self.epoch:
            return self._head + epoch + b"\0\0" + struct.pack(">i", -1) + b"\0\0\0\0\0"
        timeout = struct.pack(">i", 60_000)
        return self._head + epoch + b"\0\0" + timeout + self._names + b"\0\0\1\0"

    def take(self, answer: memoryview) -> None:
        """Take the epoch of an answer, behind its header."""
        (error,) = struct.unpack_from(">h", answer, 4)
        size, at = decode_uvarint(answer, 6)
        at += max(size - 1, 0)
        if error in _LOADING:
            raise CoordinatorLoading(str(error))
        if error:
            msg = f"heartbeat: error {error}: {bytes(answer[7:at]).decode()}"
            raise ConnectionError(msg)
        size, at = decode_uvarint(answer, at)
        (self.epoch,) = struct.unpack_from(">i", answer, at + size - 1)


class HeartbeatConnection:
    """A connection for some members; one heartbeat at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._count = 0

    async def beat(self, member: GroupMemberClient) -> None:
        """Send a heartbeat and take its answer."""
        self._count += 1
        header = _API + struct.pack(">i", self._count) + _CLIENT_ID
        frame = header + member.body()
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        member.take(memoryview(await self._reader.readexactly(size))[5:])


async def settle(connection: HeartbeatConnection, members: list[GroupMemberClient]) -> None:
    """Join, then send heartbeats until a round changes no epoch."""
    deadline_s = time.monotonic() + _SETTLED_S_MAX
    for member in members:
        while not member.epoch:
            try:
                await connection.beat(member)
            except CoordinatorLoading:
                if time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(_RETRY_S)
    while time.monotonic() < deadline_s:
        before = [member.epoch for member in members]
        for member in members:
            await connection.beat(member)
        if before == [member.epoch for member in members]:
            return


async def pace(
    connection: HeartbeatConnection,
    members: list[GroupMemberClient],
    *,
    interval_s: float,
    seconds: float,
    latencies_s: list[float],
) -> None:
    """Send the heartbeats of some members at their times."""
    began_s = time.monotonic()
    step_s = interval_s / len(members)
    for number in range(int(seconds / step_s)):
        due_s = began_s + number * step_s
        wait_s = due_s - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        await connection.beat(members[number % len(members)])
        latencies_s.append(time.monotonic() - due_s)


async def run(options: argparse.Namespace) -> dict[str, float]:
    """Return processor time and latencies."""
    connections = []
    for _ in range(options.connections):
        reader, writer = await asyncio.open_connection("127.0.0.1", options.port)
        connections.append(HeartbeatConnection(reader, writer))
    shares = [
        [
            GroupMemberClient(f"t2-{number % options.groups}", options.topic)
            for number in range(index, options.members, options.connections)
        ]
        for index in range(options.connections)
    ]
    pairs = list(zip(connections, shares, strict=True))
    await asyncio.gather(*(settle(*pair) for pair in pairs))
    latencies_s: list[float] = []
    before_s = cpu_s(options.pid)
    await asyncio.gather(
        *(
            pace(
                connection,
                share,
                interval_s=options.interval,
                seconds=options.seconds,
                latencies_s=latencies_s,
            )
            for connection, share in pairs
        )
    )
    used_s = cpu_s(options.pid) - before_s
    latencies_s.sort()
    return {
        "heartbeats": len(latencies_s),
        "cpu_us": used_s / len(latencies_s) * 1e6,
        "p50_ms": latencies_s[len(latencies_s) // 2] * 1e3,
        "p99_ms": latencies_s[len(latencies_s) * 99 // 100] * 1e3,
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--members", type=int, required=True)
    parser.add_argument("--groups", type=int, required=True)
    parser.add_argument("--connections", type=int, default=10)
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, required=True)
    print(json.dumps(uvloop.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
