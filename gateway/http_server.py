"""HTTP listener for an ASGI application: uvicorn in the node's event loop, within bounds.

It neither installs signal handlers nor configures logging, and it has no timer that ticks while
nobody asks. The admin endpoint and adapters with an HTTP interface share it.
"""

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gateway.config.base import Address

HEADER_BYTES_MAX: Final = 16_384
DRAIN_S_MAX: Final = 2
_REACHED_BY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


@dataclass(frozen=True, slots=True)
class HttpBounds:
    """Bounds of a listener. ``request_s_max``: seconds for a request to come in whole."""

    connections_max: int = 64
    request_s_max: int = 30


class HttpServer:
    """HTTP/1.1 on one address."""

    def __init__(
        self,
        address: Address,
        bounds: HttpBounds | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._address = address
        self._bounds = bounds or HttpBounds()
        self._tls = tls
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None

    @property
    def address(self) -> Address:
        """Address as clients of this machine reach it, with the port that the system chose."""
        host, port = self._address
        if self._socket is not None:
            port = self._socket.getsockname()[1]
        return Address(_REACHED_BY.get(host, host), port)

    async def start(self, app: ASGIApp) -> None:
        """Listen. Error: ``OSError`` when the address cannot be taken."""
        listening = self._listen()
        config = uvicorn.Config(
            app,
            http=_bounded_http(self._bounds),
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            log_level="error",  # a stranger's every faulty request would be a line
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=self._bounds.connections_max,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
            timeout_graceful_shutdown=DRAIN_S_MAX,
        )
        config.load()
        config.ssl = self._tls
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        # Not serve(): it would take over signals, and wake up ten times a second.
        await server.startup(sockets=[listening])
        self._socket, self._server = listening, server

    async def stop(self) -> None:
        """Answer open requests, within ``DRAIN_S_MAX`` seconds, and close the port."""
        if self._server is not None:
            await self._server.shutdown(sockets=[self._socket] if self._socket else [])
        self._server = self._socket = None

    def _listen(self) -> socket.socket:
        host, port = self._address
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(self._bounds.connections_max)
        except OSError:
            listening.close()
            raise
        listening.setblocking(False)  # noqa: FBT003 - the socket's own signature
        return listening


class _BoundedHttp(H11Protocol):
    """HTTP/1.1 of uvicorn, with bounds on connections and on idle time."""

    bounds: HttpBounds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, unless there are too many."""
        super().connection_made(transport)
        self._patience: asyncio.TimerHandle | None = None
        if len(self.connections) > self.bounds.connections_max:
            transport.abort()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection."""
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP, and end the answer to an earlier request."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:  # type: ignore[redundant-expr] # may be None
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _wait(self) -> None:
        self._patience = self.loop.call_later(self.bounds.request_s_max, self._close_if_overdue)

    def _close_if_overdue(self) -> None:
        """Close a connection with an incomplete request, an unread answer, or none."""
        at_work = (
            self.cycle is not None  # type: ignore[redundant-expr] # uvicorn's type hides None
            and not self.cycle.more_body
            and not self.cycle.response_complete
            and not self.transport.get_write_buffer_size()
        )
        if at_work:
            self._wait()
        else:
            self.transport.abort()


def _bounded_http(bounds: HttpBounds) -> type[H11Protocol]:
    """Return the protocol of a listener's connections, which uvicorn makes without arguments."""
    return type("BoundedHttp", (_BoundedHttp,), {"bounds": bounds})
