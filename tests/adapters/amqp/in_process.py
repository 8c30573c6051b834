"""AMQP connections without sockets: frames go in by the read, methods come out."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from adapters.amqp.config import AmqpConfig
from adapters.amqp.node import AmqpNode
from adapters.amqp.streams import CONTRIBUTION
from adapters.amqp.v091.connection import AmqpConnection
from adapters.amqp.v091.fields import EMPTY
from adapters.amqp.v091.framing import (
    METHOD,
    PROTOCOL_HEADER,
    Frame,
    FrameReader,
    encode_content,
    encode_method_frame,
)
from adapters.amqp.v091.handlers import CONNECTION_HANDLERS, HANDLERS
from adapters.amqp.v091.methods.basic import BasicPublish
from adapters.amqp.v091.methods.channel import ChannelOpen
from adapters.amqp.v091.methods.codec import decode_method
from adapters.amqp.v091.methods.connection import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from adapters.amqp.v091.methods.model import Method
from adapters.amqp.v091.properties import NO_PROPERTIES
from gateway.clock import ManualClock
from gateway.config.settings import Settings
from gateway.contributions import Contributions
from gateway.exchanges.start import start_exchanges
from gateway.listener import Listener
from gateway.model import TopicName
from gateway.queues.manager import Queue, QueueManager
from tests.support.held_storage import HeldStorage
from tests.support.live_kernel import running_kernel
from tests.support.waiting import turns, until

_M = TypeVar("_M", bound=Method)


class MemoryTransport(asyncio.Transport):
    """Transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Peer:
    """Client of one connection."""

    def __init__(self, listener: Listener, make: Callable[[], AmqpConnection]) -> None:
        self.connection = make()
        self.transport = MemoryTransport()
        self.connection.connection_made(self.transport)
        self._listener = listener
        self._reader = FrameReader(1 << 24)
        self._has_begun = False

    def send_bytes(self, data: bytes) -> None:
        """Let the connection read bytes, all at once."""
        self._listener.receive_buffer[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def send(self, channel: int, *methods: Method) -> None:
        """Let the connection read methods, all at once."""
        self.send_bytes(b"".join(encode_method_frame(channel, one) for one in methods))

    async def frames(self) -> list[Frame]:
        """Return the frames that have been sent since the last call."""
        await turns()
        return self.take_frames()

    def take_frames(self) -> list[Frame]:
        """Return the frames that have been sent until now."""
        data, self.transport.written = self.transport.written, b""
        return self._reader.receive(data)

    async def methods(self) -> list[Method]:
        """Return the methods that have been sent since the last call."""
        frames = await self.frames()
        return [decode_method(one.payload) for one in frames if one.kind == METHOD]

    async def read(self, kind: type[_M]) -> _M:
        """Wait for a method, and return it. Those before it are left out."""
        found: list[_M] = []

        def look() -> bool:
            data, self.transport.written = self.transport.written, b""
            for frame in self._reader.receive(data):
                if frame.kind == METHOD:
                    method = decode_method(frame.payload)
                    if isinstance(method, kind):
                        found.append(method)
            return bool(found)

        await until(look)
        return found[0]

    async def open(self, *channels: int) -> "Peer":
        """Log in, open the vhost and channels."""
        self.send_bytes(PROTOCOL_HEADER)
        self.send(0, ConnectionStartOk(EMPTY, "PLAIN", b"\0guest\0guest", "en_US"))
        await self.read(ConnectionTune)
        self.send(0, ConnectionTuneOk(2_047, 131_072, 0), ConnectionOpen("/"))
        await self.read(ConnectionOpenOk)
        for number in channels:
            self.send(number, ChannelOpen())
        await self.frames()
        return self

    def lose(self) -> None:
        """End the connection as a lost socket does."""
        self.connection.connection_lost(None)


class AmqpInProcess:
    """A node of the endpoint, and connections to it."""

    def __init__(self, node: AmqpNode, storage: HeldStorage) -> None:
        self.node = node
        self.storage = storage
        self.listener = Listener("amqp", node.config, self._make)

    def _make(self, listener: Listener) -> AmqpConnection:
        return AmqpConnection(listener, self.node, CONNECTION_HANDLERS, HANDLERS)

    def peer(self) -> Peer:
        """Return a client that has sent nothing."""
        return Peer(self.listener, lambda: self._make(self.listener))

    @property
    def queues(self) -> QueueManager:
        """All queues of the node."""
        return self.node.kernel.queues

    def queue(self, name: str) -> Queue | None:
        """Return a queue of the default namespace."""
        return self.node.kernel.queues.find(TopicName("default", name))

    def ready_count(self, name: str) -> int:
        """Return the number of ready messages of a queue; 0 without one."""
        queue = self.queue(name)
        return 0 if queue is None else queue.counts().ready


@asynccontextmanager
async def amqp_in_process(folder: Path, **config: Any) -> AsyncIterator[AmqpInProcess]:
    """Run a node without listening."""
    settings = Settings.model_validate({"node": {"data_dir": folder}})
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        live = await stack.enter_async_context(
            running_kernel(
                settings,
                clock,
                has_queues=True,
                contributions=Contributions({"amqp": CONTRIBUTION}),
            )
        )
        kernel = live.kernel
        publisher = await start_exchanges(
            kernel.metadata,
            kernel.topics,
            kernel.broker,
            kernel.queues.coalescer,
            kernel.queues.transfers,
            clock,
            settings,
            stack,
        )
        kernel = dataclasses.replace(kernel, publisher=publisher)
        node = AmqpNode(AmqpConfig(**config), kernel)
        one = AmqpInProcess(node, live.storage)
        yield one
        for connection in tuple(one.listener.connections):
            connection.connection_lost(None)
        live.storage.release()
        await node.changes.close()


def published(
    channel: int,
    routing_key: str,
    *bodies: bytes,
    exchange: str = "",
    properties: bytes = NO_PROPERTIES,
) -> bytes:
    """Return the frames of publishes."""
    method = encode_method_frame(
        channel, BasicPublish(0, exchange, routing_key, mandatory=False, immediate=False)
    )
    return b"".join(
        method + b"".join(encode_content(channel, properties, body, 131_072)) for body in bodies
    )
