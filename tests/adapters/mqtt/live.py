"""A running MQTT endpoint in this process, on real sockets and a storage that can be held."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.server import MqttAdapter
from gateway.clock import ManualClock
from gateway.config.auth import AuthRule
from gateway.config.settings import BrokerConfig, NodeConfig, Settings
from gateway.kernel import Kernel
from tests.support import mqtt_wire as wire
from tests.support.held_storage import HeldStorage
from tests.support.live_kernel import running_kernel, serving
from tests.support.mqtt_wire import V5, Kind, Received

DEADLINE_S = 60.0
PASSWORD = "password"


class Client:
    """Sends bytes and reads packets, in whatever order a test likes."""

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
                    byte = (await self.reader.readexactly(1))[0]
                    size |= (byte & 0x7F) << shift
                    shift += 7
                    if byte < 0x80:
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
    settings = Settings(
        node=NodeConfig(data_dir=tmp_path), broker=BrokerConfig.model_validate(broker or {})
    )
    config = MqttConfig.model_validate(
        {
            "bind": "127.0.0.1:0",
            "websocket": {"bind": "127.0.0.1:0"},
            "sys_interval_s": 0,
            **(mqtt or {}),
        }
    )
    passwords = dict.fromkeys(users, PASSWORD)
    parts = running_kernel(settings, ManualClock(), users=passwords, rules=rules)
    async with parts as (kernel, storage):
        adapter = MqttAdapter(config, kernel)
        live = Live(adapter, kernel, storage)
        async with serving(adapter, storage, live.clients):
            yield live
