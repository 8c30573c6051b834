"""The AMQP endpoint: one listener."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from adapters.amqp import streams
from adapters.amqp.config import AmqpConfig
from adapters.amqp.contribution import CONTRIBUTION
from adapters.amqp.management.server import ManagementServer
from adapters.amqp.node import AmqpNode
from adapters.amqp.v091.connection import AmqpConnection
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.handlers import CONNECTION_HANDLERS, HANDLERS
from adapters.amqp.v091.session import State
from gateway.admin_views import AdminAction, View
from gateway.budget import Budget
from gateway.config.base import Address
from gateway.kernel import Endpoint, Kernel
from gateway.listener import Listener
from gateway.monitoring.request_latency import RequestLatency


class AmqpAdapter:
    """AMQP 0-9-1 on one listener."""

    CONTRIBUTION: ClassVar = replace(
        CONTRIBUTION, topic_configs=streams.CONTRIBUTION.topic_configs
    )
    Config: ClassVar = AmqpConfig

    def __init__(self, config: AmqpConfig, kernel: Kernel) -> None:
        self.config = config
        self.kernel = kernel
        self.node = AmqpNode(config, kernel)
        self._listener: Listener | None = None
        self._management: ManagementServer | None = None

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """Budgets that connections share, for metrics."""
        return (self.node.body_budget,)

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
        await self.node.load()
        await self.node.delete_left_over()
        if self.config.definitions is not None:
            from adapters.amqp.management.definitions_file import import_file

            await import_file(self.node, self.config.definitions)
        self._listener = Listener(
            "amqp",
            self.config,
            lambda listener: AmqpConnection(listener, self.node, CONNECTION_HANDLERS, HANDLERS),
            admission=self.kernel.admission,
        )
        await self._listener.start()
        self.kernel.authenticator.on_removed.append(self._disconnect)
        management = self.config.management
        if management is not None and management.enabled:
            server = ManagementServer(management, self)
            try:
                await server.start()
            except OSError:
                await self.stop()
                raise
            self._management = server

    def _disconnect(self, name: str) -> None:
        """Close the connections of a principal who may not be connected any more."""
        for connection in self.amqp_connections():
            if connection.state is State.OPEN and connection.principal.name == name:
                text = f"user '{connection.user_name}' is deleted"
                fault = AmqpFault(ReplyCode.CONNECTION_FORCED, text)
                connection.guard(connection.end, fault)

    @property
    def amqp_address(self) -> Address:
        """Address at which AMQP is spoken."""
        return Address(self.listener.host, self.listener.port)

    @property
    def management_address(self) -> Address:
        """Address of the HTTP API, once started."""
        assert self._management is not None
        return self._management.address

    def amqp_connections(self) -> list[AmqpConnection]:
        """Return the connections."""
        return [one for one in self.listener.connections if isinstance(one, AmqpConnection)]

    async def drain(self, seconds_max: float) -> None:
        """Stop accepting; confirm what was published, then close every connection."""
        await self.listener.drain(seconds_max)

    async def stop(self) -> None:
        """Close every connection; changes of queues that have begun are completed."""
        if self._management is not None:
            await self._management.stop()
        if self._listener is not None:
            await self._listener.stop()
        self.node.disk_alarm.close()
        await self.node.changes.close()
        await self.node.documents.close()

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoint that ``headgate serve`` prints when it is ready."""
        scheme = "amqps" if self.config.tls_cert is not None else "amqp"
        url = f"{scheme}://{Address(self.listener.host, self.listener.port)}"
        try_it = f"amqp-publish --url={url} -r greetings -b hello"
        found = [Endpoint("amqp", url, try_it)]
        if self._management is not None:
            url = self._management.url
            try_it = f"curl -u guest:guest {url}/api/overview"
            found.append(Endpoint("rabbitmq-api", url, try_it))
        return found

    def request_counts(self) -> list[tuple[str, int]]:
        """Return the count of requests by method."""
        return [(name, count) for name, count in self.node.requests.items() if count]

    @property
    def latency(self) -> RequestLatency:
        """See ``MeasuresLatency``: from basic.publish until the message is kept, of a sample."""
        return self.node.latency

    def admin_views(self) -> Mapping[str, View]:
        """See ``gateway.admin_views``; imported when the console first asks."""
        from adapters.amqp.admin.views import views

        return views(self)

    def admin_actions(self) -> Mapping[str, AdminAction]:
        """See ``gateway.admin_views``."""
        from adapters.amqp.admin.views import actions

        return actions(self)

    def connections(self) -> list[dict[str, Any]]:
        """Return the connections for ``headgate clients``."""
        return [connection.describe() for connection in self.listener.connections]
