"""Sockets that speak MQTT: opened with plain blocking calls, then read in large pieces."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Final, Protocol, cast

from benchmarks.clients.mqtt_packets import (
    CONNACK_BYTES,
    SUBACK_BYTES,
    Table,
    connect,
    subscribe,
)

HOST: Final = "127.0.0.1"
ANSWER_S_MAX: Final = 60.0
_BUFFER_BYTES: Final = 1 << 20
_OPENING_BYTES: Final = 4 << 10  # many connections never get further
_REFUSED: Final = 0x80


class MqttFault(Exception):
    """The broker did what it must not: the run does not count."""


def open_socket(port: int, client_id: str, *, clean: bool = True) -> socket.socket:
    """Return a connection past CONNACK; what comes after that is not read yet."""
    sock = socket.create_connection((HOST, port), ANSWER_S_MAX)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(connect(client_id, clean=clean))
    read_connack(sock)
    return sock


def read_connack(sock: socket.socket) -> bool:
    """Read CONNACK and return whether a session was present."""
    found = sock.recv(CONNACK_BYTES, socket.MSG_WAITALL)
    if found[:2] != b"\x20\x02" or found[3]:
        msg = f"CONNACK {found.hex(' ')}"
        raise MqttFault(msg)
    return bool(found[2])


def add_subscriptions(sock: socket.socket, filters: Sequence[bytes], *, qos: int) -> None:
    """Subscribe; what comes after SUBACK is not read yet."""
    sock.sendall(subscribe(filters, qos=qos))
    read_suback(sock, len(filters))


def read_suback(sock: socket.socket, filter_count: int) -> None:
    """Read SUBACK for so many filters."""
    found = sock.recv(SUBACK_BYTES + filter_count, socket.MSG_WAITALL)
    if found[:1] != b"\x90" or max(found[SUBACK_BYTES:], default=_REFUSED) >= _REFUSED:
        msg = f"SUBACK {found.hex(' ')}"
        raise MqttFault(msg)


async def adopt(sock: socket.socket, protocol: asyncio.BaseProtocol) -> None:
    """Give a socket to the loop."""
    loop = asyncio.get_running_loop()
    sock.setblocking(False)  # noqa: FBT003 - the name of the standard library
    await loop.create_connection(lambda: protocol, sock=sock)


class Watcher(Protocol):
    """The run that a stream belongs to."""

    def fail(self, fault: str) -> None:
        """The run does not count, and ends now."""

    def moved(self) -> None:
        """Something came."""


class UniformStream(asyncio.BufferedProtocol):
    """Reads packets of one length into one buffer; a subclass's ``take`` gets whole ones.

    While ``length`` is 0, ``opening`` gets what comes, as it comes.
    """

    def __init__(self, length: int = 0) -> None:
        self.length = length
        self.transport: asyncio.Transport | None = None
        self.is_closed = False
        self._held = 0
        self._take_buffer(bytearray(_BUFFER_BYTES if length else _OPENING_BYTES))

    def take(self, end: int) -> None:
        """Handle the whole packets that ``buffer`` holds up to ``end``."""
        raise NotImplementedError

    def opening(self, end: int) -> bool:
        """Handle what ``buffer`` holds up to ``end``; True, with ``length`` set: take it."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.BufferedProtocol``."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's does not derive

    def connection_lost(self, _exc: Exception | None) -> None:
        """See ``asyncio.BufferedProtocol``."""
        self.is_closed = True

    def get_buffer(self, _sizehint: int) -> memoryview:
        """See ``asyncio.BufferedProtocol``."""
        return self._view[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        """See ``asyncio.BufferedProtocol``."""
        have = self._held + nbytes
        if not self.length:
            if not self.opening(have):
                return
            opened = self.buffer
            self._take_buffer(bytearray(_BUFFER_BYTES))
            self._view[:have] = opened[:have]
        self._held = have % self.length
        end = have - self._held
        if end:
            self.take(end)
            self._view[: self._held] = self.buffer[end:have]

    def _take_buffer(self, buffer: bytearray) -> None:
        self.buffer = buffer
        self._view = memoryview(buffer)

    def write(self, data: bytes | memoryview) -> None:
        """Send."""
        if self.transport is not None:
            self.transport.write(data)


class Receiver(UniformStream):
    """A subscriber that counts what comes, in order, and acknowledges it in one write."""

    def __init__(self, table: Table, flow: Watcher) -> None:
        super().__init__(table.length)
        self.seen = 0
        self._table = table
        self._flow = flow

    def take(self, end: int) -> None:
        """Check, acknowledge, count."""
        table = self._table
        if not table.is_next(self.buffer, end, self.seen):
            self._flow.fail(f"lost, doubled or out of order after message {self.seen:,}")
            return
        if table.qos:
            self.write(table.acks_for(self.buffer, end))
        self.seen += end // self.length
        self._flow.moved()
