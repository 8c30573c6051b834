"""One blocking connection of a protocol's client, as AdapterContract drives it."""

import socket
from abc import ABC, abstractmethod
from typing import Final, NamedTuple, Self

ANSWER_S_MAX: Final = 60.0
_READ_BYTES: Final = 1 << 16


class NotAccepted(Exception):
    """The gateway said no in the protocol's own words, and keeps the connection."""


class Hangup(Exception):
    """The gateway closed the connection."""


class Credentials(NamedTuple):
    """Name and secret of a user; a protocol may have a name of its own for him."""

    name: str
    secret: str


class AdapterClient(ABC):
    """One connection; every wait for the gateway ends after ``ANSWER_S_MAX``.

    A subclass says what the protocol's bytes look like. Error of all methods that read:
    ``Hangup``. A wait that is too long: ``TimeoutError``.
    """

    def __init__(self, port: int) -> None:
        self._received = bytearray()
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S_MAX)
        except ConnectionError as error:
            raise Hangup from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @abstractmethod
    def log_in(self, credentials: Credentials | None) -> None:
        """Greet the gateway, as a user or as nobody. Errors: ``NotAccepted``, ``Hangup``.

        A protocol whose requests show each who sends them keeps the credentials for later.
        """

    @abstractmethod
    def encode_message(self, body: bytes) -> bytes:
        """Return the bytes that send one message with this body (ASCII letters and digits)."""

    @abstractmethod
    def wait_acknowledged(self) -> None:
        """Return when the oldest message that waits for it is acknowledged.

        Errors: ``NotAccepted``, ``Hangup``.
        """

    def send(self, body: bytes) -> None:
        """Send one message; return when it is acknowledged. Errors: ``NotAccepted``, ``Hangup``."""
        self.send_bytes(self.encode_message(body))
        self.wait_acknowledged()

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are. Error: ``Hangup``."""
        try:
            self.socket.sendall(data)
        except ConnectionError as error:
            raise Hangup from error

    def read(self, size_bytes: int) -> bytes:
        """Return exactly so many bytes."""
        while len(self._received) < size_bytes:
            self._read_more()
        return self._take(size_bytes)

    def read_until(self, end: bytes) -> bytes:
        """Return the bytes up to ``end``, which is included."""
        while (at := self._received.find(end)) < 0:
            self._read_more()
        return self._take(at + len(end))

    def wait_closed(self) -> None:
        """Return when the gateway has closed the connection; what it says before is dropped."""
        try:
            while True:
                self._received.clear()
                self._read_more()
        except Hangup:
            return

    def close(self) -> None:
        """Hang up without a word."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _take(self, size_bytes: int) -> bytes:
        data = bytes(self._received[:size_bytes])
        del self._received[:size_bytes]
        return data

    def _read_more(self) -> None:
        try:
            data = self.socket.recv(_READ_BYTES)
        except ConnectionError as error:
            raise Hangup from error
        if not data:
            raise Hangup
        self._received += data
