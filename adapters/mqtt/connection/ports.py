"""Port of a connection to the adapter that made it."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.connection.connack import ConnectRate
from adapters.mqtt.node import Node
from adapters.mqtt.session import State

Handler = Callable[[Any, Any], None]


class ConnectionServer(Protocol):
    """The adapter, as its connections see it; see ``server.MqttAdapter``."""

    config: MqttConfig
    connect_rate: ConnectRate
    is_draining: bool

    @property
    def node(self) -> Node:
        """The parts that all connections share."""
        ...

    @property
    def handlers(self) -> Mapping[State, Mapping[type[Any], Handler]]:
        """The handlers of packets that may come in a state."""
        ...
