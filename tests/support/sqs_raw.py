"""SQS by bare HTTP: the JSON protocol unsigned and fast, and bytes as they are given."""

import http.client
import json
import socket
from typing import Any, Final, Self

ANSWER_S_MAX: Final = 30.0
_JSON: Final = "application/x-amz-json-1.0"

Result = dict[str, Any]


class Gone(Exception):
    """The server did not answer; the effect of the request is unknown."""


class Refused(Exception):
    """The server refused a request. ``code`` is the shape's name."""

    def __init__(self, code: str, status: int, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.code = code
        self.status = status


class JsonClient:
    """One persistent connection, reopened after errors. For one thread."""

    def __init__(
        self, port: int, *, host: str = "127.0.0.1", answer_s_max: float = ANSWER_S_MAX
    ) -> None:
        self._http = http.client.HTTPConnection(host, port, timeout=answer_s_max)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def call(self, action: str, **params: Any) -> Result:
        """Do a request. Errors: ``Gone``, ``Refused``."""
        headers = {"Content-Type": _JSON, "X-Amz-Target": f"AmazonSQS.{action}"}
        try:
            self._http.request("POST", "/", json.dumps(params).encode(), headers)
            answer = self._http.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            msg = f"{action}: {error!r}"
            raise Gone(msg) from None
        if answer.status == http.client.OK:
            return dict(json.loads(data or b"{}"))
        found = json.loads(data)
        code = found["__type"].rsplit("#", 1)[-1]
        raise Refused(code, answer.status, found.get("message", ""))

    def made(self, name: str, **attributes: str) -> str:
        """Make a queue; return its URL."""
        found = self.call("CreateQueue", QueueName=name, Attributes=attributes)
        return str(found["QueueUrl"])

    def attribute(self, url: str, name: str) -> str:
        """Return an attribute of a queue."""
        found = self.call("GetQueueAttributes", QueueUrl=url, AttributeNames=[name])
        return str(found["Attributes"][name])

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


def exchange(port: int, raw: bytes, *, answer_s_max: float) -> bytes:
    """Send bytes on a connection of their own; return all that comes until it rests or ends."""
    came = bytearray()
    with socket.create_connection(("127.0.0.1", port), answer_s_max) as connection:
        connection.settimeout(answer_s_max)
        try:
            connection.sendall(raw)
            while data := connection.recv(1 << 16):
                came += data
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            pass  # it waits for more, or has closed; both are answers
    return bytes(came)
