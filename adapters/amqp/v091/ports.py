"""A connection and its channels, as publishing, delivering and the channels themselves see them."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from adapters.amqp.config import AmqpConfig
from adapters.amqp.node import AmqpNode
from adapters.amqp.permissions import Access
from adapters.amqp.v091.confirms import Confirms
from adapters.amqp.v091.methods.model import Method
from adapters.amqp.v091.session import Tuning
from adapters.amqp.v091.sources import Source
from gateway.auth.ports import Principal
from gateway.errors import GatewayError
from gateway.model import Buffer
from gateway.queues.unacked import UnackedRanges


class ConnectionPort(Protocol):
    """The connection of a channel; ``AmqpConnection`` implements it."""

    node: AmqpNode
    config: AmqpConfig
    tuning: Tuning
    principal: Principal
    user_name: str
    access: Access
    client_capabilities: frozenset[str]
    vhost: str
    namespace: str
    holder: int
    is_impersonator: bool
    is_writable: bool
    is_closing: bool
    is_full: bool

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        ...

    def send(self, *data: Buffer) -> None:
        """Queue bytes; see ``gateway.connection``."""
        ...

    def send_method(self, number: int, method: Method) -> None:
        """Send a method on a channel."""
        ...

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Run ``work``; an error closes this connection only."""
        ...

    def pause_if_full(self) -> None:
        """Pause consumers when much is queued."""
        ...

    def note(self, kind: str, message: str) -> None:
        """Count a fault of the peer."""
        ...


class ChannelPort(Protocol):
    """A channel, as publishing and delivering see it."""

    number: int
    confirms: Confirms | None
    prefetch_count: int
    channel_prefetch_count: int
    is_ended: bool
    unacked: UnackedRanges[Source]

    @property
    def reply_address(self) -> str | None:
        """Address at which the channel takes answers; None without a reply consumer."""
        ...

    @property
    def publishes(self) -> Callable[[Any, Any], None] | None:
        """The way of publishing in a transaction; None outside of one."""
        ...

    @property
    def connection(self) -> ConnectionPort:
        """The connection."""
        ...

    def send(self, method: Method) -> None:
        """Send a method."""
        ...

    def next_tags(self, count: int) -> int:
        """Return the first of ``count`` new delivery tags."""
        ...

    def confirm_soon(self) -> None:
        """Send the confirmations that are decided, at the end of this turn of the loop."""
        ...

    def fail_publish(self, error: GatewayError) -> None:
        """End what a publish without confirms came by: it is lost."""
        ...

    def remove_consumer(self, tag: str) -> bool:
        """Remove a consumer that ends by itself; say whether it was there."""
        ...

    def renew_credit(self) -> None:
        """Set the credit of all consumers, after deliveries or settlements."""
        ...

    def wait(self) -> None:
        """Keep further frames until ``go_on``."""
        ...

    def go_on(self) -> None:
        """Take the frames that were kept."""
        ...
