"""Consume all that waits in a durable queue, acknowledging many messages at once."""

import argparse
import asyncio
import json
import socket
import time
from typing import Any, Final

import uvloop

from adapters.amqp.v091.framing import encode_method_frame
from adapters.amqp.v091.methods.basic import BasicConsumeOk, BasicQos, BasicQosOk
from benchmarks.clients.amqp_streams import CountingConsumer
from benchmarks.clients.amqp_wire import CHANNEL, AmqpRunFailed, connected, delete_queues
from benchmarks.clients.mqtt_streams import adopt
from tests.adapters.amqp.conformance.methods import consume
from tests.support.amqp_raw import RawAmqp
from tests.support.process_usage import cpu_s

_STALLED_S_MAX: Final = 60.0
_TAG: Final = "c00"


class BacklogDrain:
    """A run, over once so many messages have come."""

    def __init__(self, messages: int, *, ack_every: int) -> None:
        self.consumer = CountingConsumer(self, ack_every=ack_every)
        self._messages = messages
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, fault: str) -> None:
        """See ``Watcher``."""
        if not self._over.done():
            self._over.set_exception(AmqpRunFailed(fault))

    def moved(self) -> None:
        """End the run when all has come."""
        if self.consumer.seen >= self._messages and not self._over.done():
            self._over.set_result(None)

    async def wait(self) -> None:
        """Wait until all has come."""
        progress = -1
        while not self._over.done():
            await asyncio.wait([self._over], timeout=_STALLED_S_MAX)
            if self.consumer.seen == progress:
                self.fail(f"{progress:,} of {self._messages:,} messages came")
            progress = self.consumer.seen
        self._over.result()


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return messages per second from basic.consume on. The queue is deleted at the end."""
    client = connected(arguments.port)
    client.ask(CHANNEL, BasicQos(0, arguments.prefetch, global_=False), BasicQosOk)
    drain = BacklogDrain(arguments.messages, ack_every=arguments.prefetch // 4)
    cpu_before_s, server_before_s = time.process_time(), cpu_s(arguments.pid)
    started_s = time.monotonic()
    start(client, arguments.queue)
    await adopt(client.socket, drain.consumer)
    await drain.wait()
    seconds = time.monotonic() - started_s
    server_cpu_s = cpu_s(arguments.pid) - server_before_s
    client_cpu_s = time.process_time() - cpu_before_s
    delete_queues(connected(arguments.port), [arguments.queue])
    return {
        "rate": drain.consumer.seen / seconds,
        "messages": drain.consumer.seen,
        "server_cpu_s": server_cpu_s,
        "client_cpu": client_cpu_s / seconds,
    }


def start(client: RawAmqp, queue: str) -> None:
    """Start to consume; what comes after consume-ok is not read yet."""
    client.send(CHANNEL, consume(queue, _TAG))
    expected = encode_method_frame(CHANNEL, BasicConsumeOk(_TAG))
    client.socket.settimeout(_STALLED_S_MAX)
    found = client.socket.recv(len(expected), socket.MSG_WAITALL)
    if found != expected:
        msg = f"no consume-ok: {found!r}"
        raise AmqpRunFailed(msg)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--queue", required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--prefetch", type=int, default=1_000)
    print(json.dumps(uvloop.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
