"""Admin HTTP endpoint: uvicorn in the node's event loop, with bounds on every resource.

It starts before everything else, so that ``/healthz`` and ``/readyz`` answer while logs are
being read. It neither installs signal handlers nor configures logging, and it has no timer that
ticks while nobody asks.
"""

import asyncio
import socket
from pathlib import Path
from typing import Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from gateway.admin.app import build_app
from gateway.admin.state import AdminState
from gateway.admin.token import ensure_token, remove_url, write_url
from gateway.config.advice import cannot_listen
from gateway.config.base import Address, InvalidSettings, parse_address
from gateway.config.settings import AdminConfig

CONNECTIONS_MAX: Final = 64
HEADER_BYTES_MAX: Final = 16_384
REQUEST_S_MAX: Final = 30
DRAIN_S_MAX: Final = 2
_REACHED_BY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


class AdminServer:
    """HTTP server of the admin endpoint, over the node's ``state``."""

    def __init__(self, config: AdminConfig, state: AdminState, *, data_dir: Path) -> None:
        self._bind = parse_address(config.bind)
        self._hosts = config.hosts
        self._data_dir = data_dir
        self._state = state
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None

    @property
    def url(self) -> str:
        """URL of the endpoint on this machine, with the port that the system chose."""
        host, port = self._bind
        if self._socket is not None:
            port = self._socket.getsockname()[1]
        return f"http://{Address(_REACHED_BY.get(host, host), port)}"

    async def start(self) -> None:
        """Listen. Errors: ``InvalidSettings`` when the address cannot be taken."""
        listening = self._listen()
        config = uvicorn.Config(
            build_app(self._state, ensure_token(self._data_dir), self._hosts),
            http=_BoundedHttp,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            log_level="error",  # a stranger's every faulty request would be a line
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=CONNECTIONS_MAX,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
            timeout_graceful_shutdown=DRAIN_S_MAX,
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        # Not serve(): it would take over signals, and wake up ten times a second.
        await server.startup(sockets=[listening])
        self._socket, self._server = listening, server
        self._state.on_ready_changed = self._publish

    async def stop(self) -> None:
        """Answer open requests, within ``DRAIN_S_MAX`` seconds, and close the port."""
        if self._server is not None:
            await self._server.shutdown(sockets=[self._socket] if self._socket else [])
        self._server = self._socket = None
        self._state.on_ready_changed = None

    def _publish(self) -> None:
        """Write the endpoint's address for the commands, while the node is ready.

        Not before: until the storage is locked, another node may be at work in this folder.
        """
        if self._state.is_ready:
            write_url(self._data_dir, self.url)
        else:
            remove_url(self._data_dir)

    def _listen(self) -> socket.socket:
        host, port = self._bind
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listening = socket.socket(family, kind, protocol)
        except OSError as error:
            raise self._not_listening(error) from error
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(CONNECTIONS_MAX)
        except OSError as error:
            listening.close()
            raise self._not_listening(error) from error
        listening.setblocking(False)  # noqa: FBT003 - the socket's own signature
        return listening

    def _not_listening(self, error: OSError) -> InvalidSettings:
        return InvalidSettings(cannot_listen("admin.bind", str(self._bind), error))


class _BoundedHttp(H11Protocol):
    """HTTP/1.1 of uvicorn, with bounds on connections and on idle time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, unless there are too many."""
        super().connection_made(transport)
        self._patience: asyncio.TimerHandle | None = None
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
        else:
            self._patience = self.loop.call_later(REQUEST_S_MAX, self._close_if_overdue)

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

    def _close_if_overdue(self) -> None:
        """Close a connection with an incomplete request, an unread answer, or none."""
        at_work = (
            self.cycle is not None  # type: ignore[redundant-expr] # uvicorn's type hides None
            and not self.cycle.more_body
            and not self.cycle.response_complete
            and not self.transport.get_write_buffer_size()
        )
        if at_work:
            self._patience = self.loop.call_later(REQUEST_S_MAX, self._close_if_overdue)
        else:
            self.transport.abort()
