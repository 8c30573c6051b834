"""One request of the HTTP API: its path, query, body and caller."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from adapters.amqp.management.caller import Caller, Need
from adapters.amqp.management.endpoint import AmqpEndpoint
from adapters.amqp.management.errors import bad_request, not_authorised, not_found
from adapters.amqp.names import to_namespace
from adapters.amqp.node import AmqpNode

_TOO_LARGE: Final = "Exceeded HTTP request body size limit"
STRINGS_MAX: Final = 10_000  # of a body that is large by its text alone
# A string, or the rest of the body behind the quote that begins it: linear, whatever is sent.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?(?:"|\Z)', re.DOTALL)


def bytes_outside_strings(data: bytes | bytearray) -> int:
    """Return the length of JSON with its strings empty; that of all above ``STRINGS_MAX`` of them.

    >>> bytes_outside_strings(b'{"payload": "a lot of text"}')
    8
    """
    emptied, count = _STRING.subn(b'""', data, STRINGS_MAX + 1)
    return len(data if count > STRINGS_MAX else emptied)


@dataclass(frozen=True, slots=True)
class Call:
    """Request with its caller. ``parts`` are the decoded parts of the path, by name."""

    endpoint: AmqpEndpoint
    request: Request
    caller: Caller
    parts: Mapping[str, str]
    body_bytes_max: int

    @property
    def node(self) -> AmqpNode:
        """The node's part of the adapter."""
        return self.endpoint.node

    @property
    def query(self) -> Mapping[str, str]:
        """Parameters of the query."""
        return self.request.query_params

    @property
    def vhost(self) -> str:
        """Vhost of the path, which was checked."""
        return self.parts["vhost"]

    @property
    def namespace(self) -> str:
        """Namespace of the path's vhost."""
        return to_namespace(self.vhost)

    def may_see(self, vhost: str) -> bool:
        """Say whether the caller may see a vhost."""
        return self.caller.has(Need.MONITORING) or self.may_open(vhost)

    def may_open(self, vhost: str) -> bool:
        """Say whether the caller may open a vhost.

        AMQP lets users without any permission open all, where the gateway's rules guard queues.
        Lists and policies have no such guard: they take a permission, or a tag that sees all.
        """
        permissions, principal = self.node.permissions, self.caller.principal
        if not permissions.may_open(principal, vhost):
            return False
        return (
            self.caller.has(Need.MONITORING)
            or permissions.find(principal.name, vhost) is not None
        )

    def check_vhost(self) -> None:
        """Check the path's vhost. Errors: ``ApiFault`` 404 and 401."""
        vhost = self.parts.get("vhost")
        if vhost is None:
            return
        if vhost not in self.node.vhosts:
            raise not_found()
        is_read = self.request.method in {"GET", "HEAD"}
        if not (self.may_see(vhost) if is_read else self.may_open(vhost)):
            raise not_authorised("User not authorised to access virtual host")

    def vhosts(self) -> list[str]:
        """Return the vhost of the path, or all that the caller may see."""
        if "vhost" in self.parts:
            return [self.vhost]
        return [vhost for vhost in self.node.vhosts.names() if self.may_see(vhost)]

    async def body(
        self, failed: str = "not_json", *, outside_strings_max: int | None = None
    ) -> dict[str, Any]:
        """Return the JSON object of the body; empty without one. Error: ``ApiFault`` 400.

        ``outside_strings_max``: bytes that are no text; a list of lists takes long to parse.
        """
        data = bytearray()
        async for chunk in self._chunks():
            data += chunk
            if len(data) > self.body_bytes_max:
                raise bad_request(_TOO_LARGE)
        bytes_max = outside_strings_max
        if bytes_max is not None and len(data) > bytes_max < bytes_outside_strings(data):
            raise bad_request(_TOO_LARGE)
        if bytes(data) in {b"", b"null", b"undefined"}:
            return {}
        try:
            found = json.loads(data, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise bad_request(failed) from error
        if not isinstance(found, dict):
            raise bad_request(failed)
        return found

    def _chunks(self) -> AsyncIterator[bytes]:
        return self.request.stream()

    def audit(self, action: str, name: str) -> Any:  # noqa: ANN401 - a context manager
        """Write an audit line about a change within the context."""
        return self.node.kernel.audit.change(self.caller.principal, action, name)


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


Handler = Callable[[Call], Awaitable[Response]]
