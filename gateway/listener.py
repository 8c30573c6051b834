"""Accepting connections: limits, TLS, the PROXY protocol, deadlines, drain. For all TCP protocols.

A ``Listener`` owns the server socket and its ``Connection``s. A connection's adapter implements
``receive_buffer`` and ``received``; this file reads, writes, pauses and closes. Reads go into the
listener's one shared buffer unless the adapter hands out its own, so an idle connection costs no
buffer. It is the one place that catches ``Exception``: a bug met by one peer closes that peer only.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, cast

import structlog

from gateway.config import ListenerConfig, parse_address
from gateway.errors import GatewayError, PeerError
from gateway.model import Octets
from gateway.proxy_protocol import ProxyHeader

log = structlog.get_logger()

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
WRITE_HIGH_BYTES: Final = 1024 * 1024
SWEEP_S: Final = 1.0
BACKLOG: Final = 1024


class Connection(asyncio.BufferedProtocol):
    """One accepted connection. Subclasses speak a protocol; all calls are on the loop."""

    def __init__(self, listener: "Listener") -> None:
        self.listener = listener
        self.transport: asyncio.Transport | None = None
        self.peer_host = ""
        self.connected_s = listener.now_s
        self.last_received_s = listener.now_s
        self.frame_started_s: float | None = None
        self.has_greeted = False  # one whole frame has come
        self.is_writable = True
        self.bytes_received = 0
        self.bytes_sent = 0
        self._holds: set[str] = set()
        self._out: list[Octets] = []
        self._said: set[str] = set()

    # --- what a protocol implements

    def receive_buffer(self) -> memoryview:
        """Return where the next octets go; the shared buffer unless a large frame is under way."""
        return self.listener.receive_buffer

    def received(self, size_bytes: int) -> None:
        """``size_bytes`` octets were put into what ``receive_buffer`` returned last."""
        raise NotImplementedError

    def is_busy(self) -> bool:
        """Say whether a request is being served, so that silence is no reason to close."""
        return False

    def has_unsaved_work(self) -> bool:
        """Say whether something was taken from the peer and is not acknowledged yet."""
        return False

    def hurry(self) -> None:
        """The node drains: answer what waits."""

    def released(self) -> None:
        """A reason for holding reads has gone: go on with what was read already."""

    def flushed(self) -> None:
        """What was sent has been handed to the socket, or the peer has caught up."""

    def closed(self) -> None:
        """Let go of what the connection held."""

    def describe(self) -> dict[str, Any]:
        """Return what ``headgate clients`` shows of this connection."""
        return {
            "peer": self.peer_host,
            "connected_s": round(self.listener.now_s - self.connected_s),
            "received_bytes": self.bytes_received,
            "sent_bytes": self.bytes_sent,
        }

    # --- writing: one write per turn of the loop

    def send(self, *octets: Octets) -> None:
        """Queue octets; all that is queued in one turn of the loop leaves in one write."""
        if self.transport is None:
            return
        if not self._out:
            self.listener.loop.call_soon(self._flush)
        self._out.extend(octets)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self.transport is None:
            return
        self.listener.socket_writes += 1
        self.bytes_sent += sum(map(len, out))
        if len(out) == 1:
            self.transport.write(out[0])
        else:
            self.transport.writelines(out)
        self.flushed()

    def write_backlog_bytes(self) -> int:
        """Return the octets that the peer has not taken yet."""
        if self.transport is None:
            return 0
        return self.transport.get_write_buffer_size() + sum(map(len, self._out))

    # --- flow control

    def hold_reads(self, reason: str) -> None:
        """Read nothing more until this reason (and every other) is released."""
        if not self._holds and self.transport is not None:
            self.transport.pause_reading()
        self._holds.add(reason)

    def release_reads(self, reason: str) -> None:
        """Give up one reason for holding."""
        if reason in self._holds:
            self._holds.discard(reason)
            if not self._holds and self.transport is not None:
                self.last_received_s = self.listener.now_s
                self.transport.resume_reading()
            self.guard(self.released)

    def is_held_but_for(self, reason: str) -> bool:
        """Say whether reads are held for any other reason."""
        return bool(self._holds - {reason})

    # --- ending

    def fail(self, error: GatewayError) -> None:
        """Close because of the peer: counted, and logged once per connection and kind."""
        self.note(type(error).__name__, str(error))
        self.close()

    def note(self, kind: str, message: str) -> None:
        """Count a fault of the peer, and log it the first time on this connection."""
        self.listener.faults[kind] += 1
        if kind not in self._said:
            self._said.add(kind)
            log.warning(
                "peer fault",
                protocol=self.listener.name,
                peer=self.peer_host,
                kind=kind,
                detail=message[:500],
            )

    def close(self) -> None:
        """Write what is queued, then close."""
        if self.transport is not None:
            if self._out:
                self._flush()
            self.transport.close()

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Run ``work``; a peer's fault or a bug of ours closes this connection and no other."""
        try:
            work(*args)
        except PeerError as error:
            self.fail(error)
        except Exception as error:
            self.listener.faults["bug"] += 1
            log.exception("connection closed by a bug", protocol=self.listener.name)
            self.note(type(error).__name__, "closed by a bug of the gateway")
            self.close()

    # --- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio: over TLS, the handshake is done by now."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        transport = self.transport
        peer = transport.get_extra_info("peername")
        self.peer_host = self.peer_host or (str(peer[0]) if peer else "")
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if not self.listener.admit(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """See asyncio."""
        self.transport = None
        self._out.clear()
        self.listener.forget(self)
        self.guard(self.closed)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """See asyncio."""
        return self.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio."""
        self.last_received_s = self.listener.now_s
        self.bytes_received += nbytes
        self.guard(self.received, nbytes)

    def pause_writing(self) -> None:
        """The peer reads slower than we write: no more of its requests until it has caught up."""
        self.is_writable = False
        self.hold_reads("writes")

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.is_writable = True
        self.flushed()
        self.release_reads("writes")

    def overdue(self, now_s: float) -> str | None:
        """Return why the connection is to be closed by now, or None."""
        config = self.listener.config
        if self._holds:
            return None
        if not self.has_greeted and now_s - self.connected_s > config.handshake_s_max:
            return "handshake_s_max"
        if self.frame_started_s is not None and now_s - self.frame_started_s > config.frame_s_max:
            return "frame_s_max"
        if not self.is_busy() and now_s - self.last_received_s > config.idle_s_max:
            return "idle_s_max"
        return None


class Listener:
    """A listening socket and its connections. ``address`` is set once it listens."""

    def __init__(
        self, name: str, config: ListenerConfig, make: Callable[["Listener"], Connection]
    ) -> None:
        self.name = name
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.now_s = self.loop.time()  # renewed by the sweep: deadlines are coarse, reads cheap
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.connections: set[Connection] = set()
        self.faults: Counter[str] = Counter()
        self.accepted = 0
        self.refused = 0
        self.socket_writes = 0
        self._per_host: Counter[str] = Counter()
        self._make = make
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._preambles: set[asyncio.Task[None]] = set()
        self.host = ""
        self.port = 0

    async def start(self) -> None:
        """Bind and accept. Error: ``OSError`` when the address is taken or not ours."""
        address = parse_address(self.config.bind)
        context = make_tls_context(self.config)
        limits: dict[str, Any] = {}
        if self.config.proxy_protocol:
            self._server = await self.loop.create_server(
                lambda: _Preamble(self, context), address.host, address.port, backlog=BACKLOG
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
            connection.guard(connection.hurry)
        deadline_s = self.loop.time() + seconds_max
        while self.loop.time() < deadline_s and any(
            connection.has_unsaved_work() for connection in self.connections
        ):
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Close all connections, and wait until they are gone."""
        if self._server is not None:
            self._server.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for task in tuple(self._preambles):
            task.cancel()
        for connection in tuple(self.connections):
            connection.close()
        deadline_s = self.loop.time() + 1
        while self.connections and self.loop.time() < deadline_s:
            await asyncio.sleep(0.001)
        for connection in tuple(self.connections):
            if connection.transport is not None:
                connection.transport.abort()

    def _sweep(self) -> None:
        self.now_s = self.loop.time()
        for connection in tuple(self.connections):
            reason = connection.overdue(self.now_s)
            if reason is not None:
                connection.note(reason, f"closed: {reason} is over")
                connection.close()
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
        self._preambles.add(task)
        task.add_done_callback(self._preambles.discard)

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


class _Preamble(asyncio.BufferedProtocol):
    """Reads the PROXY header and not an octet more, then hands the transport over."""

    def __init__(self, listener: Listener, context: ssl.SSLContext | None) -> None:
        self._listener = listener
        self._context = context
        self._header = ProxyHeader()
        self._buffer = bytearray(16)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        transport = self._transport
        self._deadline = self._listener.loop.call_later(
            self._listener.config.handshake_s_max, transport.abort
        )

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        if self._header.wants > len(self._buffer):
            self._buffer = bytearray(self._header.wants)
        return memoryview(self._buffer)[: self._header.wants]

    def buffer_updated(self, nbytes: int) -> None:
        assert self._transport is not None
        assert self._deadline is not None
        try:
            self._header.receive(bytes(self._buffer[:nbytes]))
        except PeerError as error:
            self._listener.faults["ProxyProtocol"] += 1
            log.warning("peer fault", protocol=self._listener.name, detail=str(error))
            self._transport.abort()
            return
        if not self._header.wants:
            self._deadline.cancel()
            self._listener.hand_over(self._transport, self._header.host, self._context)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self._deadline is not None:
            self._deadline.cancel()


def make_tls_context(config: ListenerConfig) -> ssl.SSLContext | None:
    """Return the TLS settings of a listener, or None when it speaks plainly."""
    if config.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(config.tls_cert, config.tls_key)
    if config.tls_client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(config.tls_client_ca)
    return context
