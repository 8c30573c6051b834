"""The HTTP API as an ASGI application: path to handler, login, errors.

Paths are split before they are decoded: names have slashes (``/api/queues/%2F/a%2Fb``).
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from adapters.amqp.management.call import Call
from adapters.amqp.management.caller import log_in
from adapters.amqp.management.endpoint import AmqpEndpoint
from adapters.amqp.management.errors import not_authorised, not_found, to_api_fault
from adapters.amqp.management.routes import ROUTES, SMALL_BODY_BYTES, Route
from gateway.errors import GatewayError, as_value

_PREFIX: Final = "api"


class _Found(NamedTuple):
    methods: Mapping[str, Route]
    parts: dict[str, str]


class ManagementApi:
    """Application over the adapter's ``endpoint``."""

    def __init__(self, endpoint: AmqpEndpoint, body_bytes_max: int) -> None:
        self._endpoint = endpoint
        self._body_bytes_max = body_bytes_max
        self._large = asyncio.Lock()  # large bodies and answers are in memory one at a time
        self._by_length: dict[int, list[tuple[tuple[str, ...], dict[str, Route]]]] = {}
        for path, methods in ROUTES.items():
            parts = tuple(path.strip("/").split("/"))
            self._by_length.setdefault(len(parts), []).append((parts, methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except GatewayError as error:
            response = to_api_fault(as_value(error)).to_response()
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        found = self._find(request)
        method = "GET" if request.method == "HEAD" else request.method
        route = found.methods.get(method)
        if route is None:
            allowed = ", ".join(("HEAD", *sorted(found.methods)))
            return Response(
                status_code=HTTPStatus.METHOD_NOT_ALLOWED, headers={"allow": allowed}
            )
        self._endpoint.node.requests[f"http {method} {found.parts['']}"] += 1
        caller = await log_in(self._endpoint.node, request)
        if not caller.has(route.need):
            raise not_authorised(route.need.value)
        bytes_max = min(route.body_bytes_max, self._body_bytes_max)
        call = Call(self._endpoint, request, caller, found.parts, bytes_max)
        if not route.makes_vhost:
            call.check_vhost()
        if not route.is_large and _is_small(request):
            return await route.handler(call)
        async with self._large:
            return await route.handler(call)

    def _find(self, request: Request) -> _Found:
        raw = request.scope["raw_path"].decode("ascii", "replace").strip("/").split("/")
        if raw[0] != _PREFIX:
            raise not_found()
        asked = raw[1:]
        for parts, methods in self._by_length.get(len(asked), ()):
            named = _match(parts, asked)
            if named is not None:
                named[""] = parts[0]
                return _Found(methods, named)
        raise not_found()


def _is_small(request: Request) -> bool:
    """Say whether a body is so small that many may be read at once."""
    if request.method in {"GET", "HEAD", "DELETE"}:
        return True
    length = request.headers.get("content-length", "")
    return length.isdigit() and int(length) <= SMALL_BODY_BYTES


def _match(parts: tuple[str, ...], asked: list[str]) -> dict[str, str] | None:
    """Return the named parts of a path, or None for a path of another form."""
    named: dict[str, str] = {}
    for part, text in zip(parts, asked, strict=True):
        if part.startswith("{"):
            named[part[1:-1]] = unquote(text)
        elif part != text:
            return None
    return named
