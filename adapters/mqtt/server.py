"""The MQTT endpoint: its listeners (TCP, TLS, WebSocket) over one node."""

import asyncio
import importlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

from adapters.mqtt.config import MqttConfig, WebSocketConfig
from adapters.mqtt.connection.connack import ConnectRate
from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.contribution import CONTRIBUTION
from adapters.mqtt.errors import ReasonCode
from adapters.mqtt.handlers import TABLES
from adapters.mqtt.metrics import register_metrics
from adapters.mqtt.node import Node, open_node
from adapters.mqtt.session_service import SERVICE, SessionService
from gateway.admin_views import Action, BrowserEndpoint, View
from gateway.config.base import Address, ListenerConfig
from gateway.connection import Connection
from gateway.kernel import Endpoint, Kernel
from gateway.listener import Listener
from gateway.metrics import Metrics
from gateway.monitoring.request_latency import RequestLatency

_WEBSOCKET: Final = "adapters.mqtt.connection.websocket"


class MqttAdapter:
    """MQTT 3.1, 3.1.1 and 5.0 on up to three listeners."""

    CONTRIBUTION: ClassVar = CONTRIBUTION
    Config: ClassVar = MqttConfig
    handlers: ClassVar = TABLES

    def __init__(self, config: MqttConfig, kernel: Kernel) -> None:
        self.config = config
        self.kernel = kernel
        self.is_draining = False
        self.connect_rate = ConnectRate(config.connects_per_s_max)
        self.listeners: list[Listener] = []
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        """Parts that all connections share, once started."""
        assert self._node is not None
        return self._node

    @property
    def listener(self) -> Listener:
        """The plain listener, once started."""
        return self.listeners[0]

    async def start(self) -> None:
        """Load sessions, then listen. Error: ``OSError`` when an address cannot be had."""
        self._node = await open_node(self.config, self.kernel)
        self.kernel.broker.shard_calls.register(SERVICE, SessionService(self._node))
        await self._listen("mqtt", self.config, self._make_plain)
        if self.config.tls is not None:
            await self._listen("mqtt-tls", self.config.tls, self._make_plain)
        if self.config.websocket is not None and self.config.websocket.enabled:
            await self._listen("mqtt-ws", self.config.websocket, self._make_websocket)
        self.node.sys.start(self.listeners)
        self.kernel.authenticator.on_removed.append(self._disconnect)

    def _disconnect(self, name: str) -> None:
        """Close the connections of a principal who may not be connected any more."""
        for listener in self.listeners:
            for connection in tuple(listener.connections):
                if (
                    isinstance(connection, MqttConnection)
                    and connection.access is not None
                    and connection.principal.name == name
                ):
                    reason = ReasonCode.NOT_AUTHORIZED, "the user may not be connected any more"
                    connection.guard(connection.disconnect, *reason)

    async def _listen(
        self, name: str, config: ListenerConfig, make: Callable[[Listener], Connection]
    ) -> None:
        listener = Listener(name, config, make, admission=self.kernel.admission)
        await listener.start()
        self.listeners.append(listener)

    def _make_plain(self, listener: Listener) -> Connection:
        return MqttConnection(listener, self)

    def _make_websocket(self, listener: Listener) -> Connection:
        """Make a connection; its library is imported when the first one comes."""
        module = importlib.import_module(_WEBSOCKET)
        connection: Connection = module.WebSocketConnection(listener, self)
        return connection

    async def drain(self, seconds_max: float) -> None:
        """Accept nothing new; acknowledge what was published, and send the clients away."""
        self.is_draining = True
        await asyncio.gather(*(listener.drain(seconds_max) for listener in self.listeners))

    async def stop(self) -> None:
        """Close every connection, then write down where the sessions stand."""
        for listener in self.listeners:
            await listener.stop()
        if self._node is not None:
            self.kernel.broker.shard_calls.unregister(SERVICE)
            self._node.stop()

    def endpoints(self) -> list[Endpoint]:
        """Return what ``headgate serve`` prints when it is ready."""
        return [self._endpoint(listener) for listener in self.listeners]

    def _endpoint(self, listener: Listener) -> Endpoint:
        address = Address(listener.host, listener.port)
        if isinstance(listener.config, WebSocketConfig):
            url = f"{_scheme(listener.config)}://{address}{listener.config.path}"
            return Endpoint(listener.name, url, f"mqtt.connect('{url}')  // mqtt.js")
        client = f"-h {address.host} -p {address.port}"
        try_it = f"mosquitto_pub {client} -t greetings -m hello"
        return Endpoint(listener.name, str(address), try_it)

    def request_counts(self) -> list[tuple[str, int]]:
        """Return how many packets came, by kind."""
        counters = self.node.counters
        return [
            ("PUBLISH", counters.publish_received),
            ("CONNECT", counters.connects),
        ]

    @property
    def latency(self) -> RequestLatency:
        """See ``MeasuresLatency``: from a PUBLISH to its acknowledgement, of a sample."""
        return self.node.counters.latency

    def register_metrics(self, metrics: Metrics) -> None:
        """Register what only MQTT counts."""
        register_metrics(metrics, self.node)

    def admin_views(self) -> Mapping[str, View]:
        """See ``gateway.admin_views``; imported when the console first asks."""
        from adapters.mqtt.admin_views import views

        return views(self.node)

    def admin_actions(self) -> Mapping[str, Action]:
        """See ``gateway.admin_views``."""
        from adapters.mqtt.admin_views import actions

        return actions(self.node, self.kernel.broker.shard_calls)

    def browser_endpoint(self) -> BrowserEndpoint | None:
        """See ``gateway.admin_views.HasBrowserEndpoint``: the WebSocket listener."""
        for listener in self.listeners:
            if isinstance(listener.config, WebSocketConfig):
                config = listener.config
                return BrowserEndpoint(_scheme(config), listener.port, config.path)
        return None

    def connections(self) -> list[dict[str, Any]]:
        """Return what ``headgate clients`` shows."""
        return [connection.describe() for connection in self._all_connections()]

    def _all_connections(self) -> Iterator[Connection]:
        return itertools.chain.from_iterable(
            listener.connections for listener in self.listeners
        )


def _scheme(config: WebSocketConfig) -> str:
    return "ws" if config.tls_cert is None else "wss"
