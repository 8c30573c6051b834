"""The AMQP endpoint: one listener."""

from typing import Any, ClassVar

from adapters.amqp.config import AmqpConfig
from adapters.amqp.node import AmqpNode
from adapters.amqp.streams import CONTRIBUTION
from adapters.amqp.v091.connection import AmqpConnection
from adapters.amqp.v091.handlers import CONNECTION_HANDLERS, HANDLERS
from gateway.budget import Budget
from gateway.config.base import Address
from gateway.kernel import Endpoint, Kernel
from gateway.listener import Listener


class AmqpAdapter:
    """AMQP 0-9-1 on one listener."""

    Config: ClassVar = AmqpConfig
    CONTRIBUTION: ClassVar = CONTRIBUTION

    def __init__(self, config: AmqpConfig, kernel: Kernel) -> None:
        self.config = config
        self.kernel = kernel
        self._node = AmqpNode(config, kernel)
        self._listener: Listener | None = None

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """Budgets that connections share, for metrics."""
        return (self._node.body_budget,)

    @property
    def listeners(self) -> list[Listener]:
        """The listeners that have started."""
        return [] if self._listener is None else [self._listener]

    @property
    def listener(self) -> Listener:
        """The listener, once started."""
        assert self._listener is not None
        return self._listener

    async def start(self) -> None:
        """Listen. Error: ``OSError`` when the address is taken."""
        await self._node.delete_left_over()
        self._listener = Listener(
            "amqp",
            self.config,
            lambda listener: AmqpConnection(
                listener, self._node, CONNECTION_HANDLERS, HANDLERS
            ),
            admission=self.kernel.admission,
        )
        await self._listener.start()

    async def drain(self, seconds_max: float) -> None:
        """Stop accepting; confirm what was published, then close every connection."""
        await self.listener.drain(seconds_max)

    async def stop(self) -> None:
        """Close every connection; changes of queues that have begun are completed."""
        if self._listener is not None:
            await self._listener.stop()
        self._node.disk_alarm.close()
        await self._node.changes.close()

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoint that ``headgate serve`` prints when it is ready."""
        scheme = "amqps" if self.config.tls_cert is not None else "amqp"
        url = f"{scheme}://{Address(self.listener.host, self.listener.port)}"
        try_it = f"amqp-publish --url={url} -r greetings -b hello"
        return [Endpoint("amqp", url, try_it)]

    def request_counts(self) -> list[tuple[str, int]]:
        """Return the count of requests by method."""
        return [(name, count) for name, count in self._node.requests.items() if count]

    def connections(self) -> list[dict[str, Any]]:
        """Return the connections for ``headgate clients``."""
        return [connection.describe() for connection in self.listener.connections]
