"""The Kafka adapter: its listeners, its handlers, and the node that handlers use."""

import asyncio
import os
import sys
from collections import Counter
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

from adapters.kafka import handlers
from adapters.kafka.codec import API_VERSIONS
from adapters.kafka.config import KafkaConfig, KafkaListener
from adapters.kafka.connection import KafkaConnection
from adapters.kafka.handlers import APIS, Api
from adapters.kafka.node.fetch_pacing import FetchPacing
from adapters.kafka.node.fetch_session_cache import FetchSessionCache
from adapters.kafka.node.metadata_cache import MetadataCache
from adapters.kafka.node.node import Node
from adapters.kafka.node.share_sessions import ShareBounds, ShareSessionCache, end_session
from adapters.kafka.session import Session
from gateway.auth.certificates import certificate_user
from gateway.auth.login_throttle import Peer
from gateway.budget import Budget
from gateway.config.base import Address, parse_address
from gateway.connection import Connection
from gateway.connection_listener import ConnectionListener
from gateway.errors import Unauthenticated
from gateway.kernel import Endpoint, Kernel
from gateway.listener import Listener
from gateway.metadata.store import ProducerIds
from gateway.monitoring.request_latency import RequestLatency
from gateway.shares.manager import ShareGroups


class KafkaAdapter:
    """The Kafka protocol on one or more listeners."""

    Config: ClassVar = KafkaConfig

    def __init__(self, config: KafkaConfig, kernel: Kernel) -> None:
        self.config = config
        self.handlers: dict[int, ModuleType] = {}
        self.requests: Counter[int] = Counter()
        self._admission = kernel.admission
        shares = ShareGroups(
            kernel.groups,
            kernel.cursors,
            kernel.queues,
            kernel.topics,
            kernel.broker,
            kernel.clock,
            kernel.settings.groups,
        )
        self.node = Node(
            broker=kernel.broker,
            topics=kernel.topics,
            groups=kernel.groups,
            cursors=kernel.cursors,
            transactions=kernel.transactions,
            authenticator=kernel.authenticator,
            authorizer=kernel.authorizer,
            placement=kernel.placement,
            metadata=kernel.metadata,
            clock=kernel.clock,
            settings=kernel.settings,
            config=config,
            fetch_pacing=FetchPacing(kernel.broker.append_queue),
            fetch_budget=Budget("fetch", kernel.settings.broker.fetch_bytes_budget),
            request_budget=Budget(
                "request", config.request_bytes_budget, stall_s_max=config.request_stall_s_max
            ),
            producer_ids=ProducerIds(kernel.metadata),
            metadata_cache=MetadataCache(kernel.placement),
            fetch_sessions=FetchSessionCache(
                kernel.clock,
                sessions_max=config.fetch_sessions_max,
                partitions_max=config.fetch_session_partitions_max,
            ),
            quotas=kernel.quotas,
            shares=shares,
            share_sessions=ShareSessionCache(
                ShareBounds(
                    config.share_sessions_max,
                    config.share_session_partitions_max,
                    config.connection_share_sessions_max,
                    config.connection_share_partitions_max,
                ),
                partial(end_session, shares, kernel.topics),
            ),
            audit=kernel.audit,
            logins=kernel.logins,
            tokens=kernel.tokens,
        )
        self.listeners: list[Listener] = []
        """Listeners that have started."""

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """Budgets shared by all connections, for metrics."""
        return self.node.fetch_budget, self.node.request_budget

    def load(self, api: Api) -> ModuleType:
        """Import the API's handler module and return it; safe in any thread."""
        module = self.handlers[api.key] = handlers.load(api)
        return module

    @property
    def listener(self) -> Listener:
        """The first started listener."""
        return self.listeners[0]

    def new_session(self, connection: KafkaConnection) -> Session:
        """Return a session by the settings of the connection's listener."""
        listener = connection.listener
        config = listener.config
        assert isinstance(config, KafkaListener)
        user = certificate_user(connection.transport, config)
        if user is None and config.authentication == "certificate":
            error = Unauthenticated("the certificate maps to no user")
            self.node.logins.refuse(Peer("kafka", connection.peer_host), "", error)
        return Session(
            self.node,
            peer_host=connection.peer_host,
            advertised=_advertised(listener, config, connection.transport),
            listener=config,
            certificate_user=user,
        )

    async def start(self) -> None:
        """Start listening. Error: ``OSError`` when an address is not available."""
        for key in (0, 1, API_VERSIONS):
            self.load(APIS[key])
        if self.config.listens_itself:
            await self._listen("kafka", self.config)
        for config in self.config.listeners:
            await self._listen(f"kafka-{config.name}", config)
        self.node.authenticator.on_removed.append(self._disconnect)

    async def _listen(self, name: str, config: KafkaListener) -> None:
        listener = Listener(
            name,
            config,
            lambda made_by: KafkaConnection(made_by, self),
            admission=self._admission,
        )
        await listener.start()
        self.listeners.append(listener)

    def _all_connections(self) -> list[Connection]:
        return [one for listener in self.listeners for one in listener.connections]

    def _disconnect(self, name: str) -> None:
        """Close the connections of a removed user."""
        for connection in self._all_connections():
            if isinstance(connection, KafkaConnection) and connection.user == name:
                connection.close()

    async def drain(self, seconds_max: float) -> None:
        """Accept no new connections; wait for the replies to pending requests."""
        await asyncio.gather(*(listener.drain(seconds_max) for listener in self.listeners))

    async def stop(self) -> None:
        """Close every connection."""
        for listener in self.listeners:
            await listener.stop()
        await self.node.shares.close()
        self.node.large_request_thread.close()

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints that ``headgate serve`` prints."""
        return [_endpoint(listener) for listener in self.listeners]

    def request_counts(self) -> list[tuple[str, int]]:
        """Return the number of requests by API."""
        return [(APIS[key].name, count) for key, count in self.requests.items()]

    @property
    def latency(self) -> RequestLatency:
        """See ``MeasuresLatency``."""
        return self.node.latency

    def connections(self) -> list[dict[str, Any]]:
        """Return the connections that ``headgate clients`` lists."""
        return [connection.describe() for connection in self._all_connections()]


def _advertised(
    listener: ConnectionListener[Connection],
    config: KafkaListener,
    transport: asyncio.Transport | None,
) -> Address:
    """Return the advertised address: the configured one, or the one the client connected to."""
    if config.advertise is not None:
        return parse_address(config.advertise)
    sockname = transport.get_extra_info("sockname") if transport is not None else None
    if sockname is None:
        return Address(listener.host, listener.port)
    return Address(sockname[0], sockname[1])


def _endpoint(listener: Listener) -> Endpoint:
    address = Address(listener.host, listener.port)
    python = min(sys.executable, os.path.relpath(sys.executable), key=len)
    try_it = f"echo hello | {python} -m kafka.producer -b {address} -t greetings"
    return Endpoint(listener.name, str(address), try_it)
