"""Ports between the rooms of the adapter: interfaces of classes that other rooms use.

For example, ``delivery`` sends to a ``SessionPort``; ``sessions.client_session.ClientSession`` is
one, and ``sessions`` imports ``delivery``. So imports between rooms run one way.
"""

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from adapters.mqtt.access.client_access import ClientAccess
from adapters.mqtt.config import MqttConfig
from adapters.mqtt.counters import Counters
from adapters.mqtt.inflight.open_identifiers import OpenIdentifiers
from adapters.mqtt.inflight.outbox import Inflight, Outbox
from adapters.mqtt.records.mixed_topic_batch import MixedTopicBatch
from adapters.mqtt.subscriptions.ended import EndedSubscription, EndedSubscriptions
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.subscriptions.trie import Match, SubscriptionTrie
from adapters.mqtt.wire import PublishRun, Version, Will
from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.model import Buffer
from gateway.partition import Partition
from gateway.storage import OnDone

Subscriber: TypeAlias = "SessionPort | GroupPort"
Follower: TypeAlias = "SessionPort | GroupPort | SlowReceiverPort"
"""A reader of the log that is behind its end on some feed."""
SubscriberMatch: TypeAlias = "Match[SessionPort | GroupPort]"


class SessionConnection(Protocol):
    """The connection of a session's client."""

    access: ClientAccess | None
    peer_host: str
    version: Version
    receive_maximum: int
    packet_bytes_max: int
    topic_alias_maximum: int
    aliases: dict[bytes, int]
    out_bytes: int
    is_closing: bool
    with_will: bool
    session_expiry_interval: int | None

    def send(self, *data: Buffer) -> None:
        """Queue bytes; see ``gateway.connection``."""

    def fail(self, error: GatewayError) -> None:
        """Close, because the record of a sent packet cannot be stored."""

    def leave_node(self) -> None:
        """Serve nothing more: the session leaves this node."""
        ...

    def send_away(self) -> None:
        """Close: another node serves the session."""
        ...

    def taken_over(self) -> None:
        """Close, because another connection has come with this client identifier."""

    def quota_exceeded(self) -> None:
        """Close, because too many bytes wait for this receiver."""


class SlowReceiversPort(Protocol):
    """The receivers of one feed that are too slow for QoS 0."""

    def holds_back(self, session: "SessionPort", run: PublishRun) -> bool:
        """Return whether a session gets a run of QoS 0 later, from the log."""


class FeedPort(Protocol):
    """One partition of the log, followed from its end."""

    partition: Partition
    partition_id: int
    live_offset: int

    @property
    def slow_receivers(self) -> SlowReceiversPort:
        """The receivers that are too slow for QoS 0."""

    @property
    def log_start_offset(self) -> int:
        """First offset that the partition still has."""

    async def read(
        self, offset: int, *, end: int | None = None
    ) -> tuple[list[PublishRun], int]:
        """Return the runs at or after ``offset``, and the next offset; see ``Feed.read``."""


class FollowerPort(Protocol):
    """A reader of the log; ``behind``: offsets by partition id. See ``reading.catch_up``."""

    behind: dict[int, int]

    def __hash__(self) -> int: ...

    @property
    def is_ready(self) -> bool:
        """Whether it can take messages now."""

    def take(
        self, run: PublishRun, start: int, stop: int, match: SubscriberMatch, feed: FeedPort
    ) -> int:
        """Take messages [start, stop) of a run in order; return how many were taken."""

    def take_mixed_topics(
        self,
        mixed: MixedTopicBatch,
        indexes: range,
        matches: Mapping[PublishRun, SubscriberMatch],
        feed: FeedPort,
    ) -> int | None:
        """Take mixed-topic messages; return the next index, None to offer each by itself."""

    def on_skipped(self, count: int) -> None:
        """Count messages that are no longer in the log, or are too far back."""

    def go_on(self) -> None:
        """Go on with what waits: there may be room again."""

    def wanted_filters(self) -> Iterator[str]:
        """Yield the topic filters that it reads the log for."""


class SlowReceiverPort(FollowerPort, Protocol):
    """A session that is too slow for QoS 0 on one feed."""

    replaced: dict[str, "EndedSubscription[SessionPort]"]

    def replace(self, subscription: Subscription, live: Mapping[int, int]) -> None:
        """Note that another subscription replaces one from the ``live`` offsets on."""

    def leave(self) -> None:
        """End: the receiver has caught up, or its client has gone."""


class JournalPort(Protocol):
    """The journal of a session: what leaves at QoS 1 and 2."""

    unkept: dict[int, bytes]
    is_over: bool

    def add(self, run: Inflight, data: Buffer) -> None:
        """Queue a run to be recorded, and its packets to be sent, at the end of this turn."""

    def settled(self, base: int) -> list[int]:
        """Return the first sequence numbers of records that end below ``base``, in order."""

    def forget(self, first_seqs: Sequence[int]) -> None:
        """Forget records that have gone from the stream."""

    def kept_again(self, first_seqs: Sequence[int]) -> None:
        """Note that records which were refused before are durable now."""

    def first_seqs(self) -> list[int]:
        """Return the first sequence numbers of all records that the stream has."""

    def close(self) -> None:
        """End with the session: nothing more is written."""


class SessionPort(FollowerPort, Protocol):
    """One client's session; see ``sessions.client_session``."""

    is_group: Literal[False]
    client_id: str
    connection: SessionConnection | None
    username: str | None
    expiry_s: int
    disconnected_unix_ms: int
    will: Will | None
    subscriptions: dict[str, Subscription]
    filter_bytes: int
    ended: "EndedSubscriptions[SessionPort] | None"
    forbidden: frozenset[str]
    groups: "dict[str, GroupPort]"
    holder: int
    outbox: Outbox
    inbound: OpenIdentifiers
    slow_receivers: dict[int, SlowReceiverPort]
    live_bytes_max: int
    positions: dict[int, int]
    retained_scans: OrderedDict[str, tuple[Subscription, bytes]]
    is_attached: bool
    is_redelivering: bool
    on_progress: Callable[[], None] | None

    @property
    def context(self) -> "ContextPort":
        """The context that all sessions share."""

    @property
    def journal(self) -> JournalPort:
        """Messages sent at QoS 1 and 2 that are not acknowledged."""

    @property
    def is_kept(self) -> bool:
        """Whether the session outlives its connection."""

    @property
    def reads_log(self) -> bool:
        """Whether any of its own subscriptions is of QoS 1 or 2."""

    def offer(self, run: PublishRun, match: SubscriberMatch, feed: FeedPort) -> None:
        """Send a new run of QoS 1 or 2, or note from where on the log is to be read."""

    def send_run(  # noqa: PLR0913 - all that makes one delivery differ from another
        self,
        run: PublishRun,
        start: int,
        stop: int,
        *,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        expiry_s: int | None,
        partition_id: int,
        group: str = "",
        attempt: int = 0,
    ) -> Sequence[tuple[int, int]]:
        """Send messages of QoS 1 or 2; return the stretches that were sent."""

    def send(self, connection: SessionConnection, *data: Buffer) -> None:
        """Send packets; close the connection where too many bytes wait for it."""

    def note_settled(self) -> None:
        """Record at the next checkpoint which messages were settled."""

    def on_state_kept(self, base: int) -> None:
        """Go on: a state with this base of the outbox is durable."""

    def forget_retained(self, filters: Iterable[str]) -> None:
        """Send subscriptions no more of the retained messages that they wait for."""


class GroupPort(FollowerPort, Protocol):
    """A shared subscription; see ``shared_subscriptions.groups``."""

    is_group: Literal[True]
    name: str
    topic_filter: str
    written: str
    is_kept: bool
    members: dict[SessionPort, Subscription]
    online: list[SessionPort]
    positions: dict[int, int]

    @property
    def context(self) -> "ContextPort":
        """The context that all sessions and groups share."""

    def keep(self) -> None:
        """Record what members hold from now on: the group outlives its connections."""

    def end(self) -> None:
        """Forget what members held: the group is over."""

    def park(self) -> None:
        """Keep the group also without members on this node: another node may have some."""
        ...

    def update_is_kept(self) -> None:
        """Update ``is_kept`` after a change of members."""

    def offer(self, run: PublishRun, match: SubscriberMatch, feed: FeedPort | None) -> None:
        """Deliver a new run to members, or note the offset from which the log is to be read."""


class CatchUpPort(Protocol):
    """The followers of one feed that are behind."""

    def discard(self, follower: Follower) -> None:
        """Serve a follower no more."""


class FeedsPort(Protocol):
    """All feeds of the node."""

    def get(self, partition_id: int) -> FeedPort | None:
        """Return the feed of a partition, None when there is none."""

    def catch_up(self, partition_id: int) -> CatchUpPort | None:
        """Return the ``CatchUp`` of a partition, None when it has gone."""

    away: dict[int, int]

    def end_offsets(self) -> dict[int, int]:
        """Return where a subscription of now begins, by partition id."""
        ...

    def away_ends(self) -> dict[int, int]:
        """Return the ends of other nodes' partitions, by partition id."""
        ...

    def live_offsets(self) -> dict[int, int]:
        """Return the live ends by partition id."""

    def push_held(self) -> None:
        """Deliver now what the loop's next turn would deliver."""


class DistributorPort(Protocol):
    """Delivery of runs to connected receivers."""

    trie: SubscriptionTrie[Subscriber]

    def deliver_to(
        self, session: SessionPort, run: PublishRun, match: SubscriberMatch, feed: FeedPort
    ) -> None:
        """Send a run of QoS 0 to one receiver."""

    def matches_by_follower(self, topic: bytes) -> dict[Subscriber, SubscriberMatch]:
        """Return the matches of a topic by subscriber."""


class RetainedPort(Protocol):
    """The retained messages."""

    def is_here(self, topic: bytes) -> bool:
        """Return whether this node keeps the retained message of a topic, if there is one."""
        ...

    def get(self, topic: bytes) -> PublishRun | None:
        """Return the retained message of a topic."""


class SessionStorePort(Protocol):
    """The stream that keeps sessions."""

    def put_state(self, session: SessionPort, on_done: OnDone | None = None) -> None:
        """Store the state of a session."""


class RedeliveryPort(Protocol):
    """Redelivery to one client; see ``sessions.redelivery``."""

    def go_on(self) -> None:
        """Send what was held back and is here now."""
        ...


class ContextPort(Protocol):
    """Services that all sessions share; see ``sessions.session_context``."""

    config: MqttConfig
    clock: Clock
    counters: Counters
    receiver_bytes_max: int
    dirty: set[SessionPort]
    dirty_groups: set[GroupPort]

    @property
    def held_back(self) -> "dict[SessionPort, RedeliveryPort]":
        """Redeliveries of sessions with messages in flight of other nodes' partitions."""
        ...

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Run a task over several turns of the loop, until the node stops."""
        ...

    @property
    def distributor(self) -> DistributorPort:
        """Delivery to connected receivers."""

    @property
    def feeds(self) -> FeedsPort:
        """The feeds of the node."""

    @property
    def retained(self) -> RetainedPort:
        """The retained messages."""

    @property
    def store(self) -> SessionStorePort:
        """The stream that keeps sessions."""

    def write_journals(self) -> None:
        """Write the records of this turn; send their packets now, or when they are durable."""

    def write_soon(self) -> None:
        """Write the added records at the end of this turn of the loop."""

    def catch_up(self, follower: Follower) -> None:
        """Serve a follower that is behind."""

    def positions_of(self, session: SessionPort) -> dict[int, int]:
        """Return the offsets of a session by partition id; empty when it reads no log."""
