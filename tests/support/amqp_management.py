"""Client of RabbitMQ's HTTP API for tests."""

import base64
import http.client
import json
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote


class Answer(NamedTuple):
    """Answer of a call; ``body`` is its JSON, None without one."""

    status: int
    body: Any
    headers: dict[str, str]


def named(text: str) -> str:
    """Return a name as a part of a path."""
    return quote(text, safe="")


@dataclass(frozen=True)
class ManagementClient:
    """Client of one user; an empty ``credentials`` sends none."""

    port: int
    credentials: str = "guest:guest"

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Call ``/api/<path>``; bytes are sent as they are, other bodies as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Content-Type": "application/json", **(headers or {})}
        if self.credentials:
            token = base64.b64encode(self.credentials.encode()).decode()
            sent["Authorization"] = f"Basic {token}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, f"/api/{path}", data, sent)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, json.loads(text) if text else None, found)

    def get(self, path: str) -> Any:
        """Return what is read."""
        answer = self.call("GET", path)
        assert answer.status == 200, answer
        return answer.body

    def put(self, path: str, body: Any) -> None:
        """Set something."""
        answer = self.call("PUT", path, body)
        assert answer.status in {201, 204}, answer

    def post(self, path: str, body: Any) -> Any:
        """Return what a POST answers."""
        answer = self.call("POST", path, body)
        assert answer.status in {200, 201, 204}, answer
        return answer.body

    def delete(self, path: str) -> None:
        """Remove something."""
        answer = self.call("DELETE", path)
        assert answer.status == 204, answer
