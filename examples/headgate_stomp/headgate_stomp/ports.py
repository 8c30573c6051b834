"""Ports between a connection and its subscriptions."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from gateway.model import Buffer
from gateway.queues.model import Outcome
from gateway.queues.unacked import Unacked
from gateway.storage import OnDone
from headgate_stomp.errors import StompFault
from headgate_stomp.messages import MessageEncoder
from headgate_stomp.node import StompNode


class AckMode(Enum):
    """Way in which a client acknowledges."""

    AUTO = "auto"
    CLIENT = "client"  # all messages of the subscription up to one
    INDIVIDUAL = "client-individual"


class Connection(Protocol):
    """The connection, as its subscriptions use it."""

    node: StompNode
    holder: int
    is_full: bool
    """Whether the client reads slower than it is sent to."""

    def send(self, *data: Buffer) -> None:
        """Queue bytes; see ``gateway.connection.Connection``."""
        ...

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Run ``work``; an error closes this connection only."""
        ...

    def pause_if_full(self) -> None:
        """Pause all subscriptions when much is queued."""
        ...

    def end_with(self, fault: StompFault, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Send ERROR and close."""
        ...


class Asked(NamedTuple):
    """A subscription as the client has asked for it."""

    id: str
    number: int
    mode: AckMode
    credit: int
    encoder: MessageEncoder


class Subscription(Protocol):
    """One subscription, to a queue or a topic."""

    id: str
    mode: AckMode

    def take(self, tag: int) -> list[Unacked[Any]] | None:
        """Remove what ACK or NACK of a tag says from the messages in flight.

        None for a tag that is not in flight.
        """
        ...

    def put_back(self, unacked: list[Unacked[Any]]) -> None:
        """Add messages that were taken, and are in flight after all."""
        ...

    def settle(
        self, unacked: Sequence[Unacked[Any]], outcome: Outcome, on_done: OnDone
    ) -> None:
        """Settle messages that were taken; ``on_done`` once that is durable."""
        ...

    def pause(self) -> None:
        """Deliver nothing: the socket is full."""
        ...

    def resume(self) -> None:
        """Deliver again."""
        ...

    def close(self) -> None:
        """Deliver nothing more, and give back what is in flight."""
        ...
