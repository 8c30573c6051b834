"""Ports of the way in to the connection of a publishing client."""

from collections.abc import Callable
from typing import Any, Protocol

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.errors import ReasonCode
from adapters.mqtt.ports import SessionConnection, SessionPort
from gateway.auth.ports import Principal
from gateway.connection_listener import ConnectionListener


class WaitingPublisher(Protocol):
    """A client's one packet that is on its way; see ``one_in_flight_publisher``."""

    data: bytes | None


class PublishingConnection(SessionConnection, Protocol):
    """The connection of a publishing client; see ``connection.connection``."""

    client_id: str
    principal: Principal
    listener: ConnectionListener[Any]
    is_leaving: bool
    is_lost: bool

    @property
    def config(self) -> MqttConfig:
        """The adapter's config."""
        ...

    @property
    def session(self) -> SessionPort | None:
        """The client's session, once there is one."""
        ...

    @property
    def publisher(self) -> WaitingPublisher | None:
        """The path of a client that waits for each PUBACK, while it is taken."""
        ...

    @property
    def may_send_reasons(self) -> bool:
        """Whether reason strings may go with any packet (MQTT-3.1.2-29)."""
        ...

    def hold_reads(self, reason: str) -> None:
        """Read nothing more until the reason is released."""
        ...

    def release_reads(self, reason: str) -> None:
        """Read on, unless there are other reasons not to."""
        ...

    def wait(self) -> None:
        """Serve nothing more until told to go on."""
        ...

    def guard(self, call: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - any handler
        """Call; an error ends the connection."""
        ...

    def note(self, kind: str, detail: str) -> None:
        """Log and count a fault of the peer."""
        ...

    def hurry(self) -> None:
        """Close as soon as nothing is on its way."""
        ...

    def disconnect(self, code: ReasonCode, message: str = "") -> None:
        """Close, in 5.0 with a DISCONNECT that has the reason."""
        ...

    def close(self) -> None:
        """Close now."""
        ...
