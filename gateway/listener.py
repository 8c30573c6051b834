"""Accepting connections: limits, TLS, the PROXY protocol, deadlines, drain.

For all TCP protocols. A ``Listener`` owns the server socket and its connections; what one of
them does is in ``gateway.connection``.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import structlog

from gateway.config.base import ListenerConfig, parse_address
from gateway.connection import Connection
from gateway.preamble import Preamble, make_tls_context

__all__ = ["Connection", "Listener"]

log = structlog.get_logger()

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
SWEEP_S: Final = 1.0
BACKLOG: Final = 1024


class Listener:
    """A listening socket and its connections. ``address`` is set once it listens."""

    def __init__(
        self, name: str, config: ListenerConfig, make: Callable[["Listener"], Connection]
    ) -> None:
        self.name = name
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.now_s = 0.0  # moved on by the sweep: deadlines are coarse, reading them is cheap
        self._swept_s = self.loop.time()
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.connections: set[Connection] = set()
        self.faults: Counter[str] = Counter()
        self.accepted = 0
        self.refused = 0
        self.socket_writes = 0
        self._to_flush: list[Connection] = []
        self._per_host: Counter[str] = Counter()
        self._make = make
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self.preambles: set[Preamble] = set()
        self._handshakes: set[asyncio.Task[None]] = set()
        self.host = ""
        self.port = 0

    async def start(self) -> None:
        """Bind and accept. Error: ``OSError`` when the address is taken or not ours."""
        address = parse_address(self.config.bind)
        context = make_tls_context(self.config)
        limits: dict[str, Any] = {}
        if self.config.proxy_protocol:
            self._server = await self.loop.create_server(
                lambda: Preamble(self, context), address.host, address.port, backlog=BACKLOG
            )
        else:
            if context is not None:
                limits["ssl_handshake_timeout"] = self.config.handshake_s_max
            self._server = await self.loop.create_server(
                lambda: self._make(self),
                address.host,
                address.port,
                backlog=BACKLOG,
                ssl=context,
                **limits,
            )
        self.host, self.port = self._server.sockets[0].getsockname()[:2]
        self._sweep()

    def flush_soon(self, connection: Connection) -> None:
        """Have a connection write at the end of this turn of the loop."""
        if not self._to_flush:  # one callback for all: acknowledgements come by the hundred
            self.loop.call_soon(self._flush)
        self._to_flush.append(connection)

    def _flush(self) -> None:
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.guard(connection.flush)

    def has_room(self) -> bool:
        """Say whether one more connection may come."""
        count = len(self.connections) + len(self.preambles) + len(self._handshakes)
        return count < self.config.connections_max

    def admit(self, connection: Connection) -> bool:
        """Take a connection in, within the limits; False when it is one too many."""
        host = connection.peer_host
        if (
            len(self.connections) >= self.config.connections_max
            or self._per_host[host] >= self.config.connections_per_ip_max
        ):
            self.refused += 1
            connection.note("TooManyConnections", "connections_max or connections_per_ip_max")
            return False
        self.accepted += 1
        self.connections.add(connection)
        self._per_host[host] += 1
        return True

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        if connection in self.connections:
            self.connections.discard(connection)
            self._per_host[connection.peer_host] -= 1
            if not self._per_host[connection.peer_host]:
                del self._per_host[connection.peer_host]

    async def drain(self, seconds_max: float) -> None:
        """Accept nothing new; wait until all that was taken is answered, or time is over."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.hold_reads("drain")
            connection.guard(connection.hurry)
        deadline_s = self.loop.time() + seconds_max
        while self.loop.time() < deadline_s and any(  # noqa: ASYNC110 - of many, rarely
            connection.has_unsaved_work() for connection in self.connections
        ):
            await asyncio.sleep(0.01)  # connections do not tell when they are done

    async def stop(self) -> None:
        """Close all connections, and wait until they are gone."""
        if self._server is not None:
            self._server.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for preamble in tuple(self.preambles):
            preamble.abort()
        for task in tuple(self._handshakes):
            task.cancel()
        for connection in tuple(self.connections):
            connection.close()
        deadline_s = self.loop.time() + 1
        while self.connections and self.loop.time() < deadline_s:  # noqa: ASYNC110 - once
            await asyncio.sleep(0.001)
        for connection in tuple(self.connections):
            if connection.transport is not None:
                connection.transport.abort()

    def _sweep(self) -> None:
        """Meet deadlines. Time in which this process stood still is nobody's fault."""
        loop_s = self.loop.time()
        self.now_s += min(loop_s - self._swept_s, 2 * SWEEP_S)
        self._swept_s = loop_s
        for connection in tuple(self.connections):
            connection.check_deadlines(self.now_s)
        self._sweep_timer = self.loop.call_later(SWEEP_S, self._sweep)

    def hand_over(
        self, transport: asyncio.Transport, host: str | None, context: ssl.SSLContext | None
    ) -> None:
        """Begin the protocol (over TLS with a ``context``) on a transport past its preamble."""
        connection = self._make(self)
        connection.peer_host = host or ""
        if context is None:
            transport.set_protocol(connection)
            connection.connection_made(transport)
            return
        transport.pause_reading()  # the TLS hello must not reach the preamble
        task = self.loop.create_task(self._start_tls(transport, connection, context))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _start_tls(
        self, transport: asyncio.Transport, connection: Connection, context: ssl.SSLContext
    ) -> None:
        try:
            tls = await self.loop.start_tls(
                transport,
                connection,
                context,
                server_side=True,
                ssl_handshake_timeout=self.config.handshake_s_max,
            )
        except (OSError, TimeoutError) as error:
            self.faults["TlsHandshake"] += 1
            log.info("TLS handshake failed", protocol=self.name, detail=str(error))
            return
        if tls is not None:
            connection.connection_made(tls)
