"""Kernel of the node: the parts given to an adapter, and the endpoints it reports."""

from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.admission import Admission
from gateway.auth.access_keys import AccessKeys
from gateway.auth.audit import Audit
from gateway.auth.login_throttle import LoginThrottle
from gateway.auth.ports import Authenticator, Authorizer
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import Settings
from gateway.delays.manager import Delays
from gateway.groups.cursors import CursorManager
from gateway.groups.manager import GroupManager
from gateway.metadata.store import MetadataStore
from gateway.metrics import Metrics
from gateway.placement import Placement
from gateway.queues.manager import QueueManager
from gateway.topics.manager import TopicManager
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
    queues: QueueManager
    delays: Delays
    authenticator: Authenticator
    authorizer: Authorizer
    access_keys: AccessKeys
    placement: Placement
    metadata: MetadataStore
    metrics: Metrics
    scrub: Scrub
    admission: Admission = field(default_factory=Admission)
    audit: Audit = field(default_factory=Audit)
    logins: LoginThrottle = field(default_factory=LoginThrottle)
