"""The adapter, as the HTTP API sees it."""

from typing import Protocol

from adapters.amqp.node import AmqpNode
from adapters.amqp.v091.connection import AmqpConnection
from gateway.config.base import Address


class AmqpEndpoint(Protocol):
    """Port to the adapter; ``AmqpAdapter`` implements it."""

    @property
    def node(self) -> AmqpNode:
        """The node's part of the adapter."""
        ...

    @property
    def amqp_address(self) -> Address:
        """Address at which AMQP is spoken."""
        ...

    @property
    def management_address(self) -> Address:
        """Address at which this API is spoken."""
        ...

    def amqp_connections(self) -> list[AmqpConnection]:
        """Return the connections."""
        ...
