"""A running endpoint that can be stopped, or die, and begin again on the same storage."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.server import MqttAdapter
from adapters.mqtt.sessions.client_session import ClientSession
from gateway.clock import ManualClock
from gateway.model import DEFAULT_NAMESPACE, HEADER_BYTES, TopicName
from gateway.partition import Partition
from gateway.records.codec import encode_batch
from gateway.records.compression import GZIP, compress
from gateway.topics.manager import Topic
from gateway.writer import Write
from tests.adapters.mqtt import live
from tests.support import mqtt_wire as wire
from tests.support.batches import patched
from tests.support.mqtt_wire import V5, Kind, Prop, Received
from tests.support.waiting import turns, until

DEADLINE_S = 60.0
KEPT = ((Prop.SESSION_EXPIRY, 3600),)


class Client(live.Client):
    """A client that acknowledges what it gets, at once or when a test says so."""

    def __init__(self, client: live.Client, name: str) -> None:
        super().__init__(client.reader, client.writer, client.version)
        self.name = name
        self.session_present = False
        self.released: list[int] = []
        self._next_id = 0

    def next_id(self) -> int:
        self._next_id += 1
        return self._next_id

    async def subscribe(self, *filters: tuple[str, int], found: wire.Properties = ()) -> None:
        self.send(wire.subscribe(self.next_id(), filters, found=found, version=self.version))
        await self.receive(Kind.SUBACK)

    async def unsubscribe(self, *filters: str) -> None:
        self.send(wire.unsubscribe(self.next_id(), filters, version=self.version))
        await self.receive(Kind.UNSUBACK)

    async def publish(
        self, topic: str, payloads: Sequence[bytes], *, qos: int = 1, **options: Any
    ) -> None:
        """Publish in one go (one run), and wait until all is acknowledged."""
        ids = [self.next_id() for _ in payloads]
        packets = [
            wire.publish(topic, one, qos=qos, packet_id=number, version=self.version, **options)
            for number, one in zip(ids, payloads, strict=True)
        ]
        self.send(*packets)
        if qos == 1:
            for number in ids:
                assert (await self.receive(Kind.PUBACK)).packet_id == number
        elif qos == 2:
            for number in ids:
                assert (await self.receive(Kind.PUBREC)).packet_id == number
            self.send(*[wire.ack(Kind.PUBREL, number) for number in ids])
            for number in ids:
                assert (await self.receive(Kind.PUBCOMP)).packet_id == number

    async def message(self) -> Received:
        """Return the next PUBLISH, not acknowledged."""
        return await self.receive(Kind.PUBLISH)

    async def messages(self, count: int) -> list[Received]:
        """Return messages without acknowledging them."""
        return [await self.message() for _ in range(count)]

    async def acknowledge(self, found: Received) -> None:
        """Do all that ends a delivery."""
        if found.qos == 1:
            self.send(wire.ack(Kind.PUBACK, found.packet_id))
        elif found.qos == 2:
            self.send(wire.ack(Kind.PUBREC, found.packet_id))

    async def take(self, count: int) -> list[Received]:
        """Return messages and end their deliveries; PUBRELs are answered as they come."""
        taken: list[Received] = []
        open_ids: set[int] = set()
        while len(taken) < count or open_ids:
            found = await self.next()
            assert found is not None, f"closed after {len(taken)} of {count}"
            if found.kind is Kind.PUBREL:
                open_ids.discard(found.packet_id)
                self.send(wire.ack(Kind.PUBCOMP, found.packet_id))
                continue
            assert found.kind is Kind.PUBLISH, found
            taken.append(found)
            if found.qos == 2:
                open_ids.add(found.packet_id)
            await self.acknowledge(found)
        return taken

    async def silent(self) -> None:
        """Nothing more came: PINGRESP is what comes next."""
        self.send(wire.PINGREQ)
        await self.receive(Kind.PINGRESP)

    async def leave(self, *, found: wire.Properties = ()) -> None:
        """Say goodbye, and see the connection end."""
        self.send(wire.disconnect(found=found, version=self.version))
        assert await self.ended_with() == []
        self.writer.close()

    async def drop(self) -> None:
        """Go without a word."""
        self.writer.transport.abort()


class RestartableNode:
    """The endpoint and what a test does with it."""

    def __init__(self, running: live.Live) -> None:
        self.live = running
        self.kernel = running.kernel
        self.clock = cast("ManualClock", running.kernel.clock)

    @property
    def adapter(self) -> MqttAdapter:
        return self.live.adapter

    async def client(
        self, name: str = "c", *, kept: bool = False, clean: bool = True, **options: Any
    ) -> Client:
        """Connect. ``kept``: with a session that outlives the connection, and is gone on with."""
        if kept:
            clean = False
            options["found"] = (*KEPT, *options.get("found", ()))
        version = options.pop("version", V5)
        client = Client(await self.live.client(version), name)
        answer = await client.connect(name, clean=clean, **options)
        assert answer.code == 0, answer
        client.session_present = answer.session_present
        return client

    def session(self, name: str) -> ClientSession | None:
        return self.adapter.node.sessions.find(name)

    async def gone(self, name: str) -> None:
        """Wait until the session knows that its client has gone."""

        def is_gone() -> bool:
            session = self.session(name)
            return session is None or session.connection is None

        await until(is_gone)

    def partition(self, topic: str = "mqtt", number: int = 0) -> Partition:
        found = self.kernel.topics.get(TopicName(DEFAULT_NAMESPACE, topic))
        return self.kernel.broker.partition(found, number)

    def produce(
        self,
        records: Sequence[tuple[bytes, bytes]],
        *,
        headers: Sequence[tuple[str, bytes | None]] = (),
        compressed: bool = False,
        garbled: bool = False,
        topic: str = "mqtt",
        number: int = 0,
    ) -> None:
        """Append a batch as Kafka's producers do; ``garbled``: with zeros at its end."""
        now = self.clock.unix_ms()
        batch = encode_batch([(now, key, value, tuple(headers)) for key, value in records])
        if compressed:
            batch = batch[:HEADER_BYTES] + compress(GZIP, bytes(batch[HEADER_BYTES:]))
            if garbled:
                batch[-8:] = bytes(8)
            struct.pack_into(">i", batch, 8, len(batch) - 12)
            batch = patched(batch, 21, ">h", GZIP)
        write = self.kernel.broker.prepare(self.partition(topic, number), batch)
        assert isinstance(write, Write)
        self.kernel.broker.append([write], lambda _error: None)

    async def delivered(self) -> None:
        """Wait until the feeds have handed out all that the log has."""

        def is_delivered() -> bool:
            return all(
                feed.live_offset == feed.partition.log_end_offset
                for feed in self.adapter.node.feeds
            )

        await until(is_delivered)

    async def restart(self, *, crash: bool = False) -> None:
        """End the adapter and begin another; ``crash``: nothing is written down at the end."""
        old = self.adapter
        if crash:
            await self._die(old)
        await old.stop()
        await turns(3)
        old.listeners, old._node = [], None  # what ends the test may end it again
        self.live.adapter = MqttAdapter(old.config, self.kernel)
        await self.live.adapter.start()

    async def _die(self, adapter: MqttAdapter) -> None:
        node = adapter.node
        done = asyncio.get_running_loop().create_future()
        self.kernel.broker.after_pending(lambda _error: done.set_result(None))
        await done
        for stream in (node.context.store.stream, node.publishing._inbound.stream):
            stream.put = _put_nothing  # type: ignore[method-assign]
        for listener in adapter.listeners:
            for connection in listener.connections:
                cast("MqttConnection", connection).with_will = False


def _put_nothing(*_args: object, **_kwargs: object) -> None:
    """The node is dead."""


@contextlib.asynccontextmanager
async def restartable_node(tmp_path: Path, **options: Any) -> AsyncIterator[RestartableNode]:
    async with live.running(tmp_path, **options) as running:
        topics, broker = running.kernel.topics, running.kernel.broker

        def delete(topic: Topic) -> None:
            broker.delete_topic(topic, lambda _error: None)

        topics.on_deleted.insert(0, delete)
        one = RestartableNode(running)
        first = running.adapter
        try:
            yield one
        finally:
            if running.adapter is not first:
                await running.adapter.stop()


def payloads(found: Sequence[Received]) -> list[bytes]:
    return [one.payload for one in found]


def numbered(count: int, *, start: int = 0, size: int = 0) -> list[bytes]:
    return [b"%d" % at + b"." * size for at in range(start, start + count)]
