"""Accepting TLS connections, each counted from before its handshake.

(The loop's own server says nothing of connections that are in their handshake, nor of a
handshake that failed.)
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from gateway import descriptors
from gateway.config.base import Address

SHORTAGE_PAUSE_S: Final = 0.1  # no descriptor left: the next look at who waits

Accept = Callable[[socket.socket, str], None]


class TlsAcceptor:
    """Listening sockets; ``accept`` is called with each connection's socket and address."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, address: Address, *, backlog: int, accept: Accept
    ) -> None:
        self._loop = loop
        self._address = address
        self._backlog = backlog
        self._accept = accept
        self.sockets: list[socket.socket] = []
        self._pauses: set[asyncio.TimerHandle] = set()

    async def start(self) -> None:
        """Bind and listen. Error: ``OSError`` when the address is taken or not ours."""
        host, port = self._address
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                self._listen(family, address)
        except OSError:
            self.close()
            raise

    def _listen(self, family: int, address: tuple[object, ...]) -> None:
        listening = socket.socket(family, socket.SOCK_STREAM)
        self.sockets.append(listening)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)  # noqa: FBT003 - the socket's own signature
        listening.bind(address)
        listening.listen(self._backlog)
        self._loop.add_reader(listening, self._on_readable, listening)

    def _on_readable(self, listening: socket.socket) -> None:
        """Accept one connection; others follow in the loop's next iteration."""
        try:
            accepted, peer = listening.accept()
        except OSError as error:
            if descriptors.is_shortage(error):
                descriptors.SHORTAGES.note(error)
                self._pause(listening)
            return  # else the peer has gone again, or nobody was there
        accepted.setblocking(False)  # noqa: FBT003
        self._accept(accepted, str(peer[0]))

    def _pause(self, listening: socket.socket) -> None:
        self._loop.remove_reader(listening)
        pause: asyncio.TimerHandle

        def go_on() -> None:
            self._pauses.discard(pause)
            self._loop.add_reader(listening, self._on_readable, listening)

        pause = self._loop.call_later(SHORTAGE_PAUSE_S, go_on)
        self._pauses.add(pause)

    def close(self) -> None:
        """Stop accepting."""
        for pause in self._pauses:
            pause.cancel()
        self._pauses.clear()
        for listening in self.sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self.sockets.clear()
