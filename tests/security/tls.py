"""A Kafka client over TLS of the standard library, with a certificate of its own if wanted."""

import socket
import ssl
import struct
from pathlib import Path

API_VERSIONS = struct.pack(">hhih", 18, 0, 7, -1)


class Tls:
    """A connection past its handshake; ``certificate`` is the server's, as bytes."""

    def __init__(self, port: int, own: tuple[Path, Path] | None = None) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # the test looks at the certificate itself
        if own is not None:
            context.load_cert_chain(*own)
        self._socket = context.wrap_socket(socket.create_connection(("127.0.0.1", port), 30))
        self.certificate = self._socket.getpeercert(binary_form=True)

    def answers(self) -> bool:
        """Say whether an ApiVersions request is answered."""
        self._socket.sendall(struct.pack(">i", len(API_VERSIONS)) + API_VERSIONS)
        return len(self._socket.recv(4)) > 0

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def handshake(port: int, own: tuple[Path, Path] | None = None) -> bool:
    """Say whether the server takes a client with this certificate."""
    try:
        client = Tls(port, own)
    except OSError:
        return False
    try:
        return client.answers()  # TLS 1.3: a refusal comes after the client's handshake
    except OSError:
        return False
    finally:
        client.close()
