"""AMQP's consumers keep the contract of every protocol that pushes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

from adapters.amqp.v091.framing import BODY, METHOD, Frame, decode_content_header
from adapters.amqp.v091.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicConsumeOk,
    BasicDeliver,
    BasicNack,
    BasicQos,
)
from adapters.amqp.v091.methods.codec import decode_method
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from gateway.testing.consumers import (
    ConsumerClient,
    ConsumerContract,
    ConsumerGateway,
    Received,
)
from tests.adapters.amqp.conformance.methods import consume, declare
from tests.adapters.amqp.in_process import AmqpInProcess, Peer, amqp_in_process, published
from tests.support.waiting import turns, until

_QUEUE: Final = "contract"
_CHANNEL: Final = 1
_TAG: Final = "one"
_READ_BYTES: Final = 65_536
_TURNS: Final = 40  # in which the gateway delivers what it would


class _Client:
    """A channel of a connection without a socket."""

    def __init__(self, one: AmqpInProcess, peer: Peer) -> None:
        queue = one.queue(_QUEUE)
        assert queue is not None
        self._queue = queue
        self._peer = peer
        self._received: list[Received] = []
        self._open: tuple[BasicDeliver, int, bytes] | None = None
        self._is_consuming = False
        self._is_cancelled = False

    async def send(self, *bodies: bytes) -> None:
        partition = self._queue.lanes[0].partition
        end = partition.high_watermark + len(bodies)
        for body in bodies:
            data = published(_CHANNEL, _QUEUE, body)
            for start in range(0, len(data), _READ_BYTES):
                self._peer.send_bytes(data[start : start + _READ_BYTES])
        await until(lambda: partition.high_watermark == end)

    async def consume(self, *, credit: int) -> None:
        qos = BasicQos(0, credit, global_=False)
        self._peer.send(_CHANNEL, qos, consume(_QUEUE, _TAG))
        await until(lambda: self._look() is not None and self._is_consuming)

    async def receive(self, count: int) -> list[Received]:
        await until(lambda: len(self._look()) >= count)
        found, self._received = self._received[:count], self._received[count:]
        return found

    async def receive_now(self) -> list[Received]:
        await turns(_TURNS)
        found, self._received = self._look(), []
        return found

    async def ack(self, received: Sequence[Received]) -> None:
        for one in received:
            self._peer.send(_CHANNEL, BasicAck(_tag(one), multiple=False))

    async def release(self, received: Sequence[Received]) -> None:
        for one in received:
            self._peer.send(_CHANNEL, BasicNack(_tag(one), multiple=False, requeue=True))

    async def stop_reading(self) -> None:
        self._peer.connection.pause_writing()

    async def read_on(self) -> None:
        self._peer.connection.resume_writing()

    async def cancel(self) -> None:
        self._peer.send(_CHANNEL, BasicCancel(_TAG, nowait=True))

    async def wait_cancelled(self) -> None:
        await until(lambda: bool(self._look()) or self._is_cancelled)
        assert self._is_cancelled

    async def close(self) -> None:
        self._peer.lose()

    def _look(self) -> list[Received]:
        """Return what has come."""
        for frame in self._peer.take_frames():
            self._take(frame)
        return self._received

    def _take(self, frame: Frame) -> None:
        if frame.kind == METHOD:
            method = decode_method(frame.payload)
            self._is_consuming |= isinstance(method, BasicConsumeOk)
            self._is_cancelled |= isinstance(method, BasicCancel)
            if isinstance(method, BasicDeliver):
                self._open = method, -1, b""
            return
        if self._open is None:
            return
        method, size, body = self._open
        if frame.kind == BODY:
            body += frame.payload
        else:
            size = decode_content_header(frame.payload).body_bytes
        self._open = method, size, body
        if len(body) == size:
            self._open = None
            self._received.append(Received(body, method.delivery_tag, method.redelivered))


def _tag(received: Received) -> int:
    assert isinstance(received.handle, int)
    return received.handle


class _Gateway:
    """The node of the endpoint, in this process."""

    def __init__(self, one: AmqpInProcess) -> None:
        self._one = one

    async def client(self) -> ConsumerClient:
        peer = await self._one.peer().open(_CHANNEL)
        peer.send(_CHANNEL, declare(_QUEUE))
        await peer.read(QueueDeclareOk)
        capabilities = frozenset({"consumer_cancel_notify"})
        peer.connection.client_capabilities = capabilities
        return _Client(self._one, peer)

    async def delete_queue(self) -> None:
        queue = self._one.queue(_QUEUE)
        assert queue is not None
        await self._one.node.kernel.queues.delete(queue)


class TestConsumers(ConsumerContract):
    def running(self, folder: Path) -> AbstractAsyncContextManager[ConsumerGateway]:
        return _running(folder)


@asynccontextmanager
async def _running(folder: Path) -> AsyncIterator[ConsumerGateway]:
    async with amqp_in_process(folder) as one:
        yield _Gateway(one)
