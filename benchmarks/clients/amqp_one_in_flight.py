"""Many connections that publish persistent messages one at a time: the next after its confirm.

A plain epoll loop: with one small frame per read and per write there is nothing for an event
loop to save, and its own cost would be the limit.
"""

import argparse
import json
import select
import time
import uuid
from typing import Any, Final

from benchmarks.clients.amqp_wire import (
    CONFIRM,
    CONFIRM_START,
    PERSISTENT,
    AmqpRunFailed,
    confirming,
    connected,
    declare_queue,
    delete_queues,
    message,
)
from tests.support.process_usage import cpu_s

_STALLED_S_MAX: Final = 20.0
_START: Final = CONFIRM.pack(*CONFIRM_START, 0, 0, 0)[:11]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return confirmed messages per second, over all connections."""
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    control = connected(arguments.port)
    declare_queue(control, queue)
    published = message("", queue, b"x" * arguments.bytes, PERSISTENT)
    sockets = {}
    poll = select.epoll()
    for _number in range(arguments.connections):
        sock = confirming(arguments.port).socket
        sock.setblocking(False)  # noqa: FBT003 - the name of the standard library
        sockets[sock.fileno()] = sock
        poll.register(sock, select.EPOLLIN)
    receive = {descriptor: sock.recv for descriptor, sock in sockets.items()}
    send = {descriptor: sock.send for descriptor, sock in sockets.items()}
    cpu_before_s, server_before_s = time.process_time(), cpu_s(arguments.pid)
    started_s = time.monotonic()
    until_s = started_s + arguments.seconds
    for one in send.values():
        one(published)
    acked, waiting = 0, len(sockets)
    while waiting:
        events = poll.poll(_STALLED_S_MAX)
        if not events:
            msg = f"{waiting} messages not confirmed"
            raise AmqpRunFailed(msg)
        is_over = time.monotonic() >= until_s
        for descriptor, _event in events:
            found = receive[descriptor](2 * CONFIRM.size)
            if len(found) != CONFIRM.size or not found.startswith(_START):
                msg = f"closed, or no confirm: {found!r}"
                raise AmqpRunFailed(msg)
            if is_over:
                waiting -= 1
            else:
                send[descriptor](published)
        acked += len(events)
    seconds = time.monotonic() - started_s
    server_cpu_s = cpu_s(arguments.pid) - server_before_s
    client_cpu_s = time.process_time() - cpu_before_s
    delete_queues(control, [queue])
    return {
        "rate": acked / seconds,
        "messages": acked,
        "server_cpu_s": server_cpu_s,
        "client_cpu": client_cpu_s / seconds,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
