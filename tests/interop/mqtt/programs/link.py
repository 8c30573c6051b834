"""The methods that the scenario needs of a Python client: one connection, a few verbs."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

ANSWER_S_MAX: Final = 90.0
V3_1: Final = 3
V3_1_1: Final = 4
V5: Final = 5


@dataclass(frozen=True)
class Properties:
    """Properties of a 5.0 message; times are seconds."""

    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    message_expiry_interval: int | None = None
    user: tuple[tuple[str, str], ...] = ()
    subscription_identifiers: tuple[int, ...] = ()
    payload_format: int | None = None


@dataclass(frozen=True)
class Message:
    """A message as a client gives or sees it."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = Properties()


@dataclass(frozen=True)
class Endpoint:
    """Address and login of a client's connection."""

    port: int
    version: int
    is_websocket: bool = False
    path: str = "/mqtt"


@dataclass
class Inbox:
    """Messages as they come, awaited one by one."""

    queue: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)

    async def next(self, *, within_s: float = ANSWER_S_MAX) -> Message:
        """Return the next message."""
        async with asyncio.timeout(within_s):
            return await self.queue.get()


class Link(Protocol):
    """One client; ``open`` and ``close`` may be called in turns."""

    inbox: Inbox

    async def open(self, *, clean: bool, will: Message | None = None) -> bool | None:
        """Connect; the session is kept unless clean. Session present, None when it is not told."""

    async def subscribe(self, topic_filter: str, qos: int, *, identifier: int = 0) -> None:
        """Subscribe and wait for the acknowledgement."""

    async def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribe and wait for the acknowledgement."""

    async def publish(self, message: Message) -> None:
        """Publish; at QoS 1 and 2 return once it is acknowledged."""

    async def close(self) -> None:
        """Disconnect in order."""

    async def drop(self) -> None:
        """Break the connection without a word."""


Maker = Any  # a class whose instances are Links: (endpoint, client_id)
