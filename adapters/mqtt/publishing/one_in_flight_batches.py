"""Publishes of clients that wait for each PUBACK: one QoS 1 PUBLISH at a time, like the last one.

Such a client never sends a run. So the packets of many such clients in one turn of the loop are
processed together: gathered until the coalescer appends its round, stored as ``SingleRecords``,
and acknowledged together. The route, the rights and the common part of a publisher's records are
looked up once and kept until a revision changes. Any unusual packet is published by ``inbound``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from adapters.mqtt.access.client_access import Access
from adapters.mqtt.counters import Counters
from adapters.mqtt.mapping import header_block
from adapters.mqtt.packets.delayed_topics import DELAYED_PREFIX
from adapters.mqtt.packets.publish_codec import Likeness
from adapters.mqtt.publishing.one_in_flight_publisher import (
    OneInFlightConnection,
    OneInFlightPublisher,
    PublisherLane,
)
from adapters.mqtt.reading.feed_set import FeedSet
from adapters.mqtt.records.one_in_flight_messages import OneInFlightMessages
from adapters.mqtt.routes import Routes
from adapters.mqtt.session import State
from adapters.mqtt.wire import Packet, PublishRun
from gateway.clock import Clock
from gateway.coalescer import BATCH_RECORDS_MAX, Coalescer, batch_bytes_max
from gateway.connection import Connection
from gateway.connection_listener import ConnectionListener
from gateway.errors import GatewayError
from gateway.model import HEADER_BYTES
from gateway.partition import Partition
from gateway.quotas.manager import Quotas
from gateway.records.singles import SingleRecords
from gateway.topics.manager import TopicManager

_PUBACK: Final = b"\x40\x02"
_PUBACK_BYTES: Final = 4


class OneInFlightBatches:
    """Gathers what one-in-flight publishers bring until the coalescer appends."""

    def __init__(  # noqa: PLR0913, PLR0917 - its surroundings, made once
        self,
        clock: Clock,
        counters: Counters,
        coalescer: Coalescer,
        topics: TopicManager,
        routes: Routes,
        feeds: FeedSet,
        access: Access,
        is_saturated: Callable[[], bool],
        quotas: Quotas,
    ) -> None:
        self._clock = clock
        self._counters = counters
        self._coalescer = coalescer
        self._topics = topics
        self._routes = routes
        self._feeds = feeds
        self._authorizer = access.authorizer
        self._is_saturated = is_saturated
        self._quotas = quotas
        self._authorizer_revision = self._topics_revision = self._quotas_revision = -1
        self._lanes: dict[tuple[Partition, ConnectionListener[Connection]], PublisherLane] = {}
        self._begun: list[PublisherLane] = []  # those of the open round
        coalescer.before_seal.append(self.fill)

    def admit(
        self, connection: OneInFlightConnection, likeness: Likeness, packet: Packet
    ) -> None:
        """Take packets like ``packet`` from now on, unless they go the way of ``packet`` itself."""
        topic, access = likeness.topic, connection.access
        if (
            type(packet) is not PublishRun
            or packet.topic != topic
            or topic.startswith(DELAYED_PREFIX)
            or access is None
            or connection.state is not State.CONNECTED
            or not connection.is_writable
            or connection.inbound.has_exactly_once
            or (self._quotas.is_active and connection.inbound.has_quota)
        ):
            return
        if not self._is_current():
            self.fill()
            self._renew()
        if access.publish_refusal(topic, 1) is not None:
            return
        routed = self._routes.find(topic, 1)
        try:
            partition = self._feeds.target(routed)
        except GatewayError:
            return
        place = partition, connection.listener
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = PublisherLane(self, partition, connection)
        run = likeness.message(b"", connection.client_id)
        record = (routed.key, header_block(run, routed, connection.client_id))
        OneInFlightPublisher(self, connection, likeness, lane, record).begin()

    def _is_current(self) -> bool:
        """Say whether all that was looked up still holds."""
        return (
            self._authorizer.revision == self._authorizer_revision
            and self._topics.revision == self._topics_revision
            and self._quotas.revision == self._quotas_revision
        )

    def _renew(self) -> None:
        """Forget every cached lookup."""
        self._authorizer_revision = self._authorizer.revision
        self._topics_revision = self._topics.revision
        self._quotas_revision = self._quotas.revision
        for lane in self._lanes.values():
            lane.is_over = True
        self._lanes = {}

    def begin(self, lane: PublisherLane) -> bool:
        """The first of a round comes; False while the log has more than it can write."""
        if self._is_saturated():
            return False
        self._begun.append(lane)
        self._coalescer.schedule()
        return True

    def fill(self) -> None:
        """Put all that waits into the open round."""
        if not self._begun:
            return
        begun, self._begun = self._begun, []
        if not self._is_current():
            self._renew()
        for lane in begun:
            some = lane.take_waiting()
            self._counters.messages_received += len(some)
            if lane.is_over:
                for publisher in some:
                    publisher.give_up()
            else:
                self._counters.publish_received += len(some)
                self._put(lane, some)

    def _put(self, lane: PublisherLane, some: list[OneInFlightPublisher]) -> None:
        now_unix_ms = self._clock.unix_ms()
        bytes_max = batch_bytes_max(lane.partition)
        largest_bytes = max([publisher.frame.size_bytes for publisher in some])
        count = min(BATCH_RECORDS_MAX, (bytes_max - HEADER_BYTES) // largest_bytes) or 1
        for start in range(0, len(some), count):
            self._add(lane, some[start : start + count], now_unix_ms)

    def _add(
        self, lane: PublisherLane, some: Sequence[OneInFlightPublisher], now_unix_ms: int
    ) -> None:
        payloads = [one.data[one.payload_at :] for one in some]  # type: ignore[index]  # waits
        records = SingleRecords(
            [one.frame for one in some],
            payloads,
            now_unix_ms,
            OneInFlightMessages(some, payloads),
        )
        on_done = self._counters.latency.sampled("PUBLISH", partial(self._done, lane, some))
        try:
            self._coalescer.add(lane.partition, records, on_done)
        except GatewayError:  # of one of them, perhaps: each gets an answer of its own
            self._counters.publish_received -= len(some)
            for publisher in some:
                publisher.give_up()

    def _done(
        self,
        lane: PublisherLane,
        some: Sequence[OneInFlightPublisher],
        error: GatewayError | None,
    ) -> None:
        """The log has all of them, or none."""
        if error is not None:
            for publisher in reversed(some):
                publisher.refuse(error)
            return
        left = []
        counted_bytes = 0 if lane.is_framed else _PUBACK_BYTES
        for one in some:
            if one.published is not None:
                left.append(one)
                continue
            data, one.data = one.data, None  # ready for the next packet
            connection = one.connection
            connection.bytes_sent += counted_bytes
            try:
                one.write(_PUBACK + data[one.id_at : one.tail_at])  # type: ignore[index]  # waits
            except Exception as fault:  # noqa: BLE001 - a bug that one meets is no other's
                connection.failed_by(fault)
        answered = len(some) - len(left)
        if not lane.is_framed:
            lane.listener.socket_writes += answered
        self._counters.messages_sent += answered
        for publisher in left:
            assert publisher.published is not None
            publisher.data = None
            publisher.published(None)
