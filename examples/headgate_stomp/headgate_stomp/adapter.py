"""The protocol ``stomp``: what the registry loads."""

from functools import partial
from typing import Any

from gateway.budget import Budget
from gateway.contributions import Contribution
from gateway.kernel import Endpoint, Kernel
from gateway.listener import Listener
from headgate_stomp.commands import Commands
from headgate_stomp.config import StompConfig
from headgate_stomp.connection import StompConnection
from headgate_stomp.node import StompNode
from headgate_stomp.positions import STREAM


class StompAdapter:
    """Starts and stops the listener; each connection does the rest."""

    PLUGIN_API = 1
    Config = StompConfig
    CONTRIBUTION = Contribution(internal_topics=(STREAM,))

    def __init__(self, config: StompConfig, kernel: Kernel) -> None:
        self._node = StompNode(config, kernel)
        self._listener = Listener(
            "stomp",
            config,
            partial(StompConnection, self._node, Commands),
            admission=kernel.admission,
        )

    async def start(self) -> None:
        """Load the positions, then listen. Errors: ``OSError`` when the address is taken."""
        await self._node.start()
        await self._listener.start()

    async def drain(self, seconds_max: float) -> None:
        """Take no new connection, and answer what was asked."""
        await self._listener.drain(seconds_max)

    async def stop(self) -> None:
        """Close every connection, and delete the queues of their sessions."""
        await self._listener.stop()
        await self._node.stop()

    @property
    def listeners(self) -> list[Listener]:
        """The listener, for metrics and for certificates read anew."""
        return [self._listener]

    @property
    def budgets(self) -> list[Budget]:
        """The budget of what connections keep, for metrics."""
        return [self._node.budget]

    def endpoints(self) -> list[Endpoint]:
        """Return where it listens, and how to try it."""
        host, port = self._listener.host, self._listener.port
        try_it = f"printf 'CONNECT\\n\\n\\0' | nc {host} {port}"
        return [Endpoint("stomp", f"tcp://{host}:{port}", try_it)]

    def connections(self) -> list[dict[str, Any]]:
        """Return one table per connection."""
        return [connection.describe() for connection in self._listener.connections]
