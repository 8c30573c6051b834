"""Replies of a connection, sent in the order of their requests."""

import struct
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, Protocol

from adapters.kafka.codec import API_VERSIONS, RequestHeader
from adapters.kafka.codecs import schema_codec, unserved_apis
from adapters.kafka.handlers import APIS, api_versions
from adapters.kafka.quotas.request_meter import RequestMeter
from adapters.kafka.quotas.throttle_field import place_throttle
from gateway.model import Buffer
from gateway.monitoring.request_latency import RequestLatency

_RESPONSE: Final = struct.Struct(">ii")
_CORRELATION_BYTES: Final = 4
_FLEXIBLE_FROM: Final = {0: 9, 1: 12}


def is_flexible(api_key: int, version: int) -> bool:
    """Return whether a request's header ends with tagged fields."""
    first = _FLEXIBLE_FROM.get(api_key)
    if first is not None:
        return version >= first
    if api_key == API_VERSIONS:
        return 3 <= version <= api_versions.VERSIONS[-1]  # noqa: PLR2004 - KIP-511
    if api_key in APIS:
        return schema_codec.is_flexible(api_key, version)
    return unserved_apis.is_flexible(api_key, version)


class ReplyConnection(Protocol):
    """Port of a reply to its connection; ``connection.KafkaConnection`` implements it."""

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``work(*args)``; an exception closes the connection."""
        ...

    def on_reply(self, reply: "Reply") -> None:
        """Process a complete reply."""
        ...


class Reply:
    """Reply to one request, with its place in the order of the connection's replies."""

    __slots__ = (
        "api_name", "begun_s", "cancel", "connection", "correlation_id", "fetched_bytes", "hurry",
        "is_done", "is_flexible", "latency", "meter", "pieces", "unacknowledged_bytes",
    )  # fmt: skip

    def __init__(
        self,
        connection: ReplyConnection,
        header: RequestHeader,
        api_name: str = "",
        latency: RequestLatency | None = None,
    ) -> None:
        self.connection = connection
        self.correlation_id = header.correlation_id
        self.is_flexible = header.api_key != API_VERSIONS and is_flexible(
            header.api_key, header.version
        )
        self.api_name = api_name
        self.latency = latency  # None for APIs that are not served
        self.begun_s = perf_counter()
        self.is_done = False
        self.pieces: list[Buffer] = []
        self.unacknowledged_bytes = 0
        self.fetched_bytes = 0
        self.hurry: Callable[[], None] | None = None
        self.cancel: Callable[[], None] | None = None
        self.meter: RequestMeter | None = None  # of a client with quotas

    @property
    def throttle_ms(self) -> int:
        """Throttle time of the response; asked for once all of its cost is known."""
        return 0 if self.meter is None else self.meter.settle()

    def __call__(self, body: Buffer | list[Buffer] | None) -> None:
        """Complete the reply with a body or its pieces; None for requests without a response."""
        if body is not None:
            pieces = body if isinstance(body, list) else [body]
            if self.meter is not None:
                meter = self.meter
                place_throttle(meter.api_key, meter.version, pieces, meter.settle())
            tags = b"\x00" if self.is_flexible else b""
            size = _CORRELATION_BYTES + len(tags) + sum(map(len, pieces))
            self.pieces = [_RESPONSE.pack(size, self.correlation_id) + tags, *pieces]
        elif self.meter is not None:
            self.meter.settle(is_answered=False)
        self.is_done = True
        if self.latency is not None:
            self.latency.observe(self.api_name, perf_counter() - self.begun_s)
        self.connection.guard(self.connection.on_reply, self)

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Run a callback; an exception closes this connection and affects no other."""
        if self.meter is None:
            self.connection.guard(work, *args)
            return
        with self.meter:
            self.connection.guard(work, *args)
