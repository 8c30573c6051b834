"""The MQTT parts of a node, created in order and closed again."""

import asyncio
from dataclasses import dataclass
from functools import partial

from adapters.mqtt.access.client_access import Access, principal_of
from adapters.mqtt.config import MqttConfig
from adapters.mqtt.contribution import INBOUND_TOPIC, SESSIONS_TOPIC, SHARES_TOPIC
from adapters.mqtt.counters import Counters
from adapters.mqtt.delivery.distributor import Distributor
from adapters.mqtt.delivery.exact_denials import ExactDenials
from adapters.mqtt.publishing.mixed_topics import MixedTopicPublisher
from adapters.mqtt.publishing.one_in_flight_batches import OneInFlightBatches
from adapters.mqtt.publishing.publishing import Publishing, parse_inbound_key
from adapters.mqtt.publishing.wills import Wills
from adapters.mqtt.reading.feed_set import FeedSet
from adapters.mqtt.reading.slow_receivers import LagBounds
from adapters.mqtt.retained.store import RetainedStore
from adapters.mqtt.routes import Routes
from adapters.mqtt.sessions.read_access import ReadAccess
from adapters.mqtt.sessions.registry import Sessions
from adapters.mqtt.sessions.session_context import SessionContext
from adapters.mqtt.sessions.store import SessionStore
from adapters.mqtt.shards import no_rule, retained_rule, session_rule
from adapters.mqtt.shared_subscriptions.lanes import ROOM_BYTES
from adapters.mqtt.sys_topics.publisher import SysPublisher
from adapters.mqtt.wire import Will
from gateway.auth.login_throttle import LoginThrottle
from gateway.auth.ports import Authenticator, Authorizer
from gateway.clock import Clock
from gateway.coalescer import Coalescer
from gateway.config.settings import Settings
from gateway.kernel import Kernel
from gateway.placement import Placement
from gateway.queues.journal import QueueJournal
from gateway.quotas.manager import Quotas
from gateway.sharded_stream import ShardedStream


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
    access: Access
    routes: Routes
    feeds: FeedSet
    distributor: Distributor
    retained: RetainedStore
    publishing: Publishing
    one_in_flight: OneInFlightBatches
    mixed_topics: MixedTopicPublisher
    sessions: Sessions
    context: SessionContext
    wills: Wills
    sys: SysPublisher
    read_access: ReadAccess
    logins: LoginThrottle
    quotas: Quotas

    def stop(self) -> None:
        """Store the positions of sessions; the log is still open."""
        self.authorizer.after_change.remove(self.read_access.rules_changed)
        self.sys.stop()
        self.wills.close()
        self.sessions.stop()
        self.feeds.stop()


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
    retained = await RetainedStore.open(
        broker,
        topics,
        clock,
        coalescer,
        config,
        rule=retained_rule(routes, feeds),
    )
    inbound = await ShardedStream.open(
        INBOUND_TOPIC, broker, topics, clock, coalescer=coalescer, rule=no_rule
    )
    await inbound.load()
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
        config, clock, counters, distributor, feeds, store, retained, shares
    )
    access = Access(
        config, kernel.authorizer, lambda topic, qos: routes.find(topic, qos).log_topic
    )
    found: list[Sessions] = []

    def publish_will(client_id: str, will: Will) -> None:
        session = found[0].find(client_id)
        username = None if session is None else session.username
        host = "" if session is None else session.host
        client_access = access.of_client(client_id, username, principal_of(username, host))
        publishing.publish_will(client_id, will, session, client_access)

    wills = Wills(clock, publish_will)
    sessions = Sessions(context, wills)
    sessions.on_end = publishing.forget
    found.append(sessions)
    await sessions.load()
    _restore_inbound(sessions, inbound)
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
        context=context,
        wills=wills,
        sys=sys,
        read_access=read_access,
        logins=kernel.logins,
        quotas=kernel.quotas,
    )


def _restore_inbound(sessions: Sessions, inbound: ShardedStream) -> None:
    """Restore the inbound QoS 2 identifiers of sessions; remove those without a session."""
    gone = []
    for key in inbound.values:
        client_id, packet_id = parse_inbound_key(key)
        session = sessions.find(client_id)
        if session is None:
            gone.append((key, None))
        else:
            session.inbound.add(packet_id)
    for start in range(0, len(gone), 1_000):
        inbound.put(gone[start : start + 1_000], partial(_ignore))


def _ignore(_error: object) -> None:
    """Ignore an error: an entry that stays is removed at the next start."""
