"""A burst of one publisher, and one subscriber that reads it at a third of the rate.

The publisher sends as fast as its socket takes it. While it does the subscriber has read a third
of that at most; afterwards it reads on at the same rate until all has come, or nothing comes any
more. Every message is numbered: what comes is counted, and must be in order and once.
"""

import argparse
import json
import socket
import threading
import time
import uuid
from itertools import pairwise
from typing import Any, Final

from benchmarks.clients.mqtt_packets import Table
from benchmarks.clients.mqtt_streams import MqttFault, add_subscriptions, open_socket
from tests.support.process_usage import cpu_s, resident_bytes

SLOWER: Final = 3
SILENT_S_MAX: Final = 5.0  # after which what has not come is lost
PUBLISHED_PER_WRITE: Final = 1_000
READ_BYTES: Final = 1 << 16
LOOK_S: Final = 0.005
MIB: Final = 1 << 20


class Burst:
    """Messages sent and read, and the server's memory."""

    def __init__(self, table: Table, pid: int) -> None:
        self._table = table
        self._pid = pid
        self._data = bytearray()
        self.sent_bytes = self.read_bytes = 0
        self.started_s = time.monotonic()
        self.sent_s = 0.0  # how long the publisher took, once it is done
        self.peak_bytes = resident_bytes(pid)

    def publish(self, sock: socket.socket) -> None:
        """Send all messages."""
        for start in range(0, self._table.count, PUBLISHED_PER_WRITE):
            data = self._table.slice(start, PUBLISHED_PER_WRITE)
            sock.sendall(data)
            self.sent_bytes += len(data)
        self.sent_s = time.monotonic() - self.started_s

    def read(self, sock: socket.socket) -> None:
        """Read at a third of the rate, until all has come or nothing comes."""
        wanted_bytes = self._table.count * self._table.length
        sock.settimeout(SILENT_S_MAX)
        while self.read_bytes < wanted_bytes:
            self.peak_bytes = max(self.peak_bytes, resident_bytes(self._pid))
            room = self._allowed_bytes() - self.read_bytes
            if room <= 0:
                time.sleep(LOOK_S)
                continue
            try:
                data = sock.recv(min(room, READ_BYTES))
            except TimeoutError:
                return
            if not data:
                msg = "the subscriber was disconnected"
                raise MqttFault(msg)
            self.read_bytes += len(data)
            self._data += data

    def _allowed_bytes(self) -> int:
        sent_bytes = self.sent_bytes
        if self.sent_s:
            sent_bytes = int(sent_bytes * (time.monotonic() - self.started_s) / self.sent_s)
        return sent_bytes // SLOWER

    def numbers(self) -> list[int]:
        """Return the numbers of what has come."""
        length, at = self._table.length, self._table.number_at
        data = self._data
        places = range(0, len(data), length)
        return [int.from_bytes(data[place + at : place + at + 4]) for place in places]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what part of the burst came, and what it cost the server."""
    tag = uuid.uuid4().hex[:8]
    topic = f"burst/{tag}".encode()
    table = Table([topic], count=arguments.count, qos=0, payload_bytes=arguments.bytes)
    subscriber = open_socket(arguments.port, f"s-{tag}")
    add_subscriptions(subscriber, [topic], qos=0)
    publisher = open_socket(arguments.port, f"p-{tag}")
    before_bytes, before_s = resident_bytes(arguments.pid), cpu_s(arguments.pid)
    burst = Burst(table, arguments.pid)
    sending = threading.Thread(target=burst.publish, args=(publisher,))
    sending.start()
    burst.read(subscriber)
    seconds = time.monotonic() - burst.started_s
    sending.join()
    numbers = burst.numbers()
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        msg = "out of order, or twice"
        raise MqttFault(msg)
    return {
        "messages": arguments.count,
        "share": len(numbers) / arguments.count,
        "publish_rate": arguments.count / burst.sent_s,
        "read_rate": len(numbers) / seconds,
        "server_cpu_s": cpu_s(arguments.pid) - before_s,
        "grown_mib": (burst.peak_bytes - before_bytes) / MIB,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--count", type=int, required=True, help="messages, whole 50,000s")
    parser.add_argument("--bytes", type=int, default=64)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
