"""Kernel of the node: the parts given to an adapter, and the port that an adapter implements."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from gateway.admission import Admission
from gateway.auth.access_keys import AccessKeys
from gateway.auth.audit import Audit
from gateway.auth.bearer_login import Tokens
from gateway.auth.login_throttle import LoginThrottle
from gateway.auth.ports import Authenticator, Authorizer
from gateway.broker import Broker
from gateway.budget import Budget
from gateway.clock import Clock
from gateway.config.settings import Settings
from gateway.contributions import Contributions
from gateway.delays.sharded import ShardedDelays
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.publisher import Publisher
from gateway.groups.cursors import CursorManager
from gateway.groups.manager import GroupManager
from gateway.leaser import Leaser
from gateway.listener import Listener
from gateway.metadata.store import MetadataStore
from gateway.metrics import Metrics
from gateway.placement import Placement
from gateway.queues.manager import QueueManager
from gateway.quotas.manager import Quotas
from gateway.topics.manager import TopicManager
from gateway.transactions.coordinator import TransactionCoordinator
from gateway.upkeep.scrub import Scrub


class Endpoint(NamedTuple):
    """An address that is listened on, and one line to try it."""

    name: str
    url: str
    try_it: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """Parts of a running node, as adapters use them."""

    settings: Settings
    clock: Clock
    broker: Broker
    topics: TopicManager
    groups: GroupManager
    cursors: CursorManager
    transactions: TransactionCoordinator
    queues: QueueManager
    publisher: Publisher
    leaser: Leaser
    delays: ShardedDelays
    authenticator: Authenticator
    authorizer: Authorizer
    access_keys: AccessKeys
    placement: Placement
    metadata: MetadataStore
    metrics: Metrics
    scrub: Scrub
    quotas: Quotas
    contributions: Contributions = field(default_factory=Contributions)
    admission: Admission = field(default_factory=Admission)
    audit: Audit = field(default_factory=Audit)
    logins: LoginThrottle = field(default_factory=LoginThrottle)
    tokens: Tokens | None = None

    @property
    def exchanges(self) -> Exchanges:
        """Exchanges and bindings, through which ``publisher`` publishes."""
        return self.publisher.exchanges


class ProtocolAdapter(Protocol):
    """Port of a protocol: what the node calls on an adapter, all of it on the event loop.

    Its class has ``Config``, which checks its table of the config file, and is called with the
    config and the kernel; ``start`` follows, and later ``drain`` and ``stop``.
    """

    def __init__(self, config: Any, kernel: Kernel) -> None:  # noqa: ANN401 - an adapter's own
        ...

    async def start(self) -> None:
        """Listen. Errors: ``OSError`` when an address cannot be had; ``GatewayError``."""
        ...

    async def drain(self, seconds_max: float) -> None:
        """Accept nothing new; answer what is under way, for so long."""
        ...

    async def stop(self) -> None:
        """Close every connection. Not called when ``start`` has failed."""
        ...

    def endpoints(self) -> list[Endpoint]:
        """Return the addresses it listens on, for ``headgate serve`` to print."""
        ...

    def connections(self) -> list[dict[str, Any]]:
        """Return a table for each connection, for ``headgate clients``."""
        ...


@runtime_checkable
class HasListeners(Protocol):
    """Adapter whose TCP listeners have metrics, and certificates that SIGHUP reads anew."""

    @property
    def listeners(self) -> Sequence[Listener]:
        """The listeners that have started. Their names are unique in a node."""
        ...


@runtime_checkable
class HasBudgets(Protocol):
    """Adapter whose connections share budgets of bytes, which are metrics."""

    @property
    def budgets(self) -> Sequence[Budget]:
        """The budgets; their names are unique in the adapter."""
        ...


@runtime_checkable
class CountsRequests(Protocol):
    """Adapter that counts requests, for the metric ``headgate_requests_total``."""

    def request_counts(self) -> list[tuple[str, int]]:
        """Return the number of requests since the start, by API."""
        ...


@runtime_checkable
class HasMetrics(Protocol):
    """Adapter with metrics of its own."""

    def register_metrics(self, metrics: Metrics) -> None:
        """Register them; called once, when all adapters have started."""
        ...
