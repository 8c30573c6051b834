"""A running Kafka endpoint with real sockets, on a disk as slow as a test wants it to be."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

from adapters.kafka.config import KafkaConfig
from adapters.kafka.connection import KafkaConnection
from adapters.kafka.server import KafkaAdapter
from gateway.access_keys import AccessKeys
from gateway.auth_rules import RuleBook
from gateway.auth_users import StoredUsers
from gateway.broker import Broker
from gateway.clock import ManualClock
from gateway.config import BrokerConfig, NodeConfig, Settings
from gateway.delays import Delays
from gateway.kernel import Kernel
from gateway.metadata_sql import SqlMetadata
from gateway.metrics import Metrics
from gateway.model import PartitionIdentity, TopicName
from gateway.placement import SingleNode
from gateway.topics import TopicManager
from tests.support.held_storage import HeldStorage
from tests.support.kafka_wire import (
    FETCH,
    PRODUCE,
    fetch_body,
    produce_body,
    request,
)
from tests.support.storage_host import NoDatabase

MIB = 1024 * 1024
DEADLINE_S = 10.0


class Live:
    """A running adapter, its parts, and the clients of one test."""

    def __init__(self, adapter: KafkaAdapter, kernel: Kernel, storage: HeldStorage) -> None:
        self.adapter = adapter
        self.kernel = kernel
        self.storage = storage
        self.clients: list[Client] = []

    async def client(self) -> "Client":
        reader, writer = await asyncio.open_connection("127.0.0.1", self.adapter.listener.port)
        client = Client(reader, writer)
        self.clients.append(client)
        return client

    def connection(self) -> KafkaConnection:
        """The gateway's side of the only connection."""
        [connection] = self.adapter.listener.connections
        return cast("KafkaConnection", connection)


class Client:
    """Sends frames and reads answers, in whatever order a test likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def answer(self) -> tuple[int, bytes]:
        """Return (correlation id, body) of the next answer."""
        async with asyncio.timeout(DEADLINE_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            frame = await self.reader.readexactly(size)
        return struct.unpack_from(">i", frame)[0], frame[4:]

    async def ended(self) -> bool:
        """Wait for the end of the connection; False when octets come instead."""
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read(1) == b""
        return True


@contextlib.asynccontextmanager
async def running(
    tmp_path: Path,
    *,
    kafka: dict[str, Any] | None = None,
    broker: dict[str, Any] | None = None,
    partitions: int = 2,
    user: str | None = None,
) -> AsyncIterator[Live]:
    clock = ManualClock()
    settings = Settings(
        node=NodeConfig(data_dir=tmp_path),
        broker=BrokerConfig.model_validate(broker or {}),
    )
    async with contextlib.AsyncExitStack() as stack:
        metadata = SqlMetadata("sqlite", data_dir=tmp_path)
        await metadata.open()
        stack.push_async_callback(metadata.close)
        users = StoredUsers(metadata)
        await users.load()
        stack.push_async_callback(users.close)
        if user is not None:
            await users.put_user(user, "password")
        rules = RuleBook(metadata, users)
        await rules.load()
        topics = TopicManager(metadata, defaults=settings.topic_defaults, clock=clock)
        await topics.load()
        stack.push_async_callback(topics.close)
        storage = HeldStorage(HeldStorage.Config(), data_dir=tmp_path, clock=clock)
        await storage.open(_Host(topics))
        stack.push_async_callback(storage.close)
        placement = SingleNode(1, node_id=1, cluster_id="cluster-of-one-node-22")
        broker_part = Broker(storage, placement, clock, settings.broker)
        delays = await Delays.open(broker_part, topics, clock, settings.delay)
        stack.callback(delays.close)
        kernel = Kernel(
            settings=settings,
            clock=clock,
            broker=broker_part,
            topics=topics,
            groups=cast("Any", None),
            cursors=cast("Any", None),
            queues=cast("Any", None),
            delays=delays,
            authenticator=users,
            authorizer=rules,
            access_keys=AccessKeys(metadata),
            placement=placement,
            metadata=metadata,
            metrics=Metrics(),
        )
        await topics.create(TopicName("default", "orders"), partitions=partitions)
        topics.on_deleted.append(
            lambda topic: kernel.broker.delete_topic(topic, lambda _error: None)
        )
        config = KafkaConfig.model_validate({"bind": "127.0.0.1:0", **(kafka or {})})
        adapter = KafkaAdapter(config, kernel)
        await adapter.start()
        stack.push_async_callback(adapter.stop)
        live = Live(adapter, kernel, storage)
        yield live
        storage.release()
        for client in live.clients:
            client.writer.close()
            with contextlib.suppress(OSError):
                await client.writer.wait_closed()


class _Host(NoDatabase):
    def __init__(self, topics: TopicManager) -> None:
        self._topics = topics

    def identify(self, partition_id: int) -> PartitionIdentity:
        return self._topics.identify(partition_id)

    def on_fault(self, error: BaseException) -> None:
        raise error


async def until(condition: Callable[[], bool]) -> None:
    """Turn the loop until something holds."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            turned = loop.create_future()
            loop.call_soon(turned.set_result, None)
            await turned


def produce(correlation_id: int, batch: bytes | bytearray, **kwargs: Any) -> bytes:
    number = kwargs.pop("number", 0)
    body = produce_body([("orders", number, bytes(batch))], **kwargs)
    return request(PRODUCE, 3, correlation_id, body)


def fetch(correlation_id: int, offset: int, *, wait_ms: int = 0, number: int = 0) -> bytes:
    return request(
        FETCH, 4, correlation_id, fetch_body("orders", number, offset, wait_ms=wait_ms)
    )
