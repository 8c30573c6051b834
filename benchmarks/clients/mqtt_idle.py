"""Connections that do nothing: how fast they open, and what the server keeps for each.

Reads the server's resident memory itself, while they are held; each answers a ping after that.
"""

import argparse
import json
import threading
import time
import uuid
from typing import Any, Final

from benchmarks.clients.connections import close_all, open_many, ping_all, raise_file_limit
from benchmarks.clients.mqtt_packets import DISCONNECT
from tests.support.process_usage import resident_bytes

_SETTLE_S: Final = 1.0


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return connections per second and bytes of memory for each connection."""
    count = arguments.connections
    raise_file_limit(count)
    tag = uuid.uuid4().hex[:8]
    pause = threading.Event()
    before_bytes = resident_bytes(arguments.pid)
    cpu_before_s = time.process_time()
    started_s = time.monotonic()
    filters = (lambda n: [f"idle/{tag}/{n}".encode()]) if arguments.subscribed else None
    sockets = open_many(
        arguments.port, (f"i{n}-{tag}" for n in range(count)), filters_of=filters
    )
    seconds = time.monotonic() - started_s
    client_cpu = (time.process_time() - cpu_before_s) / seconds
    pause.wait(_SETTLE_S)
    held_bytes = resident_bytes(arguments.pid)
    ping_all(sockets)
    pause.wait(_SETTLE_S)
    pinged_bytes = resident_bytes(arguments.pid)
    close_all(sockets, politely=DISCONNECT)
    return {
        "rate": count / seconds,
        "each_bytes": (held_bytes - before_bytes) / count,
        "pinged_bytes": (pinged_bytes - before_bytes) / count,
        "client_cpu": client_cpu,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--subscribed", action="store_true", help="each to a topic of its own")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
