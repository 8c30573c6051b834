"""Clients that call a service by direct reply-to, one call at a time each; all in one process.

A plain epoll loop, as for publishers with one message in flight.
"""

import argparse
import json
import select
import socket
import statistics
import time
import uuid
from typing import Any, Final

from benchmarks.clients.amqp_wire import (
    HEADER_FRAME,
    REPLY_TO_FLAGS,
    TRANSIENT,
    AmqpRunFailed,
    connected,
    declare_queue,
    delete_queues,
    delivery_bytes,
    frames,
    message,
    start_consumers,
)
from tests.support.process_usage import cpu_s

_STALLED_S_MAX: Final = 20.0
_REPLY_QUEUE: Final = "amq.rabbitmq.reply-to"
_FLAGS_AT: Final = 12  # in a header's payload, behind class, weight and size
_RECEIVED_BYTES: Final = 1 << 16
_PERCENT: Final = 100


class ReplyService:
    """The connection that answers every request of its queue, all that came in one write."""

    def __init__(self, sock: socket.socket, body: bytes) -> None:
        self._socket = sock
        self._body = body
        self._held = b""
        self._replies: dict[bytes, bytes] = {}

    def answer(self) -> None:
        """Answer what came."""
        data = self._held + self._socket.recv(_RECEIVED_BYTES)
        done = 0
        replies = []
        for kind, start, end in frames(data, len(data)):
            done = end
            if kind == HEADER_FRAME:
                at = start + _FLAGS_AT
                if data[at : at + 2] != REPLY_TO_FLAGS:
                    msg = f"other properties than were sent: {data[start:end]!r}"
                    raise AmqpRunFailed(msg)
                name = data[at + 3 : at + 3 + data[at + 2]]
                replies.append(self._replies.get(name) or self._new_reply(name))
        self._held = data[done:]
        if replies:
            self._socket.sendall(b"".join(replies))

    def _new_reply(self, name: bytes) -> bytes:
        self._replies[name] = found = message("", name.decode(), self._body, TRANSIENT)
        return found


class RpcCaller:
    """A client with one call at a time."""

    def __init__(self, sock: socket.socket, request: bytes) -> None:
        self._socket = sock
        self._request = request
        self._held = b""
        self._sent_s = 0.0

    def call(self) -> None:
        """Send a request."""
        self._sent_s = time.perf_counter()
        self._socket.sendall(self._request)

    def took_s(self) -> float:
        """Return how long the call took, 0 when its reply is not whole yet."""
        received = self._socket.recv(_RECEIVED_BYTES)
        data = self._held + received if self._held else received
        length = delivery_bytes(data, len(data))
        if not received or length not in (0, len(data)):
            msg = f"closed, or more than a reply: {data!r}"
            raise AmqpRunFailed(msg)
        self._held = b"" if length else data
        return time.perf_counter() - self._sent_s if length else 0.0


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return calls per second, and how long calls took."""
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    control = connected(arguments.port)
    declare_queue(control, queue, durable=False)
    body = b"x" * arguments.bytes
    serving = connected(arguments.port)
    start_consumers(serving, [queue], prefetch=0, no_ack=True)
    service = ReplyService(serving.socket, body)
    poll = select.epoll()
    poll.register(serving.socket, select.EPOLLIN)
    name = _REPLY_QUEUE.encode()
    request = message("", queue, body, REPLY_TO_FLAGS + bytes([len(name)]) + name)
    callers = {}
    for _number in range(arguments.clients):
        client = connected(arguments.port)
        start_consumers(client, [_REPLY_QUEUE], prefetch=0, no_ack=True)
        callers[client.socket.fileno()] = RpcCaller(client.socket, request)
        poll.register(client.socket, select.EPOLLIN)
    cpu_before_s, server_before_s = time.process_time(), cpu_s(arguments.pid)
    started_s = time.monotonic()
    spans_s = _call_until(started_s + arguments.seconds, poll, service, callers)
    seconds = time.monotonic() - started_s
    server_cpu_s = cpu_s(arguments.pid) - server_before_s
    client_cpu_s = time.process_time() - cpu_before_s
    delete_queues(control, [queue])
    percentiles = statistics.quantiles(spans_s, n=_PERCENT)
    return {
        "rate": len(spans_s) / seconds,
        "messages": len(spans_s),
        "server_cpu_s": server_cpu_s,
        "client_cpu": client_cpu_s / seconds,
        "extra": {"p50 ms": percentiles[49] * 1e3, "p99 ms": percentiles[98] * 1e3},
    }


def _call_until(
    until_s: float, poll: select.epoll, service: ReplyService, callers: dict[int, RpcCaller]
) -> list[float]:
    spans_s = []
    for caller in callers.values():
        caller.call()
    waiting = len(callers)
    while waiting:
        events = poll.poll(_STALLED_S_MAX)
        if not events:
            msg = f"{waiting} calls without a reply"
            raise AmqpRunFailed(msg)
        is_over = time.monotonic() >= until_s
        for descriptor, _event in events:
            called = callers.get(descriptor)
            if called is None:
                service.answer()
            elif took_s := called.took_s():
                spans_s.append(took_s)
                if is_over:
                    waiting -= 1
                else:
                    called.call()
    return spans_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
