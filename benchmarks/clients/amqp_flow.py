"""One publisher to some queues, each with a consumer, all of them in one process.

The application holds the publisher back: never more than ``--ahead`` messages beyond what the
slowest connection has received, and never more than ``--window`` unconfirmed. So a broker gains
nothing by dropping, and whatever is lost ends the run: delivery tags and confirms are counted.
"""

import argparse
import asyncio
import json
import time
import uuid
from typing import Any, Final

import uvloop

from adapters.amqp.v091.methods.exchange import ExchangeDeclareOk
from adapters.amqp.v091.methods.queue import QueueBindOk
from benchmarks.clients.amqp_streams import CountingConsumer, RepeatingPublisher
from benchmarks.clients.amqp_wire import (
    CHANNEL,
    PERSISTENT,
    TRANSIENT,
    AmqpRunFailed,
    confirming,
    connected,
    declare_queue,
    delete_queues,
    message,
    start_consumers,
)
from benchmarks.clients.mqtt_streams import adopt
from tests.adapters.amqp.conformance.methods import bind, exchange
from tests.support.amqp_raw import RawAmqp
from tests.support.process_usage import cpu_s

_STALLED_S_MAX: Final = 20.0
_PIECES: Final = 8  # an eighth of what may be sent is worth a write


class AmqpFlow:
    """A run: how far the publisher is ahead of confirms and consumers, and when it is over."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.publisher: RepeatingPublisher
        self.consumers: list[CountingConsumer] = []
        self.queues_each = 1
        self.started_s = self.ended_s = 0.0
        self._window = arguments.window
        self._ahead = arguments.ahead
        self._left = arguments.messages
        self._piece = max(1, (self._window or self._ahead) // _PIECES)
        self._until_s = float("inf")
        self._is_closing = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def seen(self) -> int:
        """Messages that came from every queue of the slowest connection."""
        if not self.consumers:
            return self.publisher.acked
        return min(one.seen for one in self.consumers) // self.queues_each

    def fail(self, fault: str) -> None:
        """See ``Watcher``."""
        if not self._over.done():
            self._over.set_exception(AmqpRunFailed(fault))

    def moved(self) -> None:
        """Send what may be sent now; end the run when all has come."""
        publisher = self.publisher
        if not self._is_closing:
            room = self._ahead - (publisher.sent - self.seen)
            if self._window:
                room = min(room, self._window - (publisher.sent - publisher.acked))
            room = min(room, self._left - publisher.sent)
            if room >= self._piece or room == self._left - publisher.sent:
                publisher.send(room)
            self._is_closing = publisher.sent == self._left or time.monotonic() >= self._until_s
        if self._is_closing and self._all_came() and not self._over.done():
            self._over.set_result(None)

    def _all_came(self) -> bool:
        publisher = self.publisher
        return self.seen == publisher.sent and (
            not self._window or publisher.acked == publisher.sent
        )

    async def run(self, seconds: float) -> None:
        """Send for that long, or ``--messages``, and wait until all of it has come."""
        self.started_s = time.monotonic()
        self._until_s = self.started_s + seconds
        self.moved()
        progress = -1
        while not self._over.done():
            await asyncio.wait([self._over], timeout=_STALLED_S_MAX)
            now = sum(one.seen for one in self.consumers) + self.publisher.acked
            if now == progress:
                publisher = self.publisher
                self.fail(
                    f"sent {publisher.sent:,}, {self.seen:,} seen, {publisher.acked:,} acked"
                )
            progress = now
        self._over.result()
        self.ended_s = time.monotonic()


def declare_all(control: RawAmqp, arguments: argparse.Namespace) -> tuple[list[str], str, str]:
    """Return the queues, and exchange and routing key by which all of them are reached."""
    tag = uuid.uuid4().hex[:8]
    names = [f"bench-{tag}-{number:03d}" for number in range(arguments.queues)]
    if arguments.queue:
        names = [arguments.queue]
    for name in names:
        declare_queue(control, name, durable=not arguments.transient)
    if len(names) == 1:
        return names, "", names[0]
    fan_out = f"bench-{tag}"
    made = exchange(fan_out, "fanout", durable=not arguments.transient)
    control.ask(CHANNEL, made, ExchangeDeclareOk)
    for name in names:
        control.ask(CHANNEL, bind(name, fan_out), QueueBindOk)
    return names, fan_out, "k"


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the rate of deliveries (of confirms without consumers)."""
    control = connected(arguments.port)
    names, exchange_name, key = declare_all(control, arguments)
    flow = AmqpFlow(arguments)
    connections = arguments.consumers
    flow.queues_each = len(names) // max(1, connections)
    for number in range(connections):
        consumer = connected(arguments.port)
        queues = names[number::connections]
        start_consumers(
            consumer, queues, prefetch=arguments.prefetch, no_ack=not arguments.ack_every
        )
        flow.consumers.append(CountingConsumer(flow, ack_every=arguments.ack_every))
        await adopt(consumer.socket, flow.consumers[-1])
    opened = confirming if arguments.window else connected
    publisher = opened(arguments.port)
    properties = TRANSIENT if arguments.transient else PERSISTENT
    flow.publisher = RepeatingPublisher(
        flow,
        message(exchange_name, key, b"x" * arguments.bytes, properties),
        at_once_max=arguments.window or arguments.ahead,
    )
    await adopt(publisher.socket, flow.publisher)
    cpu_before_s, server_before_s = time.process_time(), cpu_s(arguments.pid)
    await flow.run(arguments.seconds)
    server_cpu_s = cpu_s(arguments.pid) - server_before_s
    client_cpu_s = time.process_time() - cpu_before_s
    seconds = flow.ended_s - flow.started_s
    if not arguments.queue:
        delete_queues(control, names)
    deliveries = flow.publisher.sent * len(names)
    return {
        "rate": deliveries / seconds,
        "messages": deliveries,
        "server_cpu_s": server_cpu_s,
        "client_cpu": client_cpu_s / seconds,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument(
        "--queue", default="", help="a queue that stays; else new ones, deleted"
    )
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--consumers", type=int, default=1, help="connections that consume")
    parser.add_argument("--transient", action="store_true")
    parser.add_argument("--bytes", type=int, default=12)
    parser.add_argument("--window", type=int, default=0, help="unconfirmed; 0: no confirms")
    parser.add_argument("--ahead", type=int, default=10_000, help="messages not received yet")
    parser.add_argument("--prefetch", type=int, default=0)
    parser.add_argument("--ack-every", type=int, default=0, help="0: no acknowledgements")
    parser.add_argument("--messages", type=int, default=1 << 62)
    parser.add_argument("--seconds", type=float, default=3)
    print(json.dumps(uvloop.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
