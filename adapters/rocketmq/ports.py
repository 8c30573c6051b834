"""Port of the node and of handlers to a client's connection."""

from collections.abc import Callable
from typing import Any, Protocol

from adapters.rocketmq.remoting.wire import Command
from gateway.config.base import Address


class Client(Protocol):
    """Connection of a client; ``connection.RemotingConnection`` implements it.

    ``client_id`` is that of its last heartbeat.
    """

    client_id: str

    @property
    def advertised(self) -> Address:
        """Address that routes and message ids name to this client."""
        ...

    @property
    def peer_address(self) -> str:
        """Address and port of the client, as text."""
        ...

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``work(*args)``; an exception closes the connection."""
        ...

    def notify(self, command: Command) -> None:
        """Send a oneway request to the client."""
        ...
