"""One publisher to some subscribers through a broker, all of them in one process.

The application holds the publisher back: never more than ``--ahead`` messages beyond what the
slowest subscriber has seen, and with QoS 1 never more than ``--window`` unacknowledged. So a
broker gains nothing by dropping, and whatever is lost ends the run: every message is numbered
and looked at.
"""

import argparse
import asyncio
import json
import time
import uuid
from typing import Any, Final

import uvloop

from benchmarks.clients.mqtt_packets import ACK_BYTES, IDS, Table
from benchmarks.clients.mqtt_streams import (
    MqttFault,
    Receiver,
    UniformStream,
    add_subscriptions,
    adopt,
    open_socket,
)
from tests.support.process_usage import cpu_s

STALLED_S_MAX: Final = 15.0
_PIECES: Final = 8  # an eighth of what may be ahead is worth a write


class Publisher(UniformStream):
    """Sends slices of the table; what comes back are acknowledgements, in order."""

    def __init__(self, table: Table, flow: "Flow") -> None:
        super().__init__(ACK_BYTES)
        self.sent = 0
        self.acked = 0
        self._table = table
        self._flow = flow

    def send(self, count: int) -> None:
        """Send the next ``count`` messages."""
        self.write(self._table.slice(self.sent, count))
        self.sent += count

    def take(self, end: int) -> None:
        """Check and count acknowledgements: in the order of the messages (MQTT-4.6.0-2)."""
        at = self.acked % self._table.count * ACK_BYTES
        if self._table.acks[at : at + end] != self.buffer[:end]:
            self._flow.fail(f"other acknowledgements after {self.acked:,}")
            return
        self.acked += end // ACK_BYTES
        self._flow.moved()


class Flow:
    """A run: who sends, who receives, how far apart, and when it is over."""

    def __init__(self, table: Table, *, window: int, ahead: int, count_max: int | None) -> None:
        self.publisher = Publisher(table, self)
        self.receivers: list[Receiver] = []
        self.started_s = self.ended_s = 0.0
        self._qos = table.qos
        self._window = window
        self._ahead = ahead
        self._piece = 1 if table.qos else max(1, ahead // _PIECES)
        self._count_max = count_max
        self._until_s = float("inf")
        self._is_closing = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def seen(self) -> int:
        """Messages seen by the slowest subscriber; without subscribers, those acknowledged."""
        return min((r.seen for r in self.receivers), default=self.publisher.acked)

    def fail(self, fault: str) -> None:
        """See ``Watcher``."""
        if not self._over.done():
            self._over.set_exception(MqttFault(fault))

    def moved(self) -> None:
        """Send what may be sent now; end the run when all has come."""
        publisher = self.publisher
        seen = self.seen
        if self._is_closing:
            self._end_if_all_came(seen)
            return
        room = self._ahead - (publisher.sent - seen)
        if self._qos:
            room = min(room, self._window - (publisher.sent - publisher.acked))
        if self._count_max is not None:
            room = min(room, self._count_max - publisher.sent)
        if room >= self._piece or (room > 0 and self._count_max is not None):
            publisher.send(room)
        if time.monotonic() >= self._until_s or publisher.sent == self._count_max:
            self._is_closing = True
            self._end_if_all_came(seen)

    def _end_if_all_came(self, seen: int) -> None:
        publisher = self.publisher
        is_acked = publisher.acked == publisher.sent or not self._qos
        if seen == publisher.sent and is_acked and not self._over.done():
            self._over.set_result(None)

    async def run(self, seconds: float | None) -> None:
        """Send for that long, or ``count_max`` messages, and wait until all of it has come."""
        self.started_s = time.monotonic()
        if seconds is not None:
            self._until_s = self.started_s + seconds
        self.moved()
        progress = -1
        while not self._over.done():
            await asyncio.wait([self._over], timeout=STALLED_S_MAX)
            now = sum(r.seen for r in self.receivers) + self.publisher.acked
            if now == progress and not self._over.done():
                lost = self.publisher.sent - self.seen
                self.fail(f"{lost:,} of {self.publisher.sent:,} messages lost")
            progress = now
        self._over.result()
        self.ended_s = time.monotonic()


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the rate of deliveries (of acknowledgements without subscribers)."""
    tag = uuid.uuid4().hex[:8]
    topic = f"bench/{tag}".encode()
    table = Table([topic], count=IDS, qos=arguments.qos, payload_bytes=arguments.bytes)
    flow = Flow(table, window=arguments.window, ahead=arguments.ahead, count_max=None)
    for number in range(arguments.subscribers):
        sock = open_socket(arguments.port, f"s{number}-{tag}")
        add_subscriptions(sock, [topic], qos=arguments.qos)
        flow.receivers.append(Receiver(table, flow))
        await adopt(sock, flow.receivers[-1])
    await adopt(open_socket(arguments.port, f"p-{tag}"), flow.publisher)
    cpu_before_s, server_before_s = time.process_time(), cpu_s(arguments.pid)
    await flow.run(arguments.seconds)
    server_cpu_s = cpu_s(arguments.pid) - server_before_s
    seconds = flow.ended_s - flow.started_s
    deliveries = flow.publisher.sent * max(1, arguments.subscribers)
    return {
        "rate": deliveries / seconds,
        "messages": flow.publisher.sent,
        "deliveries": deliveries,
        "server_cpu_s": server_cpu_s,
        "client_cpu": (time.process_time() - cpu_before_s) / seconds,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--qos", type=int, choices=(0, 1), default=0)
    parser.add_argument("--subscribers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--window", type=int, default=100, help="unacknowledged messages")
    parser.add_argument("--ahead", type=int, default=10_000, help="messages not seen yet")
    print(json.dumps(uvloop.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
