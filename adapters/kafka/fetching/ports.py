"""Ports of a fetch: the reply it completes, and the wait for new batches."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from adapters.kafka.codec import TopicRef
from adapters.kafka.codecs.fetch_codec import FetchPartition
from gateway.model import Buffer


class FetchWait(Protocol):
    """Wait for batches; it ends with its callback, or when it is cancelled."""

    def cancel(self) -> None:
        """Stop waiting."""


Topics = Sequence[tuple[TopicRef, Sequence[FetchPartition]]]


class FetchMeter(Protocol):
    """Quotas of a fetch; see ``quotas.request_meter``."""

    def fetch_bytes_max(self, bytes_max: int) -> int:
        """Return the bytes that the response may have."""
        ...

    def charge_fetched(self, size_bytes: int) -> None:
        """Charge records that are sent in any case."""
        ...

    def throttles_fetch(self, size_bytes: int) -> bool:
        """Charge the records, and return whether the response goes without them."""
        ...


class FetchReply(Protocol):
    """Reply that the connection passes in; call it with the pieces of the response.

    The fetch sets ``hurry`` and ``cancel``, which the connection calls when the node drains and
    when the client has gone. ``fetched_bytes`` are the bytes that the response has taken of the
    fetch budget; the connection gives them back. ``guard`` runs callbacks.
    """

    hurry: Callable[[], None] | None
    cancel: Callable[[], None] | None
    fetched_bytes: int

    @property
    def meter(self) -> FetchMeter | None:
        """Quotas of the fetch, None without any."""

    def __call__(self, body: list[Buffer]) -> None:
        """Send the response; called once."""

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``work(*args)``; an exception closes the connection."""
