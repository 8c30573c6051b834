"""The ports that Headgate has by default, held so that a test that relies on one fails."""

import socket
import socketserver
import threading
from contextlib import ExitStack
from typing import Final

DEFAULT_PORTS: Final = (1883, 5672, 8083, 8883, 9092, 9324, 9644, 15672)


def hold_default_ports(stack: ExitStack) -> None:
    """Listen on the default ports until ``stack`` ends, and close every connection at once.

    A port that a node of this machine or another worker has is left alone: it is held already.
    """
    for port in DEFAULT_PORTS:
        try:
            server = _Closing(("127.0.0.1", port), socketserver.BaseRequestHandler)
        except OSError:
            continue
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()


class _Closing(socketserver.TCPServer):
    """A server that resets: a client sees at once that this is not its gateway."""

    allow_reuse_address = True

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        """Close a connection without an answer."""
        del client_address
        request.close()
