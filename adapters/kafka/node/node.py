"""The parts of the node that handlers use, and the state that connections share."""

from dataclasses import dataclass, field

from adapters.kafka.config import KafkaConfig
from adapters.kafka.node.fetch_pacing import FetchPacing
from adapters.kafka.node.fetch_session_cache import FetchSessionCache
from adapters.kafka.node.large_requests import LargeRequestThread
from adapters.kafka.node.metadata_cache import MetadataCache
from adapters.kafka.node.share_sessions import ShareSessionCache
from gateway.auth.audit import Audit
from gateway.auth.bearer_login import Tokens
from gateway.auth.login_throttle import LoginThrottle
from gateway.auth.ports import Authenticator, Authorizer
from gateway.broker import Broker
from gateway.budget import Budget
from gateway.clock import Clock
from gateway.config.settings import Settings
from gateway.groups.cursors import CursorManager
from gateway.groups.manager import GroupManager
from gateway.metadata.store import MetadataStore, ProducerIds
from gateway.monitoring.request_latency import RequestLatency
from gateway.placement import Placement
from gateway.quotas.manager import Quotas
from gateway.shares.manager import ShareGroups
from gateway.topics.manager import TopicManager
from gateway.transactions.coordinator import TransactionCoordinator


@dataclass(frozen=True, slots=True)
class Node:
    """Parts of the kernel, settings, and state shared by all connections of the adapter."""

    broker: Broker
    topics: TopicManager
    groups: GroupManager
    cursors: CursorManager
    transactions: TransactionCoordinator
    authenticator: Authenticator
    authorizer: Authorizer
    placement: Placement
    metadata: MetadataStore
    clock: Clock
    settings: Settings
    config: KafkaConfig
    fetch_budget: Budget
    fetch_pacing: FetchPacing
    fetch_sessions: FetchSessionCache
    request_budget: Budget
    producer_ids: ProducerIds
    metadata_cache: MetadataCache
    quotas: Quotas
    shares: ShareGroups
    share_sessions: ShareSessionCache
    large_request_thread: LargeRequestThread = field(default_factory=LargeRequestThread)
    audit: Audit = field(default_factory=Audit)
    logins: LoginThrottle = field(default_factory=LoginThrottle)
    tokens: Tokens | None = None
    latency: RequestLatency = field(default_factory=RequestLatency)
