"""Takers of a queue's messages, receives and consumers, as messages are taken for them."""

from enum import Enum
from typing import Protocol

from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.selecting import Selection


class Found(Enum):
    """Result of serving a receive."""

    SOMETHING = "it is answered, or is being read for"
    NOTHING = "nothing is there"
    PERHAPS = "many in front were dead or have expired: look again when others had their turn"


class Taker(Protocol):
    """A receive or a consumer, as messages are taken for it."""

    messages_max: int
    bytes_max: int
    lease_ms: int
    holder: int
    ticket: int
    is_polling: bool  # takes what is there now, without waiting

    @property
    def selection(self) -> Selection | None:
        """Its selection of messages; None for all."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether it was answered for good, or cancelled."""
        ...

    def finish(self, ranges: list[DeliveredRange]) -> None:
        """Deliver messages; none, when they could not be read."""
        ...

    def fail(self) -> None:
        """End after an internal error."""
        ...


class Dealer(Protocol):
    """Registered consumers; see ``gateway.queues.consumers``."""

    def deal(self) -> None:
        """Serve consumers and waiting receives for one turn."""
        ...

    def freed(self) -> None:
        """Let consumers look again that have seen a part only: some messages were settled."""
        ...

    def woke(self) -> None:
        """Let consumers look again that have found nothing they select."""
        ...
