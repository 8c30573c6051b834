"""The answers of a connection, which leave in the order of their requests."""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from adapters.kafka.codec import API_VERSIONS, RequestHeader
from adapters.kafka.codecs import schema_codec, unserved_apis
from adapters.kafka.handlers import APIS, api_versions
from gateway.model import Buffer

if TYPE_CHECKING:  # a connection makes its replies; they know theirs
    from adapters.kafka.connection import KafkaConnection

_RESPONSE: Final = struct.Struct(">ii")
_CORRELATION_BYTES: Final = 4
_FLEXIBLE_FROM: Final = {0: 9, 1: 12}


def is_flexible(api_key: int, version: int) -> bool:
    """Say whether a request's header ends with tagged fields."""
    first = _FLEXIBLE_FROM.get(api_key)
    if first is not None:
        return version >= first
    if api_key == API_VERSIONS:
        return 3 <= version <= api_versions.VERSIONS[-1]  # noqa: PLR2004 - KIP-511
    if api_key in APIS:
        return schema_codec.is_flexible(api_key, version)
    return unserved_apis.is_flexible(api_key, version)


class Reply:
    """The place of one answer in the order of its connection's answers."""

    __slots__ = (
        "cancel", "connection", "correlation_id", "fetched_bytes", "hurry", "is_done",
        "is_flexible", "pieces", "unacknowledged_bytes",
    )  # fmt: skip

    def __init__(self, connection: "KafkaConnection", header: RequestHeader) -> None:
        self.connection = connection
        self.correlation_id = header.correlation_id
        self.is_flexible = header.api_key != API_VERSIONS and is_flexible(
            header.api_key, header.version
        )
        self.is_done = False
        self.pieces: list[Buffer] = []
        self.unacknowledged_bytes = 0
        self.fetched_bytes = 0
        self.hurry: Callable[[], None] | None = None
        self.cancel: Callable[[], None] | None = None

    def __call__(self, body: Buffer | list[Buffer] | None) -> None:
        """Answer with a body, or its pieces; None is for requests that have no answer."""
        if body is not None:
            pieces = body if isinstance(body, list) else [body]
            tags = b"\x00" if self.is_flexible else b""
            size = _CORRELATION_BYTES + len(tags) + sum(map(len, pieces))
            self.pieces = [_RESPONSE.pack(size, self.correlation_id) + tags, *pieces]
        self.is_done = True
        self.connection.guard(self.connection.on_reply, self)

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Run what others call back; a failure closes the connection, and no other suffers."""
        self.connection.guard(work, *args)
