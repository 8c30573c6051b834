"""Subscriptions to queues keep the contract of every protocol that pushes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from gateway.testing.adapter_client import Hangup, NotAccepted
from gateway.testing.consumers import (
    ConsumerClient,
    ConsumerContract,
    ConsumerGateway,
    Received,
)
from gateway.testing.gateway_process import GatewayProcess
from tests.stomp_client import Answer, StompClient, frame


class Consumer:
    """A client, which blocks: the gateway is another process."""

    def __init__(self, client: StompClient, destination: str) -> None:
        self._client = client
        self._destination = destination
        self._kept: list[Received] = []

    async def send(self, *bodies: bytes) -> None:
        for body in bodies:
            self._client.send_bytes(
                frame("SEND", body, destination=self._destination, receipt="sent")
            )
        for _ in bodies:
            self._await_receipt()

    async def consume(self, *, credit: int) -> None:
        self._ask(
            frame(
                "SUBSCRIBE",
                id="one",
                destination=self._destination,
                ack="client-individual",
                prefetch_count=credit,
                receipt="asked",
            )
        )

    async def receive(self, count: int) -> list[Received]:
        while len(self._kept) < count:
            self._kept.append(_received(self._client.answer("MESSAGE")))
        found, self._kept = self._kept[:count], self._kept[count:]
        return found

    async def receive_now(self) -> list[Received]:
        for _ in range(3):  # turns of the gateway's loop
            self._ask(frame("BEGIN", transaction="turn", receipt="asked"))
            self._ask(frame("ABORT", transaction="turn", receipt="asked"))
        found, self._kept = self._kept, []
        return found

    async def ack(self, received: Sequence[Received]) -> None:
        self._settle("ACK", received)

    async def release(self, received: Sequence[Received]) -> None:
        self._settle("NACK", received)

    async def stop_reading(self) -> None: ...  # it reads when it is asked to

    async def read_on(self) -> None: ...

    async def cancel(self) -> None:
        self._ask(frame("UNSUBSCRIBE", id="one", receipt="asked"))

    async def wait_cancelled(self) -> None:
        with pytest.raises(NotAccepted, match="the queue was deleted"):
            self._client.read_frame()
        with pytest.raises(Hangup):
            self._client.read_frame()

    async def close(self) -> None:
        self._client.close()

    def _settle(self, command: str, received: Sequence[Received]) -> None:
        frames = [frame(command, id=one.handle, receipt="settled") for one in received]
        self._client.send_bytes(b"".join(frames))
        for _ in frames:
            self._await_receipt()

    def _ask(self, data: bytes) -> None:
        self._client.send_bytes(data)
        self._await_receipt()

    def _await_receipt(self) -> None:
        while (answer := self._client.read_frame()).command != "RECEIPT":
            self._kept.append(_received(answer))


def _received(message: Answer) -> Received:
    headers = message.headers
    return Received(message.body, headers["ack"], headers["redelivered"] == "true")


class Gateway:
    """A queue of the gateway that the tests share."""

    def __init__(self, gateway: GatewayProcess, queue: str, stack: ExitStack) -> None:
        self._gateway = gateway
        self._queue = queue
        self._stack = stack

    async def client(self) -> ConsumerClient:
        client = StompClient(self._gateway.ports["stomp"])
        self._stack.callback(client.close)
        client.log_in(None)
        return Consumer(client, f"/queue/{self._queue}")

    async def delete_queue(self) -> None:
        self._gateway.run_command("queues", "delete", self._queue, "--yes")


class TestConsumers(ConsumerContract):
    @pytest.fixture(autouse=True)
    def _shared(self, shared_gateway: GatewayProcess, name: str) -> None:
        self._gateway = shared_gateway
        self._queue = name

    def running(self, folder: Path) -> AbstractAsyncContextManager[ConsumerGateway]:
        del folder  # the gateway has one
        return _running(self._gateway, self._queue)


@asynccontextmanager
async def _running(process: GatewayProcess, queue: str) -> AsyncIterator[ConsumerGateway]:
    with ExitStack() as stack:
        yield Gateway(process, queue, stack)
