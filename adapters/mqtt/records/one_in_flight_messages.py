"""Messages of clients that wait for each PUBACK, as one append took them."""

from collections.abc import Sequence
from typing import Protocol

from adapters.mqtt.packets.publish_codec import Likeness
from adapters.mqtt.wire import PublishRun


class PublisherConnection(Protocol):
    """The connection of a publishing client."""

    client_id: str


class Publisher(Protocol):
    """A client that publishes one message at a time, all alike."""

    likeness: Likeness

    @property
    def connection(self) -> PublisherConnection:
        """Its connection."""
        ...


class OneInFlightMessages:
    """The messages of one append, for live readers: runs are made when somebody wants them."""

    __slots__ = ("_payloads", "_publishers")

    def __init__(self, publishers: Sequence[Publisher], payloads: Sequence[bytes]) -> None:
        self._publishers = publishers
        self._payloads = payloads

    def runs(self) -> list[PublishRun]:
        """Return a run for each message, in the order of their offsets."""
        return [
            publisher.likeness.message(payload, publisher.connection.client_id)
            for publisher, payload in zip(self._publishers, self._payloads, strict=True)
        ]
