"""A blocking client of STOMP 1.2, for the contracts and the tests."""

from typing import NamedTuple

from gateway.testing.adapter_client import AdapterClient, Credentials, NotAccepted


class Answer(NamedTuple):
    """A frame of the gateway."""

    command: str
    headers: dict[str, str]
    body: bytes


def frame(command: str, body: bytes = b"", /, **headers: object) -> bytes:
    """Return a frame; ``_`` in the name of a header is ``-``."""
    lines = [f"{name.replace('_', '-')}:{value}" for name, value in headers.items()]
    return "\n".join([command, *lines, "", ""]).encode() + body + b"\0"


class StompClient(AdapterClient):
    """Sends frames and reads frames."""

    queue = "/queue/contract"
    version = "1.2"

    def log_in(self, credentials: Credentials | None) -> None:
        """Send CONNECT."""
        login = {} if credentials is None else {"login": credentials.name}
        secret = {} if credentials is None else {"passcode": credentials.secret}
        self.send_bytes(
            frame("CONNECT", accept_version=self.version, host="here", **login, **secret)
        )
        self.answer("CONNECTED")

    def encode_message(self, body: bytes) -> bytes:
        """Return a SEND to the queue of the contract."""
        return frame("SEND", body, destination=self.queue, receipt="r")

    def wait_acknowledged(self) -> None:
        """Read a RECEIPT."""
        self.answer("RECEIPT")

    def read_frame(self) -> Answer:
        """Return the next frame. Errors: ``Hangup``; ``NotAccepted`` for ERROR."""
        head = self.read_until(b"\n\n").lstrip(b"\n")
        while not head:  # heart-beats alone
            head = self.read_until(b"\n\n").lstrip(b"\n")
        command, *lines = head.decode().rstrip("\n").split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(name, value)
        size = headers.get("content-length")
        body = self.read_until(b"\0")[:-1] if size is None else self.read(int(size) + 1)[:-1]
        if command == "ERROR":
            raise NotAccepted(f"{headers['message']}: {body.decode().strip()}")
        return Answer(command, headers, body)

    def answer(self, command: str) -> Answer:
        """Return the next frame, which is of that command."""
        found = self.read_frame()
        assert found.command == command, found
        return found

    def ask(self, command: str, body: bytes = b"", /, **headers: object) -> Answer:
        """Send a frame with a receipt, and return the RECEIPT. Error: ``NotAccepted``."""
        self.send_bytes(frame(command, body, receipt="asked", **headers))
        return self.answer("RECEIPT")

    def messages(self, count: int) -> list[Answer]:
        """Return the next messages."""
        return [self.answer("MESSAGE") for _ in range(count)]

    def bodies(self, count: int) -> list[bytes]:
        """Return the bodies of the next messages."""
        return [one.body for one in self.messages(count)]
