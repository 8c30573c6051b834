"""Many partitions, one small batch in flight on each: a thin asyncio client of its own.

librdkafka and the Java producer would merge what waits into larger batches; here every batch is
sent as it is, in Produce v3, and the next one of a partition follows its acknowledgement.
``--per-request``: how many partitions share a request; 1 as librdkafka does, more as Java does.
"""

import argparse
import asyncio
import json
import struct
import time
from functools import partial
from typing import Final, cast

import uvloop

from tests.support.kafka_wire import (
    PRODUCE,
    batch,
    produce_body,
    produce_errors,
    request,
)

_ANSWER_S_MAX: Final = 120


class ManyPartitionsRun:
    """State shared by all connections: the remaining work, and the end of the run."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self.batches = 0
        self.open_requests = 0
        self.done = asyncio.Event()
        self.fault: str | None = None


class Connection(asyncio.Protocol):
    """Sends each of its requests again as soon as it is acknowledged."""

    def __init__(self, run: ManyPartitionsRun, requests: list[tuple[int, bytes]]) -> None:
        self._run = run
        self._requests = requests
        self._pending = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send everything once."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive
        self._run.open_requests += len(self._requests)
        self._transport.write(b"".join(frame for _count, frame in self._requests))

    def data_received(self, data: bytes) -> None:
        """Count what is acknowledged and send those requests again."""
        self._pending += data
        again = []
        at = 0
        while len(self._pending) - at >= 4:
            size = struct.unpack_from(">i", self._pending, at)[0]
            if len(self._pending) - at - 4 < size:
                break
            again += self._acknowledged(bytes(self._pending[at + 4 : at + 4 + size]))
            at += 4 + size
        del self._pending[:at]
        if again and self._transport is not None:
            self._transport.write(b"".join(again))

    def _acknowledged(self, answer: bytes) -> list[bytes]:
        run = self._run
        correlation_id = struct.unpack_from(">i", answer)[0]
        count, frame = self._requests[correlation_id]
        errors = [code for code, _offset in produce_errors(answer[4:]) if code]
        if errors:
            run.fault = f"error {errors[0]}"
        if time.monotonic() < run.until and run.fault is None:
            run.batches += count
            return [frame]
        run.open_requests -= 1
        if run.open_requests == 0:
            run.done.set()
        return []

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        if self._run.open_requests:
            self._run.fault = f"closed: {exc}"
            self._run.done.set()


class NullServer(asyncio.Protocol):
    """Acknowledges without looking: the ceiling of the client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = cast("asyncio.Transport", transport)
        self._pending = bytearray()

    def data_received(self, data: bytes) -> None:
        """Answer every whole frame with success for no partition."""
        self._pending += data
        at, answers = 0, []
        while len(self._pending) - at >= 4:
            size = struct.unpack_from(">i", self._pending, at)[0]
            if len(self._pending) - at - 4 < size:
                break
            body = bytes(self._pending[at + 8 : at + 12]) + b"\0" * 8
            answers.append(struct.pack(">i", len(body)) + body)
            at += 4 + size
        del self._pending[:at]
        self._transport.write(b"".join(answers))


def _frames(
    places: list[tuple[str, int]], per_request: int, record_bytes: int
) -> list[tuple[int, bytes]]:
    data = batch([b"x" * record_bytes])
    chunks = [places[at : at + per_request] for at in range(0, len(places), per_request)]
    return [
        (
            len(chunk),
            request(PRODUCE, 3, n, produce_body([(topic, p, data) for topic, p in chunk])),
        )
        for n, chunk in enumerate(chunks)
    ]


async def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Return {"rate"}: acknowledged batches per second."""
    loop = asyncio.get_running_loop()
    port = arguments.port
    if arguments.ceiling:
        server = await loop.create_server(NullServer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
    topics = [f"{arguments.prefix}-{n}" for n in range(arguments.topics)]
    places = [(topic, n) for n in range(arguments.partitions) for topic in topics]
    run = ManyPartitionsRun(arguments.seconds)
    started = time.monotonic()
    for number in range(arguments.connections):
        mine = places[number :: arguments.connections]
        frames = _frames(mine, arguments.per_request, arguments.bytes)
        await loop.create_connection(partial(Connection, run, frames), "127.0.0.1", port)
    await asyncio.wait_for(run.done.wait(), arguments.seconds + _ANSWER_S_MAX)
    assert run.fault is None, run.fault
    return {"rate": run.batches / (time.monotonic() - started)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--prefix", default="many")
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=5)
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--per-request", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--ceiling", action="store_true")
    print(json.dumps(uvloop.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
