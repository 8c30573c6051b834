"""Ports of a session to its surroundings; see ``session_context``."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from adapters.mqtt.inflight.outbox import Settled
from adapters.mqtt.ports import SessionConnection, SessionPort
from adapters.mqtt.retained.scans import RetainedScans
from adapters.mqtt.sessions.journal import JournalServices
from adapters.mqtt.subscriptions.subscription import Subscription
from gateway.errors import StorageUnavailable


class SettledLanes(Protocol):
    """The messages of shared subscriptions that sessions have."""

    def new_holder(self) -> int:
        """Return the number of a new session's messages."""
        ...

    def settle(self, settled: Iterable[Settled]) -> None:
        """Note messages that sessions have settled."""
        ...


class SubscribingPort(Protocol):
    """Adding and removing subscriptions; see ``subscribing``."""

    def subscribe(
        self,
        session: SessionPort,
        subscriptions: Sequence[Subscription],
        on_done: Callable[[StorageUnavailable | None], None],
    ) -> None:
        """Add subscriptions."""
        ...

    def unsubscribe(
        self,
        session: SessionPort,
        filters: Sequence[str],
        on_done: Callable[[StorageUnavailable | None], None],
    ) -> list[bool]:
        """Remove subscriptions; return which of the filters had one."""
        ...


class SessionServices(JournalServices, Protocol):
    """Services that a session uses; see ``session_context``."""

    retained_scans: RetainedScans

    @property
    def lanes(self) -> SettledLanes:
        """The messages of shared subscriptions that sessions have."""
        ...

    @property
    def subscribing(self) -> SubscribingPort:
        """Port that adds and removes subscriptions."""
        ...

    def attach(self, session: SessionPort, connection: SessionConnection) -> None:
        """Begin to deliver."""
        ...
