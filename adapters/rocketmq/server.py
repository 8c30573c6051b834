"""The RocketMQ endpoint: a listener of the broker, and one of the name server."""

from functools import partial
from typing import Any, ClassVar

from adapters.rocketmq.config import RemotingListener, RocketMqConfig
from adapters.rocketmq.connection import RemotingConnection
from adapters.rocketmq.handlers import BROKER_HANDLERS, NAMESERVER_HANDLERS
from adapters.rocketmq.node import RocketMqNode
from adapters.rocketmq.request import Handlers
from gateway.budget import Budget
from gateway.config.base import Address
from gateway.connection import Connection
from gateway.kernel import Endpoint, Kernel
from gateway.listener import Listener
from gateway.monitoring.request_latency import RequestLatency


class RocketMqAdapter:
    """RocketMQ's remoting protocol on two listeners."""

    Config: ClassVar = RocketMqConfig

    def __init__(self, config: RocketMqConfig, kernel: Kernel) -> None:
        self.config = config
        self.kernel = kernel
        self.node = RocketMqNode(config, kernel)
        self.listeners: list[Listener] = []
        """Listeners that have started, the broker's first."""

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """Budgets that connections share, for metrics."""
        return self.node.request_budget, self.node.pull_budget

    @property
    def broker_address(self) -> Address:
        """Address of the broker, once started."""
        return Address(self.listeners[0].host, self.listeners[0].port)

    @property
    def nameserver_address(self) -> Address:
        """Address of the name server, once started."""
        return Address(self.listeners[1].host, self.listeners[1].port)

    async def start(self) -> None:
        """Listen. Errors: ``OSError`` when an address is taken, ``StorageUnavailable``."""
        await self.node.load()
        await self._listen("rocketmq", self.config, BROKER_HANDLERS)
        self.node.host, self.node.port = self.broker_address
        if self.config.nameserver.enabled:
            try:
                await self._listen(
                    "rocketmq-nameserver", self.config.nameserver, NAMESERVER_HANDLERS
                )
            except OSError:
                await self.stop()
                raise
        self.kernel.authenticator.on_removed.append(self._disconnect)

    async def _listen(self, name: str, config: RemotingListener, handlers: Handlers) -> None:
        listener = Listener(
            name, config, partial(self._connect, handlers), admission=self.kernel.admission
        )
        await listener.start()
        self.listeners.append(listener)

    def _connect(self, handlers: Handlers, listener: Listener) -> RemotingConnection:
        return RemotingConnection(listener, self.node, handlers)

    def _all_connections(self) -> list[Connection]:
        return [one for listener in self.listeners for one in listener.connections]

    def _disconnect(self, name: str) -> None:
        """Close the connections of a principal who may not be connected any more."""
        for connection in self._all_connections():
            if isinstance(connection, RemotingConnection) and connection.user == name:
                connection.close()

    async def drain(self, seconds_max: float) -> None:
        """Accept no new connections; wait for the responses to pending requests."""
        for listener in self.listeners:
            await listener.drain(seconds_max)

    async def stop(self) -> None:
        """Close every connection."""
        for listener in self.listeners:
            await listener.stop()
        await self.node.close()

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints that ``headgate serve`` prints when it is ready."""
        found = []
        for listener in self.listeners:
            address = Address(listener.host, listener.port)
            try_it = f"mqadmin topicRoute -n {address} -t TBW102"
            found.append(Endpoint(listener.name, str(address), try_it))
        return found

    def request_counts(self) -> list[tuple[str, int]]:
        """Return the count of requests by name; one count has all that are not served."""
        return [
            (code if isinstance(code, str) else self.node.name_of(code), count)
            for code, count in self.node.requests.items()
        ]

    @property
    def latency(self) -> RequestLatency:
        """See ``MeasuresLatency``."""
        return self.node.latency

    def connections(self) -> list[dict[str, Any]]:
        """Return the connections for ``headgate clients``."""
        return [connection.describe() for connection in self._all_connections()]
