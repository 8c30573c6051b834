"""The protocol ``lines``: what the registry loads."""

from functools import partial
from typing import Any

from gateway.coalescer import Coalescer
from gateway.contributions import Contribution
from gateway.kernel import Endpoint, Kernel
from gateway.listener import Listener
from headgate_lines.config import LinesConfig
from headgate_lines.connection import LineConnection
from headgate_lines.positions import STREAM, ReaderPositions


class LinesAdapter:
    """Starts and stops the listener; each connection does the rest."""

    PLUGIN_API = 1
    Config = LinesConfig
    CONTRIBUTION = Contribution(internal_topics=(STREAM,))

    def __init__(self, config: LinesConfig, kernel: Kernel) -> None:
        self._kernel = kernel
        self._readers_max = config.readers_max
        self._positions: ReaderPositions
        self._coalescer: Coalescer
        self._listener = Listener(
            "lines",
            config,
            partial(LineConnection, self, kernel, config),
            admission=kernel.admission,
        )

    @property
    def positions(self) -> ReaderPositions:
        """Positions of named readers; there once the adapter has started."""
        return self._positions

    @property
    def coalescer(self) -> Coalescer:
        """Appends of delayed messages, shared by all connections."""
        return self._coalescer

    async def start(self) -> None:
        """Load the positions, then listen. Errors: ``OSError`` when the address is taken."""
        kernel = self._kernel
        self._positions = await ReaderPositions.open(
            kernel.broker, kernel.topics, kernel.clock, readers_max=self._readers_max
        )
        self._coalescer = Coalescer(kernel.broker)
        await self._listener.start()

    async def drain(self, seconds_max: float) -> None:
        """Take no new connection, and answer what was asked."""
        await self._listener.drain(seconds_max)

    async def stop(self) -> None:
        """Close every connection."""
        await self._listener.stop()
        self._positions.close()

    @property
    def listeners(self) -> list[Listener]:
        """The listener, for metrics and for certificates read anew."""
        return [self._listener]

    def endpoints(self) -> list[Endpoint]:
        """Return where it listens, and how to try it."""
        host, port = self._listener.host, self._listener.port
        return [Endpoint("lines", f"tcp://{host}:{port}", f"echo PING | nc {host} {port}")]

    def connections(self) -> list[dict[str, Any]]:
        """Return one table per connection."""
        return [connection.describe() for connection in self._listener.connections]
