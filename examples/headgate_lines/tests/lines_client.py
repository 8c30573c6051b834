"""A client of the line protocol."""

from gateway.testing.adapter_client import AdapterClient, Credentials, NotAccepted


class LinesClient(AdapterClient):
    """Sends lines and reads lines."""

    def log_in(self, credentials: Credentials | None) -> None:
        """Send ``AUTH``, unless as nobody."""
        if credentials is not None:
            self.accepted(self.ask(f"AUTH {credentials.name} {credentials.secret}"))

    def encode_message(self, body: bytes) -> bytes:
        """Return a ``PUB`` to the topic of the contract."""
        return b"PUB contract " + body + b"\n"

    def wait_acknowledged(self) -> None:
        """Read the answer of a ``PUB``."""
        self.accepted(self.line())

    def accepted(self, answer: str) -> str:
        """Return an answer. Error: ``NotAccepted`` when it is a negative one."""
        if answer.startswith("-"):
            raise NotAccepted(answer)
        return answer

    def say(self, *lines: str) -> None:
        """Send lines in one write."""
        self.send_bytes("".join(f"{line}\n" for line in lines).encode())

    def line(self) -> str:
        """Return the next line. Error: ``Hangup``."""
        return self.read_until(b"\n").decode().rstrip("\n")

    def ask(self, line: str) -> str:
        """Send a line and return the answer."""
        self.say(line)
        return self.line()
