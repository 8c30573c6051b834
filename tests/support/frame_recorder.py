"""A relay between clients and a gateway that keeps the frames which clients send."""

import socket
import struct
import threading
from contextlib import suppress
from typing import Self

from gateway.testing.ports import free_port


class Recorder:
    """Listens on ``port``, relays to ``target_port``; ``frames`` has each request once."""

    def __init__(self) -> None:
        self.port = free_port()
        self.target_port = 0
        self._frames: dict[bytes, None] = {}
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        for one in [self._listener, *self._sockets]:
            with suppress(OSError):  # closed by its peer already
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    @property
    def frames(self) -> list[bytes]:
        """Whole frames, their length included."""
        return list(self._frames)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target_port))
            self._sockets += [client, server]
            for source, sink, keep in ((client, server, True), (server, client, False)):
                arguments = (source, sink, bytearray() if keep else None)
                threading.Thread(target=self._relay, args=arguments, daemon=True).start()

    def _relay(
        self, source: socket.socket, sink: socket.socket, kept: bytearray | None
    ) -> None:
        try:
            while data := source.recv(1 << 16):
                if kept is not None:
                    kept += data
                    self._split(kept)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def _split(self, kept: bytearray) -> None:
        while len(kept) >= 4:
            size = 4 + struct.unpack_from(">i", kept)[0]
            if len(kept) < size:
                return
            self._frames[bytes(kept[:size])] = None
            del kept[:size]
