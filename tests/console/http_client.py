"""Plain HTTP requests to the console of a running node, with the cookies of one browser."""

import asyncio
import http.client
import json
import re
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import urlencode

from gateway.admin.server import AdminServer


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Browser:
    """A browser as the node sees it: cookies, and headers that only browsers send."""

    def __init__(self, server: AdminServer) -> None:
        self.origin = server.url
        self.authority = server.url.removeprefix("http://")
        self.cookies: dict[str, str] = {}
        self.csrf = ""

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.request("GET", path, headers=headers)

    async def call(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """Send a change as the console's own pages do."""
        sent = {"origin": self.origin, "x-csrf-token": self.csrf, **headers}
        data = b"" if body is None else json.dumps(body).encode()
        return await self.request(method, f"/v1/{path}", headers=sent, body=data)

    async def log_in(self, user: str, password: str, **headers: str) -> Answer:
        form = urlencode({"user": user, "password": password}).encode()
        sent = {"content-type": "application/x-www-form-urlencoded", "origin": self.origin}
        return await self.request(
            "POST", "/console/login", headers={**sent, **headers}, body=form
        )

    async def open(self, path: str = "/console/overview", **headers: str) -> Answer:
        """Load a page, and note the CSRF token that is in it."""
        answer = await self.get(path, **headers)
        found = re.search(r'name="csrf-token" content="([^"]+)"', answer.text)
        self.csrf = found[1] if found else ""
        return answer

    async def request(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        return await asyncio.to_thread(self._request, method, path, dict(headers), body)

    def _request(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        host, _, port = self.authority.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        if self.cookies:
            headers["cookie"] = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = Answer(
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
            )
        finally:
            connection.close()
        for name, morsel in SimpleCookie(answer.headers.get("set-cookie", "")).items():
            self.cookies[name] = morsel.value
        return answer
