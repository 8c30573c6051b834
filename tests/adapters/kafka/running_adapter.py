"""A running Kafka adapter with real sockets, on storage whose writes a test can hold."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from adapters.kafka.config import KafkaConfig
from adapters.kafka.connection import KafkaConnection
from adapters.kafka.server import KafkaAdapter
from gateway.clock import ManualClock
from gateway.config.settings import BrokerConfig, NodeConfig, Settings
from gateway.groups.cursors import CursorManager
from gateway.groups.manager import GroupManager
from gateway.kernel import Kernel
from gateway.model import TopicName
from gateway.placement import Placement
from tests.support.held_storage import HeldStorage
from tests.support.kafka_wire import (
    FETCH,
    PRODUCE,
    fetch_body,
    produce_body,
    request,
)
from tests.support.live_kernel import running_kernel, serving

MIB = 1024 * 1024
DEADLINE_S = 60.0


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
        """The server side of the only connection."""
        [connection] = self.adapter.listener.connections
        return cast("KafkaConnection", connection)


class Client:
    """Client that sends frames and reads responses in any order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def answer(self) -> tuple[int, bytes]:
        """Return (correlation id, body) of the next response."""
        async with asyncio.timeout(DEADLINE_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            frame = await self.reader.readexactly(size)
        return struct.unpack_from(">i", frame)[0], frame[4:]

    async def ended(self) -> bool:
        """Wait for the end of the connection; False if bytes arrive instead."""
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
    has_groups: bool = False,
    placement: Placement | None = None,
) -> AsyncIterator[Live]:
    settings = Settings(
        node=NodeConfig(data_dir=tmp_path),
        broker=BrokerConfig.model_validate(broker or {}),
    )
    users = {} if user is None else {user: "password"}
    async with running_kernel(
        settings,
        ManualClock(),
        users=users,
        placement=placement,
        has_queues=has_groups,
    ) as (kernel, storage):
        await kernel.topics.create(TopicName("default", "orders"), partitions=partitions)
        kernel.topics.on_deleted.append(
            lambda topic: kernel.broker.delete_topic(topic, lambda _error: None)
        )
        whole = await with_groups(kernel) if has_groups else kernel
        config = KafkaConfig.model_validate({"bind": "127.0.0.1:0", **(kafka or {})})
        adapter = KafkaAdapter(config, whole)
        live = Live(adapter, whole, storage)
        async with serving(adapter, storage, live.clients):
            yield live


async def with_groups(kernel: Kernel) -> Kernel:
    broker, topics, clock = kernel.broker, kernel.topics, kernel.clock
    config = kernel.settings.groups
    cursors = await CursorManager.open(broker, topics, clock, config)
    groups = await GroupManager.open(broker, topics, cursors, clock, config)
    return replace(kernel, groups=groups, cursors=cursors)


def produce(correlation_id: int, batch: bytes | bytearray, **kwargs: Any) -> bytes:
    number = kwargs.pop("number", 0)
    body = produce_body([("orders", number, bytes(batch))], **kwargs)
    return request(PRODUCE, 3, correlation_id, body)


def fetch(correlation_id: int, offset: int, *, wait_ms: int = 0, number: int = 0) -> bytes:
    return request(
        FETCH, 4, correlation_id, fetch_body("orders", number, offset, wait_ms=wait_ms)
    )
