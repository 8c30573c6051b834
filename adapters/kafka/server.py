"""The Kafka endpoint: a listener, the handlers it has loaded, and what they are given."""

import asyncio
import os
import sys
from collections import Counter
from types import ModuleType
from typing import Any, ClassVar

from adapters.kafka import handlers
from adapters.kafka.codec import API_VERSIONS
from adapters.kafka.config import KafkaConfig
from adapters.kafka.connection import KafkaConnection
from adapters.kafka.fetch_pacing import FetchPacing
from adapters.kafka.handlers import APIS, Api
from adapters.kafka.metadata_cache import MetadataCache
from adapters.kafka.session import Node
from gateway.budget import Budget
from gateway.config.base import Address, parse_address
from gateway.kernel import Endpoint, Kernel
from gateway.listener import Listener
from gateway.metadata.store import ProducerIds


class KafkaAdapter:
    """The Kafka protocol on one listener."""

    Config: ClassVar = KafkaConfig

    def __init__(self, config: KafkaConfig, kernel: Kernel) -> None:
        self.config = config
        self.handlers: dict[int, ModuleType] = {}
        self.requests: Counter[int] = Counter()
        self._admission = kernel.admission
        self.node = Node(
            broker=kernel.broker,
            topics=kernel.topics,
            groups=kernel.groups,
            cursors=kernel.cursors,
            delays=kernel.delays,
            authenticator=kernel.authenticator,
            authorizer=kernel.authorizer,
            placement=kernel.placement,
            metadata=kernel.metadata,
            clock=kernel.clock,
            settings=kernel.settings,
            config=config,
            fetch_pacing=FetchPacing(kernel.broker.writer),
            fetch_budget=Budget("fetch", kernel.settings.broker.fetch_bytes_budget),
            request_budget=Budget("request", config.request_bytes_budget),
            producer_ids=ProducerIds(kernel.metadata),
            metadata_cache=MetadataCache(kernel.placement),
            audit=kernel.audit,
            logins=kernel.logins,
        )
        self._listener: Listener | None = None

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """What connections share, for metrics."""
        return self.node.fetch_budget, self.node.request_budget

    def load(self, api: Api) -> ModuleType:
        """Return the API's handler module, imported when it is first needed; for any thread."""
        module = self.handlers[api.key] = handlers.load(api)
        return module

    @property
    def listeners(self) -> list[Listener]:
        """The listeners that have started."""
        return [] if self._listener is None else [self._listener]

    @property
    def listener(self) -> Listener:
        """The listener, once started."""
        assert self._listener is not None
        return self._listener

    def advertised(self, transport: asyncio.Transport | None) -> Address:
        """Return the address clients are told: the configured one, or where they reached us."""
        if self.config.advertise is not None:
            return parse_address(self.config.advertise)
        sockname = transport.get_extra_info("sockname") if transport is not None else None
        if sockname is None:
            return Address(self.listener.host, self.listener.port)
        return Address(sockname[0], sockname[1])

    async def start(self) -> None:
        """Listen. Error: ``OSError`` when the address cannot be had."""
        for key in (0, 1, API_VERSIONS):
            self.load(APIS[key])
        self._listener = Listener(
            "kafka",
            self.config,
            lambda listener: KafkaConnection(listener, self),
            admission=self._admission,
        )
        await self._listener.start()
        self.node.authenticator.on_removed.append(self._disconnect)

    def _disconnect(self, name: str) -> None:
        """Close the connections of a principal who may not be connected any more."""
        for connection in tuple(self.listener.connections):
            if isinstance(connection, KafkaConnection) and connection.user == name:
                connection.close()

    async def drain(self, seconds_max: float) -> None:
        """Accept nothing new; let what is being served be answered."""
        await self.listener.drain(seconds_max)

    async def stop(self) -> None:
        """Close every connection."""
        if self._listener is not None:
            await self._listener.stop()
        self.node.large_work.close()

    def endpoints(self) -> list[Endpoint]:
        """Return what ``headgate serve`` prints when it is ready."""
        address = Address(self.listener.host, self.listener.port)
        python = min(sys.executable, os.path.relpath(sys.executable), key=len)
        try_it = f"echo hello | {python} -m kafka.producer -b {address} -t greetings"
        return [Endpoint("kafka", str(address), try_it)]

    def request_counts(self) -> list[tuple[str, int]]:
        """Return how many requests came, by API."""
        return [(APIS[key].name, count) for key, count in self.requests.items()]

    def connections(self) -> list[dict[str, Any]]:
        """Return what ``headgate clients`` shows."""
        return [connection.describe() for connection in self.listener.connections]
