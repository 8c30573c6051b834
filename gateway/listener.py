"""Listening sockets: limits, TLS, the PROXY protocol, deadlines, drain.

For all TCP protocols. A ``Listener`` owns the server socket and its connections; what one of
them does is in ``gateway.connection``.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from gateway.admission import Admission
from gateway.certificate_expiry import expiry_unix_s
from gateway.config.base import ListenerConfig, parse_address
from gateway.connection import Connection
from gateway.fault_log import FaultLog
from gateway.proxy_handshake import ProxyHandshake, make_tls_context
from gateway.tls_acceptor import TlsAcceptor

__all__ = ["Connection", "Listener"]

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
SWEEP_S: Final = 1.0
BACKLOG: Final = 1024


class Listener:
    """A listening socket and its connections. ``host`` and ``port`` are set once it listens.

    A connection has a seat from the moment it is accepted, TLS handshake and PROXY header
    included. ``admission``: what it shares with the node's other listeners.
    """

    def __init__(
        self,
        name: str,
        config: ListenerConfig,
        make: Callable[["Listener"], Connection],
        *,
        admission: Admission | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.admission = admission or Admission()
        self.connections_max = min(config.connections_max, self.admission.connections_max)
        self.loop = asyncio.get_running_loop()
        self.now_s = 0.0  # moved on by the sweep: deadlines are coarse, reading them is cheap
        self._swept_s = self.loop.time()
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.connections: set[Connection] = set()
        self.fault_log = FaultLog(name)
        self.faults = self.fault_log.counts
        self.accepted = 0
        self.refused = 0
        self.socket_writes = 0
        self._to_flush: list[Connection] = []
        self._connection_count = 0
        self._per_host: Counter[str] = Counter()
        self._make = make
        self._server: asyncio.Server | TlsAcceptor | None = None
        self._tls: ssl.SSLContext | None = None
        self.certificate_expiry_unix_s: int | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self.proxy_handshakes: set[ProxyHandshake] = set()
        self._handshakes: set[asyncio.Task[None]] = set()
        self.host = ""
        self.port = 0

    async def start(self) -> None:
        """Bind and accept. Error: ``OSError``, with the address, when it is taken or not ours."""
        try:
            server = self._server = await self._bind()
        except OSError as error:
            error.filename = self.config.bind  # an adapter may have several listeners
            raise
        self.host, self.port = server.sockets[0].getsockname()[:2]
        self._sweep()

    async def _bind(self) -> asyncio.Server | TlsAcceptor:
        address = parse_address(self.config.bind)
        self.reload_certificates()
        if self._tls is not None and not self.config.proxy_protocol:
            acceptor = TlsAcceptor(
                self.loop,
                address,
                backlog=BACKLOG,
                accept=self._accept_tls,
            )
            await acceptor.start()
            return acceptor
        is_proxied = self.config.proxy_protocol
        return await self.loop.create_server(
            lambda: ProxyHandshake(self) if is_proxied else self._make(self),
            address.host,
            address.port,
            backlog=BACKLOG,
        )

    def reload_certificates(self) -> bool:
        """Reload the TLS files; open connections go on. Return False without TLS.

        Errors: ``OSError`` (``ssl.SSLError`` is one); then those that were read before stay.
        """
        self._tls = make_tls_context(self.config)
        if self.config.tls_cert is not None:
            self.certificate_expiry_unix_s = expiry_unix_s(self.config.tls_cert)
        return self._tls is not None

    def flush_soon(self, connection: Connection) -> None:
        """Schedule a connection's write at the end of this turn of the loop."""
        if not self._to_flush:  # one callback for all: acknowledgements come by the hundred
            self.loop.call_soon(self._flush)
        self._to_flush.append(connection)

    def _flush(self) -> None:
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.guard(connection.flush)

    def count_connection(self, host: str) -> bool:
        """Count a connection of an address; return False when a limit is reached.

        The address "" is one that is not known yet.
        """
        if self._connection_count >= self.connections_max:
            reason = "connections_max"
        elif host and self._per_host[host] >= self.config.connections_per_ip_max:
            reason = "connections_per_ip_max"
        elif host and not self.admission.admits_rate(host):
            reason = "connection_creation_rate"
        elif not self.admission.enter():
            reason = "listeners.descriptors_reserve"
        else:
            self._connection_count += 1
            self._per_host[host] += 1
            return True
        self.refused += 1
        self.note("TooManyConnections", host, f"refused: {reason}")
        return False

    def has_room(self) -> bool:
        """Say whether one more connection may come."""
        return self._connection_count < self.connections_max

    def uncount_connection(self, host: str) -> None:
        """Uncount a connection."""
        self.admission.leave()
        self._connection_count -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    def note(self, kind: str, host: str, detail: str) -> None:
        """Count a fault of a peer, and log it at a bounded rate."""
        self.fault_log.note(kind, host, detail)

    def admit(self, connection: Connection) -> bool:
        """Accept a connection; return False when it is not counted yet and a limit is reached."""
        if not connection.is_counted and not self.count_connection(connection.peer_host):
            return False
        connection.is_counted = True
        self.accepted += 1
        self.connections.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        """Forget an ended connection."""
        self.connections.discard(connection)
        if connection.is_counted:
            connection.is_counted = False
            self.uncount_connection(connection.peer_host)

    async def drain(self, seconds_max: float) -> None:
        """Stop accepting; wait until all requests are answered, or the time is over."""
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
        self.fault_log.end_second()
        for handshake in tuple(self.proxy_handshakes):
            handshake.abort()
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
        """Check deadlines; time in which this process was suspended does not count."""
        loop_s = self.loop.time()
        self.now_s += min(loop_s - self._swept_s, 2 * SWEEP_S)
        self._swept_s = loop_s
        for connection in tuple(self.connections):
            connection.check_deadlines(self.now_s)
        self.fault_log.end_second()
        self._sweep_timer = self.loop.call_later(SWEEP_S, self._sweep)

    def hand_over(self, transport: asyncio.Transport, host: str | None) -> None:
        """Start the protocol, over TLS where configured, after the PROXY header."""
        connection = self._make(self)
        connection.peer_host = host or ""
        context = self._tls
        if context is None:
            transport.set_protocol(connection)
            connection.connection_made(transport)
            return
        if not self.count_connection(connection.peer_host):
            transport.abort()
            return
        transport.pause_reading()  # the TLS hello must not reach the proxy handshake
        self._begin_tls(connection, self._start_tls(transport, connection, context))

    async def _start_tls(
        self, transport: asyncio.Transport, connection: Connection, context: ssl.SSLContext
    ) -> None:
        tls = await self.loop.start_tls(
            transport,
            connection,
            context,
            server_side=True,
            ssl_handshake_timeout=self.config.handshake_s_max,
        )
        if tls is not None:
            connection.connection_made(tls)

    def _accept_tls(self, accepted: socket.socket, host: str) -> None:
        if not self.count_connection(host):
            accepted.close()
            return
        connection = self._make(self)
        connection.peer_host = host
        self._begin_tls(
            connection,
            self.loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self.config.handshake_s_max,
            ),
        )

    def _begin_tls(
        self, connection: Connection, handshake: Coroutine[Any, Any, object]
    ) -> None:
        connection.is_counted = True
        task = self.loop.create_task(self._finish_tls(connection, handshake))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _finish_tls(
        self, connection: Connection, handshake: Coroutine[Any, Any, object]
    ) -> None:
        """Wait for a handshake; uncount the connection if it fails."""
        try:
            await handshake
        except (OSError, TimeoutError) as error:
            self.note("TlsHandshake", connection.peer_host, str(error))
        finally:
            if connection not in self.connections:
                self.forget(connection)
