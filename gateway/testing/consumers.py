"""ConsumerContract: the suite of protocols that push messages of a queue to their clients.

Clients may be sockets to a gateway process, or a connection without a socket in the test's own
process: the suite awaits each step, and a blocking client just does it.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import pytest

_ROUNDS_MAX: Final = 1_000
_LARGE_BYTES: Final = 262_144
_LARGE_COUNT: Final = 100  # more than sockets hold


class Received(NamedTuple):
    """Message that a client has got. ``handle`` is the client's own, to settle it by."""

    body: bytes
    handle: object
    is_redelivered: bool


class ConsumerClient(Protocol):
    """One connection, which has logged in. It has at most one consumer of the queue."""

    async def send(self, *bodies: bytes) -> None:
        """Send messages to the queue; return when they are kept."""
        ...

    async def consume(self, *, credit: int) -> None:
        """Begin to get messages, of which ``credit`` may be in flight; return when that is so."""
        ...

    async def receive(self, count: int) -> list[Received]:
        """Return the next messages; wait until so many have come."""
        ...

    async def receive_now(self) -> list[Received]:
        """Return what has come, after the gateway has had time to send all that it would."""
        ...

    async def ack(self, received: Sequence[Received]) -> None:
        """Acknowledge messages, each by itself."""
        ...

    async def release(self, received: Sequence[Received]) -> None:
        """Give messages back to the queue."""
        ...

    async def stop_reading(self) -> None:
        """Read nothing from the socket until ``read_on``."""
        ...

    async def read_on(self) -> None:
        """Read again."""
        ...

    async def cancel(self) -> None:
        """End the consumer; the connection stays."""
        ...

    async def wait_cancelled(self) -> None:
        """Return when the gateway has said, in the protocol's words, that the consumer ended."""
        ...

    async def close(self) -> None:
        """Hang up without a word."""
        ...


class ConsumerGateway(Protocol):
    """A gateway with an empty queue."""

    async def client(self) -> ConsumerClient:
        """Return a new connection."""
        ...

    async def delete_queue(self) -> None:
        """Delete the queue."""
        ...


@pytest.mark.asyncio
class ConsumerContract:
    """The suite. Each test has a gateway of its own."""

    def running(self, folder: Path) -> AbstractAsyncContextManager[ConsumerGateway]:
        """Run a gateway that keeps its data in ``folder``."""
        raise NotImplementedError

    async def test_no_more_messages_come_than_there_is_credit(self, tmp_path: Path) -> None:
        async with self.running(tmp_path) as gateway:
            client = await gateway.client()
            sent = [b"%d" % number for number in range(8)]
            await client.send(*sent)
            await client.consume(credit=3)
            first = await client.receive(3)
            assert await client.receive_now() == []
            await client.ack(first[:2])
            more = await client.receive(2)
            assert await client.receive_now() == []
            await client.ack([first[2], *more])
            last = await client.receive(3)

            assert [one.body for one in (*first, *more, *last)] == sent

    async def test_consumers_of_equal_credit_get_equal_parts(self, tmp_path: Path) -> None:
        async with self.running(tmp_path) as gateway:
            clients = [await gateway.client() for _ in range(2)]
            for client in clients:
                await client.consume(credit=5)
            sent = [b"%d" % number for number in range(60)]
            await (await gateway.client()).send(*sent)
            found: list[list[bytes]] = [[], []]
            for _ in range(_ROUNDS_MAX):
                for client, bodies in zip(clients, found, strict=True):
                    received = await client.receive_now()
                    bodies += [one.body for one in received]
                    await client.ack(received)
                if sum(map(len, found)) >= len(sent):
                    break

            assert sorted(found[0] + found[1]) == sorted(sent)
            assert min(map(len, found)) >= len(sent) // 4

    async def test_a_consumer_without_credit_holds_up_no_other(self, tmp_path: Path) -> None:
        async with self.running(tmp_path) as gateway:
            idle, busy = await gateway.client(), await gateway.client()
            await idle.consume(credit=1)
            await busy.consume(credit=2)
            sent = [b"%d" % number for number in range(20)]
            await busy.send(*sent)
            (held,) = await idle.receive(1)
            found: list[bytes] = []
            while len(found) < len(sent) - 1:
                received = await busy.receive(1)
                found += [one.body for one in received]
                await busy.ack(received)

            assert sorted([held.body, *found]) == sorted(sent)
            assert await idle.receive_now() == []

    async def test_a_client_that_does_not_read_gets_no_more_and_loses_nothing(
        self, tmp_path: Path
    ) -> None:
        async with self.running(tmp_path) as gateway:
            slow, other = await gateway.client(), await gateway.client()
            await slow.consume(credit=_LARGE_COUNT)
            await slow.stop_reading()
            sender = await gateway.client()
            sent = [b"%03d" % number * (_LARGE_BYTES // 3) for number in range(_LARGE_COUNT)]
            for body in sent:
                await sender.send(body)
            await other.consume(credit=2)
            found = received = await other.receive(1)
            while received:
                await other.ack(received)
                received = await other.receive_now()
                found = [*found, *received]
            await slow.read_on()
            rest = await slow.receive(len(sent) - len(found))
            await slow.ack(rest)

            bodies = sorted(one.body for one in (*found, *rest))
            assert [body[:3] for body in bodies] == [body[:3] for body in sent]

    async def test_what_is_in_flight_goes_to_others_when_its_client_hangs_up(
        self, tmp_path: Path
    ) -> None:
        async with self.running(tmp_path) as gateway:
            gone, other = await gateway.client(), await gateway.client()
            sent = [b"%d" % number for number in range(6)]
            await gone.send(*sent)
            await gone.consume(credit=4)
            first = await gone.receive(4)
            assert not any(one.is_redelivered for one in first)
            await gone.ack(first[:1])
            assert await gone.receive(1)
            await gone.close()
            await other.consume(credit=10)
            found = await other.receive(5)

            assert sorted(one.body for one in found) == sent[1:]
            again = {one.body for one in found if one.is_redelivered}
            assert again == set(sent[1:5])
            assert await other.receive_now() == []

    async def test_a_message_that_is_released_comes_again(self, tmp_path: Path) -> None:
        async with self.running(tmp_path) as gateway:
            client = await gateway.client()
            await client.send(b"one")
            await client.consume(credit=1)
            first = await client.receive(1)
            await client.release(first)
            (again,) = await client.receive(1)

            assert (again.body, again.is_redelivered) == (b"one", True)

    async def test_a_cancelled_consumer_gets_nothing_more(self, tmp_path: Path) -> None:
        async with self.running(tmp_path) as gateway:
            gone, other = await gateway.client(), await gateway.client()
            await gone.consume(credit=10)
            await other.send(b"one")
            assert [one.body for one in await gone.receive(1)] == [b"one"]
            await gone.cancel()
            await other.send(b"two")
            assert await gone.receive_now() == []
            await gone.close()
            await other.consume(credit=10)

            assert sorted(one.body for one in await other.receive(2)) == [b"one", b"two"]

    async def test_a_client_is_told_when_its_queue_is_deleted(self, tmp_path: Path) -> None:
        async with self.running(tmp_path) as gateway:
            client = await gateway.client()
            await client.send(b"one")
            await client.consume(credit=1)
            await client.receive(1)
            await gateway.delete_queue()
            await client.wait_cancelled()
