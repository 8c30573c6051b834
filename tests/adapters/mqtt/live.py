"""A running MQTT endpoint in this process, on real sockets and a storage that can be held."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.connection import MqttConnection
from adapters.mqtt.server import MqttAdapter
from gateway.access_keys import AccessKeys
from gateway.auth_rules import RuleBook
from gateway.auth_users import StoredUsers
from gateway.broker import Broker
from gateway.clock import ManualClock
from gateway.config import AuthRule, BrokerConfig, NodeConfig, Settings
from gateway.delays import Delays
from gateway.kernel import Kernel
from gateway.metadata_sql import SqlMetadata
from gateway.metrics import Metrics
from gateway.model import PartitionIdentity
from gateway.placement import SingleNode
from gateway.topics import TopicManager
from tests.support import mqtt_wire as wire
from tests.support.held_storage import HeldStorage
from tests.support.mqtt_wire import V5, Kind, Received
from tests.support.storage_host import NoDatabase

DEADLINE_S = 10.0
PASSWORD = "password"


class Client:
    """Sends octets and reads packets, in whatever order a test likes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.version = version

    def send(self, *packets: bytes) -> None:
        self.writer.write(b"".join(packets))

    async def next(self) -> Received | None:
        """Return the next packet, or None at the end of the connection."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                first = (await self.reader.readexactly(1))[0]
                size = shift = 0
                while True:
                    octet = (await self.reader.readexactly(1))[0]
                    size |= (octet & 0x7F) << shift
                    shift += 7
                    if octet < 0x80:
                        break
                return Received(first, await self.reader.readexactly(size), self.version)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def receive(self, kind: Kind) -> Received:
        found = await self.next()
        assert found is not None, f"closed instead of {kind!r}"
        assert found.kind is kind, found
        return found

    async def connect(self, client_id: str = "c", **options: Any) -> Received:
        self.send(wire.connect(client_id, version=self.version, **options))
        return await self.receive(Kind.CONNACK)

    async def ended_with(self) -> list[tuple[Kind, int]]:
        """Return (kind, code) of what comes until the end."""
        came = []
        while (found := await self.next()) is not None:
            came.append((found.kind, found.code))
        return came


class Live:
    """A running adapter, its parts, and the clients of one test."""

    def __init__(self, adapter: MqttAdapter, kernel: Kernel, storage: HeldStorage) -> None:
        self.adapter = adapter
        self.kernel = kernel
        self.storage = storage
        self.clients: list[Client] = []

    async def client(self, version: int = V5, tls: ssl.SSLContext | None = None) -> Client:
        """Open a connection: to the second listener with ``tls``, else to the first."""
        listener = self.adapter.listeners[0 if tls is None else 1]
        name = None if tls is None else "localhost"
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", listener.port, ssl=tls, server_hostname=name
        )
        client = Client(reader, writer, version)
        self.clients.append(client)
        return client

    async def connected(
        self, client_id: str = "c", *, version: int = V5, **options: Any
    ) -> Client:
        client = await self.client(version)
        answer = await client.connect(client_id, **options)
        assert answer.code == 0, answer
        return client

    def connection(self) -> MqttConnection:
        """The gateway's side of the only connection."""
        [connection] = self.adapter.listener.connections
        return cast("MqttConnection", connection)


@contextlib.asynccontextmanager
async def running(
    tmp_path: Path,
    *,
    mqtt: dict[str, Any] | None = None,
    broker: dict[str, Any] | None = None,
    users: tuple[str, ...] = (),
    rules: tuple[AuthRule, ...] = (),
) -> AsyncIterator[Live]:
    clock = ManualClock()
    settings = Settings(
        node=NodeConfig(data_dir=tmp_path), broker=BrokerConfig.model_validate(broker or {})
    )
    async with contextlib.AsyncExitStack() as stack:
        metadata = SqlMetadata("sqlite", data_dir=tmp_path)
        await metadata.open()
        stack.push_async_callback(metadata.close)
        stored = StoredUsers(metadata)
        await stored.load()
        stack.push_async_callback(stored.close)
        for user in users:
            await stored.put_user(user, PASSWORD)
        book = RuleBook(metadata, stored, static_rules=rules)
        await book.load()
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
            authenticator=stored,
            authorizer=book,
            access_keys=AccessKeys(metadata),
            placement=placement,
            metadata=metadata,
            metrics=Metrics(),
        )
        config = MqttConfig.model_validate(
            {
                "bind": "127.0.0.1:0",
                "websocket": {"bind": "127.0.0.1:0"},
                "sys_interval_s": 0,
                **(mqtt or {}),
            }
        )
        adapter = MqttAdapter(config, kernel)
        await adapter.start()
        stack.push_async_callback(adapter.stop)
        live = Live(adapter, kernel, storage)
        try:
            yield live
        finally:
            storage.release()
            for client in live.clients:
                client.writer.close()
                with contextlib.suppress(OSError):
                    await client.writer.wait_closed()


class _Host(NoDatabase):
    """See ``StorageHost``."""

    def __init__(self, topics: TopicManager) -> None:
        self._topics = topics

    def identify(self, partition_id: int) -> PartitionIdentity:
        return self._topics.identify(partition_id)

    def on_fault(self, error: BaseException) -> None:
        raise error
