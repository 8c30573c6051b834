"""A TCP proxy in front of PostgreSQL that cuts a connection at its next COMMIT, or falls silent."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from enum import Enum, auto
from typing import Final

_CHUNK_BYTES: Final = 65_536
_COMMIT: Final = b"COMMIT\0"  # as a query of the client, and as the server's answer to it


class Cut(Enum):
    """Point at which the proxy cuts the connection of a COMMIT."""

    BEFORE = auto()  # the server never gets it
    AFTER = auto()  # the server does it, the client never hears of it
    HELD = auto()  # the client's connection goes; the server gets it on ``release``
    SILENT_BEFORE = auto()  # nobody hears anything from then on, and nobody is told why
    SILENT_AFTER = auto()  # the same, but the server does it


class CuttingProxy:
    """Passes bytes on until it is told to ``cut``.

    While ``is_passing`` is not set it takes all bytes and hands on none; nothing is closed.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.cut: Cut | None = None
        self.release = threading.Event()
        self.is_passing = threading.Event()
        self.is_passing.set()
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """End all connections and threads."""
        self.release.set()
        self.is_passing.set()
        _shut(self._listener)
        self._listener.close()
        for one in self._sockets:
            _shut(one)
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                self._start(self._to_server, client, server)
                self._start(self._to_client, client, server)

    def _start(self, work: Callable[..., None], *args: socket.socket) -> None:
        self._threads.append(threading.Thread(target=work, args=args))
        self._threads[-1].start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):  # the server may be gone, too
            for chunk in _chunks(client):
                if _COMMIT in chunk and self.cut is Cut.BEFORE:
                    self.cut = None
                    break
                if _COMMIT in chunk and self.cut is Cut.HELD:
                    self.cut = None
                    _shut(client)
                    self.release.wait()
                self._pause_at(Cut.SILENT_BEFORE, chunk)
                server.sendall(chunk)
        _shut(client)
        _shut(server, socket.SHUT_WR)

    def _to_client(self, client: socket.socket, server: socket.socket) -> None:
        for chunk in _chunks(server):
            if _COMMIT in chunk and self.cut is Cut.AFTER:
                self.cut = None
                break
            self._pause_at(Cut.SILENT_AFTER, chunk)
            with suppress(OSError):  # who is cut off does not hear the rest
                client.sendall(chunk)
        _shut(client)
        _shut(server)

    def _pause_at(self, cut: Cut, chunk: bytes) -> None:
        if _COMMIT in chunk and self.cut is cut:
            self.cut = None
            self.is_passing.clear()
        self.is_passing.wait()


@contextmanager
def proxied(host: str, port: int) -> Iterator[CuttingProxy]:
    """Run a proxy in front of a server."""
    with closing(CuttingProxy((host, port))) as proxy:
        yield proxy


def _chunks(source: socket.socket) -> Iterator[bytes]:
    with suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            yield chunk


def _shut(one: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with suppress(OSError):
        one.shutdown(how)
