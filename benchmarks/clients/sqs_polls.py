"""Long polls that wait for nothing: what the server keeps for each, and what it costs it."""

import argparse
import json
import threading
import time
from typing import Any, Final

from benchmarks.clients.connections import raise_file_limit
from benchmarks.clients.sqs_wire import ANY_KEY, Signer, open_socket
from tests.support.process_usage import cpu_s, resident_bytes

_WAIT_S: Final = 20
_SETTLE_S: Final = 2.0
_LOOK_S: Final = 10.0


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return bytes of memory for each poll, and the share of a CPU that all of them take."""
    raise_file_limit(arguments.connections)
    body = json.dumps({"QueueUrl": arguments.url, "WaitTimeSeconds": _WAIT_S}).encode()
    request = Signer(arguments.port, arguments.key).request("ReceiveMessage", body)
    pause = threading.Event()
    before_bytes = resident_bytes(arguments.pid)
    sockets = []
    started_s = time.monotonic()
    for _ in range(arguments.connections):
        sock = open_socket(arguments.port)
        sock.sendall(request)
        sockets.append(sock)
    seconds = time.monotonic() - started_s
    pause.wait(_SETTLE_S)
    held_bytes = resident_bytes(arguments.pid)
    look_s = min(_LOOK_S, _WAIT_S - (time.monotonic() - started_s) - 1)
    cpu_before_s = cpu_s(arguments.pid)
    pause.wait(look_s)
    cpu_share = (cpu_s(arguments.pid) - cpu_before_s) / look_s
    for sock in sockets:
        sock.close()
    return {
        "rate": arguments.connections / seconds,
        "each_bytes": (held_bytes - before_bytes) / arguments.connections,
        "cpu_share": cpu_share,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--key", default=ANY_KEY, help="id:secret")
    parser.add_argument("--url", required=True, help="URL of an empty queue")
    parser.add_argument("--connections", type=int, default=10_000)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
