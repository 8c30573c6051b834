"""The MQTT parts of a node, created in order and closed again."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from adapters.mqtt.access.client_access import Access, principal_of
from adapters.mqtt.config import MqttConfig
from adapters.mqtt.contribution import INBOUND_TOPIC, SESSIONS_TOPIC, SHARES_TOPIC
from adapters.mqtt.counters import Counters
from adapters.mqtt.delivery.distributor import Distributor
from adapters.mqtt.delivery.exact_denials import ExactDenials
from adapters.mqtt.inflight.open_identifiers import OpenIdentifiers
from adapters.mqtt.publishing.inbound_identifiers import InboundIdentifiers
from adapters.mqtt.publishing.mixed_topics import MixedTopicPublisher
from adapters.mqtt.publishing.one_in_flight_batches import OneInFlightBatches
from adapters.mqtt.publishing.publishing import Publishing
from adapters.mqtt.publishing.wills import Wills
from adapters.mqtt.reading.feed_set import FeedSet
from adapters.mqtt.reading.slow_receivers import LagBounds
from adapters.mqtt.retained.store import RetainedStore
from adapters.mqtt.routes import Routes
from adapters.mqtt.sessions.read_access import ReadAccess
from adapters.mqtt.sessions.registry import Sessions
from adapters.mqtt.sessions.session_context import SessionContext
from adapters.mqtt.sessions.session_shards import SessionShards
from adapters.mqtt.sessions.store import SessionStore
from adapters.mqtt.shards import no_rule, retained_rule, session_rule
from adapters.mqtt.shared_subscriptions.lanes import ROOM_BYTES
from adapters.mqtt.sys_topics.publisher import SysPublisher
from adapters.mqtt.wire import Will
from gateway.auth.bearer_login import Tokens
from gateway.auth.login_throttle import LoginThrottle
from gateway.auth.ports import Authenticator, Authorizer
from gateway.clock import Clock
from gateway.coalescer import Coalescer
from gateway.config.settings import Settings
from gateway.kernel import Kernel
from gateway.placement import Placement
from gateway.queues.journal import QueueJournal
from gateway.quotas.manager import Quotas
from gateway.shard_lifecycle import ShardLifecycle, ShardState
from gateway.sharded_stream import ShardedStream

WILL_RETRY_S: Final = 1
"""Seconds until a will whose topic is another node's is tried again."""


@dataclass(frozen=True, slots=True)
class Node:
    """Parts of the node that connections and handlers use."""

    config: MqttConfig
    settings: Settings
    clock: Clock
    loop: asyncio.AbstractEventLoop
    counters: Counters
    authenticator: Authenticator
    authorizer: Authorizer
    placement: Placement
    shards: ShardLifecycle
    states: Sequence[ShardState]
    access: Access
    routes: Routes
    feeds: FeedSet
    distributor: Distributor
    retained: RetainedStore
    publishing: Publishing
    one_in_flight: OneInFlightBatches
    mixed_topics: MixedTopicPublisher
    sessions: Sessions
    session_shards: SessionShards
    context: SessionContext
    wills: Wills
    sys: SysPublisher
    read_access: ReadAccess
    logins: LoginThrottle
    quotas: Quotas
    tokens: Tokens | None

    def stop(self) -> None:
        """Store the positions of sessions; the log is still open."""
        for state in self.states:
            self.shards.unregister(state)
        self.session_shards.close()
        self.authorizer.after_change.remove(self.read_access.rules_changed)
        self.sys.stop()
        self.wills.close()
        self.sessions.stop()
        self.feeds.stop()


async def open_states(
    shards: ShardLifecycle, *, loaded: Sequence[ShardState], states: Sequence[ShardState]
) -> None:
    """Load states in order, and register all of them. Errors: as ``ShardState.load_shards``."""
    for state in loaded:
        shards.register(state)
    for state in states:
        await state.load_shards(shards.owned())
        shards.register(state)


async def open_node(config: MqttConfig, kernel: Kernel) -> Node:
    """Create the parts and load stored state. Errors: as ``InternalStream.load``."""
    broker, topics, clock = kernel.broker, kernel.topics, kernel.clock
    counters = Counters()
    routes = Routes(config, kernel.contributions.header_prefixes)
    distributor = Distributor(clock, counters)
    feeds = FeedSet(
        broker,
        topics,
        routes,
        distributor,
        distributor,
        clock,
        message_bytes=config.message_bytes,
        bounds=LagBounds(config.qos0_lag_bytes_max, config.qos0_lag_ms_max),
    )
    await feeds.start()
    coalescer = Coalescer(broker)
    found: list[Sessions] = []
    retained = await RetainedStore.open(
        broker,
        topics,
        clock,
        coalescer,
        config,
        rule=retained_rule(routes, feeds),
    )
    inbound = InboundIdentifiers(
        await ShardedStream.open(
            INBOUND_TOPIC, broker, topics, clock, coalescer=coalescer, rule=no_rule
        ),
        kernel.placement,
        lambda: found[0],
    )
    publishing = Publishing(
        broker,
        clock,
        counters,
        coalescer,
        routes,
        feeds,
        distributor,
        retained,
        inbound,
    )
    feeds.on_new_foreign = publishing.retain_foreign
    together = Coalescer(broker, reserved=True)  # of sessions and shared subscriptions
    store = SessionStore(
        await ShardedStream.open(
            SESSIONS_TOPIC,
            broker,
            topics,
            clock,
            coalescer=together,
            rule=session_rule(kernel.placement),
        )
    )
    shares = await QueueJournal.open(
        broker, topics, clock, room_bytes=ROOM_BYTES, name=SHARES_TOPIC, coalescer=together
    )
    context = SessionContext(
        config,
        clock,
        counters,
        distributor,
        feeds,
        store,
        retained,
        shares,
        broker.shards,
    )
    access = Access(
        config, kernel.authorizer, lambda topic, qos: routes.find(topic, qos).log_topic
    )

    def publish_will(client_id: str, will: Will) -> None:
        session = found[0].find(client_id)
        username = None if session is None else session.username
        host = "" if session is None else session.host
        client_access = access.of_client(client_id, username, principal_of(username, host))
        again = partial(wills.schedule, client_id, will, WILL_RETRY_S)
        publishing.publish_will(client_id, will, session, client_access, again)

    wills = Wills(clock, publish_will)
    sessions = Sessions(
        context, wills, lambda client_id: OpenIdentifiers(inbound.stamp(client_id))
    )
    sessions.on_end = publishing.forget
    found.append(sessions)
    session_shards = SessionShards(broker, context, sessions, inbound.list_all)
    await open_states(broker.shards, loaded=[retained], states=[session_shards, inbound])
    sessions.start()
    sys = SysPublisher(clock, counters, sessions, distributor, retained, config.sys_interval_s)
    context.retained_scans.sys_values = sys.match
    exact_denials = ExactDenials(config, access.stored, distributor)
    context.retained_scans.exact_denials = exact_denials
    read_access = ReadAccess(context, sessions, exact_denials)
    kernel.authorizer.after_change.append(read_access.rules_changed)
    return Node(
        config=config,
        settings=kernel.settings,
        clock=clock,
        loop=asyncio.get_running_loop(),
        counters=counters,
        authenticator=kernel.authenticator,
        authorizer=kernel.authorizer,
        placement=kernel.placement,
        shards=broker.shards,
        states=[retained, session_shards, inbound],
        access=access,
        routes=routes,
        feeds=feeds,
        distributor=distributor,
        retained=retained,
        publishing=publishing,
        one_in_flight=OneInFlightBatches(
            clock,
            counters,
            coalescer,
            topics,
            routes,
            feeds,
            access,
            lambda: publishing.is_saturated,
            kernel.quotas,
        ),
        mixed_topics=MixedTopicPublisher(
            clock, counters, coalescer, routes, feeds, distributor, retained
        ),
        sessions=sessions,
        session_shards=session_shards,
        context=context,
        wills=wills,
        sys=sys,
        read_access=read_access,
        logins=kernel.logins,
        quotas=kernel.quotas,
        tokens=kernel.tokens,
    )
