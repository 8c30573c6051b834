"""Connections that are held, each subscribed to a topic of its own, and messages for each.

One publisher goes round all topics, QoS 0, never more than ``--ahead`` messages beyond what has
come. Every connection must be there at the end and have got each of its messages, whole.
"""

import argparse
import json
import select
import socket
import time
import uuid
from typing import Any, Final

from benchmarks.clients.connections import close_all, open_many, raise_file_limit, watch_all
from benchmarks.clients.mqtt_packets import Table
from benchmarks.clients.mqtt_streams import MqttFault, open_socket
from tests.support.process_usage import cpu_s

_STALLED_S_MAX: Final = 15.0
_READ_BYTES: Final = 4_096  # each read allocates as much
_EVENTS_MAX: Final = 1_024
_SEND_BUFFER_BYTES: Final = 4 << 20


class Held:
    """A run over connections that are open."""

    def __init__(
        self, sockets: list[socket.socket], publisher: socket.socket, table: Table
    ) -> None:
        self.sent = 0
        self.seen = 0
        self._table = table
        self._publisher = publisher
        self._poll = watch_all(sockets)
        self._receive = {sock.fileno(): sock.recv for sock in sockets}
        self._number = {sock.fileno(): n for n, sock in enumerate(sockets)}
        self._packets = [bytes(table.slice(n, 1)) for n in range(table.count)]
        self._counts = [0] * table.count
        self._pending: dict[int, bytes] = {}

    def run(self, *, seconds: float, ahead: int) -> float:
        """Publish for that long; return the seconds until all of it has come."""
        started_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            if now_s < started_s + seconds:
                self._send(min(ahead - (self.sent - self.seen), self._table.count))
            elif self.seen == self.sent:
                return now_s - started_s
            events = self._poll.poll(_STALLED_S_MAX, _EVENTS_MAX)
            if not events:
                msg = f"{self.sent - self.seen:,} of {self.sent:,} messages lost"
                raise MqttFault(msg)
            for descriptor, event in events:
                self._read(descriptor, event)

    def check(self) -> None:
        """Each connection has got what was sent to it. Error: ``MqttFault``."""
        rounds, more = divmod(self.sent, self._table.count)
        wanted = [rounds + (n < more) for n in range(self._table.count)]
        if self._counts != wanted:
            msg = "a connection got more or less than was sent to it"
            raise MqttFault(msg)

    def _send(self, count: int) -> None:
        if count > 0:
            self._publisher.sendall(self._table.slice(self.sent, count))
            self.sent += count

    def _read(self, descriptor: int, event: int) -> None:
        number = self._number[descriptor]
        packet = self._packets[number]
        data = self._receive[descriptor](_READ_BYTES)
        if data == packet:
            count = 1
        else:
            data = self._pending.pop(descriptor, b"") + data
            count = len(data) // len(packet)
            rest = data[count * len(packet) :]
            is_whole = data == packet * count + rest and packet.startswith(rest)
            if event & ~select.EPOLLIN or not data or not is_whole:
                msg = f"connection {number} was closed, or got what is not its own"
                raise MqttFault(msg)
            if rest:
                self._pending[descriptor] = rest
        self._counts[number] += count
        self.seen += count


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return deliveries per second."""
    count = arguments.connections
    raise_file_limit(count)
    tag = uuid.uuid4().hex[:8]
    topics = [f"held/{tag}/{n:05d}".encode() for n in range(count)]
    sockets = open_many(
        arguments.port,
        (f"h{n}-{tag}" for n in range(count)),
        filters_of=lambda n: [topics[n]],
    )
    publisher = open_socket(arguments.port, f"p-{tag}")
    publisher.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    held = Held(sockets, publisher, Table(topics, count=count, qos=0))
    cpu_before_s, server_before_s = time.process_time(), cpu_s(arguments.pid)
    seconds = held.run(seconds=arguments.seconds, ahead=arguments.ahead)
    client_cpu = (time.process_time() - cpu_before_s) / seconds
    server_cpu_s = cpu_s(arguments.pid) - server_before_s
    held.check()
    close_all([*sockets, publisher])
    return {
        "rate": held.seen / seconds,
        "messages": held.seen,
        "server_cpu_s": server_cpu_s,
        "client_cpu": client_cpu,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--ahead", type=int, default=2_000)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
