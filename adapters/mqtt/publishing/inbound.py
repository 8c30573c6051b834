"""Publishes of one client, acknowledged in the order in which they came.

This is the hot path: work is per run, not per message.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import groupby
from typing import Final

from adapters.mqtt.codec import encode_acks
from adapters.mqtt.counters import Counters
from adapters.mqtt.errors import MqttError, ReasonCode, reason_code
from adapters.mqtt.packets.refusal_packets import ACK_CODES, encode_refusal, within
from adapters.mqtt.ports import SessionPort
from adapters.mqtt.publishing.mixed_topics import MixedTopicPublisher
from adapters.mqtt.publishing.ports import PublishingConnection
from adapters.mqtt.publishing.publishing import OnPublished, Publishing
from adapters.mqtt.session import InboundAliases, InboundWindow, without_alias
from adapters.mqtt.wire import (
    EXACTLY_ONCE,
    NO_PROPERTIES,
    AckRun,
    Connect,
    MixedTopicPublishes,
    PacketType,
    PublishRun,
    Version,
)
from gateway.errors import GatewayError, MessageTooLarge, OutcomeUnknown, public_text
from gateway.quotas.manager import Quotas
from gateway.quotas.meters import Meter
from gateway.quotas.read_mute import ReadMute

REASON_CHARS_MAX: Final = 500
# Module names: a lookup of an enum's member is slower.
_SUCCESS: Final = ReasonCode.SUCCESS
_PUBACK: Final = PacketType.PUBACK
_PUBREC: Final = PacketType.PUBREC
PACKET_OVERHEAD_BYTES: Final = 64  # memory of a pending message beside its payload


class Published:
    """A run, or mixed-topic messages, being written to the log."""

    __slots__ = ("code", "inbound", "is_done", "must_close", "reason", "run", "size_bytes")

    def __init__(
        self, inbound: "Inbound", run: PublishRun | MixedTopicPublishes, size_bytes: int
    ) -> None:
        self.inbound = inbound
        self.run = run
        self.size_bytes = size_bytes
        self.code = _SUCCESS
        self.reason = ""
        self.is_done = False
        self.must_close = False  # an acknowledgement of 3.x would mean success

    def __call__(self, error: GatewayError | None) -> None:
        """Handle the outcome of the append; called once."""
        self.inbound.connection.guard(self.inbound.on_published, self, error)


class Inbound:
    """Publishes of one connection. Answers are sent in the order of the runs (MQTT-4.6.0-2)."""

    __slots__ = (
        "_aliases",
        "_bytes_max",
        "_counters",
        "_in_turn",
        "_is_full",
        "_mixed_topics",
        "_mute",
        "_publishing",
        "_quotas",
        "_window",
        "connection",
        "unacknowledged_bytes",
        "when_kept",
    )

    def __init__(
        self,
        connection: PublishingConnection,
        publishing: Publishing,
        mixed_topics: MixedTopicPublisher,
        counters: Counters,
        quotas: Quotas,
    ) -> None:
        config = connection.config
        self.connection = connection
        self._publishing = publishing
        self._mixed_topics = mixed_topics
        self._counters = counters
        self._quotas = quotas
        self._mute: ReadMute | None = None  # of a client that was throttled
        self._bytes_max = config.unacknowledged_bytes_max
        self._aliases = InboundAliases(config.topic_alias_max)
        self._window = InboundWindow(Version.V5, config.session.receive_max)
        self._in_turn: deque[Published] = deque()  # of QoS 1 and 2
        self.when_kept: Callable[[], None] | None = None  # called once when nothing is pending
        self.unacknowledged_bytes = 0
        self._is_full = False

    def begin(self, connect: Connect) -> None:
        """Create the window for the version of CONNECT."""
        receive_max = self.connection.config.session.receive_max
        self._window = InboundWindow(connect.version, receive_max)

    def close(self) -> None:
        """Drop the reference to a lost connection, unless an append is pending.

        The two objects refer to each other. Without this, their memory is freed only by the
        garbage collector, which blocks the loop (0.4 s for 20,000 clients).
        """
        if self._mute is not None:
            self._mute.cancel()
        if not self.is_pending:
            del self.connection

    @property
    def is_pending(self) -> bool:
        """Whether any append is pending."""
        publisher = self.connection.publisher
        return (
            self.unacknowledged_bytes > 0
            or bool(self._in_turn)
            or (publisher is not None and publisher.data is not None)
        )

    @property
    def has_quota(self) -> bool:
        """Whether a quota bounds the bytes that the client publishes."""
        return self._meter() is not None

    @property
    def has_exactly_once(self) -> bool:
        """Whether QoS 2 messages are in the window, and count for the Receive Maximum."""
        return self._window.has_exactly_once

    def take(self, run: PublishRun) -> None:
        """Publish a run, or refuse it. Errors: 0x93, 0x94; 0x82 for an unknown alias."""
        connection = self.connection
        properties = run.properties
        if properties is not NO_PROPERTIES and properties.topic_alias is not None:
            run.topic = self._aliases.resolve(properties.topic_alias, run.topic)
            run.properties = without_alias(properties)
        session = connection.session
        assert session is not None
        if run.qos == EXACTLY_ONCE and not session.inbound.shards.keys().isdisjoint(
            run.packet_ids
        ):
            self._take_repeats(run, session)
            return
        if run.qos:
            self._window.open(run)
        run.client_id = connection.client_id
        assert connection.access is not None
        refusal = connection.access.publish_refusal(run.topic, run.qos)
        if refusal is not None:
            self._refuse(run, refusal)
            return
        self._publish(run, session)

    def _take_repeats(self, run: PublishRun, session: "SessionPort") -> None:
        """Take a QoS 2 run with some repeated messages: split it into repeated and new ones.

        Repeated messages are in the log, so they are acknowledged even when rules deny them by
        now: after a refusal the identifier would be free for the client, but still known here.
        """
        start = 0
        for is_known, ids in groupby(run.packet_ids, session.inbound.shards.__contains__):
            part = run.packets(start, start := start + len(list(ids)))
            if is_known:
                self._window.open(part)
                self._publish(part, session)
            else:
                self.take(part)
            if self.connection.is_closing:
                return

    def _publish(self, run: PublishRun, session: "SessionPort") -> None:
        """Append a run, and answer it in the order of the runs."""
        payloads = run.payloads
        if (
            len(payloads) == 1
        ):  # most reads bring one message; the sum costs three times as much
            size_bytes = PACKET_OVERHEAD_BYTES + len(payloads[0])
        else:
            size_bytes = PACKET_OVERHEAD_BYTES * len(payloads) + sum(map(len, payloads))
        published = Published(self, run, size_bytes)
        self._count_in(size_bytes)
        on_done: OnPublished = published
        if run.qos:
            self._in_turn.append(published)
            on_done = self._counters.latency.sampled("PUBLISH", published)
        if self._publishing.publish(run, session, on_done):
            return
        self._withdraw(published)
        self._take_each(run.packets(at, at + 1) for at in range(len(payloads)))

    def take_mixed_topics(self, mixed: MixedTopicPublishes) -> None:
        """Publish messages of several topics as one append, or each by itself. Errors: 0x93."""
        connection = self.connection
        assert connection.access is not None
        mixed.like.client_id = connection.client_id
        if not mixed.qos or self._window.has_room(len(mixed.payloads)):
            published = self._enter(mixed)
            if self._mixed_topics.publish(mixed, connection.access, published):
                return
            self._withdraw(published)
        self._take_each(mixed.runs())

    def _take_each(self, runs: Iterable[PublishRun]) -> None:
        """Take each run by itself, so that an error refuses one of them only."""
        for run in runs:
            self.take(run)
            if self.connection.is_closing:
                return

    def _enter(self, mixed: MixedTopicPublishes) -> Published:
        """Count messages as pending before they are published: a refusal may end the connection."""
        payloads = mixed.payloads
        size_bytes = PACKET_OVERHEAD_BYTES * len(payloads) + sum(map(len, payloads))
        published = Published(self, mixed, size_bytes)
        if mixed.qos:
            self._window.open(mixed)
            self._in_turn.append(published)
        self._count_in(size_bytes)
        return published

    def _withdraw(self, published: Published) -> None:
        """Take back the counts of a run that was not published."""
        if self._quotas.is_active and (meter := self._meter()) is not None:
            meter.refund(published.size_bytes)
        self._uncount(published.size_bytes)
        if published.run.qos:
            last = self._in_turn.pop()
            assert last is published
            self._window.close(published.run)

    def _count_in(self, size_bytes: int) -> None:
        """Add pending bytes; above the bound, hold reads."""
        self.unacknowledged_bytes += size_bytes
        if self.unacknowledged_bytes > self._bytes_max:
            self._is_full = True
            self.connection.hold_reads("unacknowledged")
        if self._quotas.is_active:
            self._charge(size_bytes)

    def _charge(self, size_bytes: int) -> None:
        """Charge the client's quota; above it, read nothing for a while."""
        meter = self._meter()
        wait_ms = 0 if meter is None else meter.charge(size_bytes)
        if wait_ms:
            if self._mute is None:
                self._mute = ReadMute()
            self._mute.begin(self.connection, wait_ms)

    def _meter(self) -> Meter | None:
        connection = self.connection
        return self._quotas.of(connection.principal.name, connection.client_id).produced

    def _uncount(self, size_bytes: int) -> None:
        """Subtract pending bytes; below half of the bound, read on."""
        self.unacknowledged_bytes -= size_bytes
        if self._is_full and self.unacknowledged_bytes <= self._bytes_max // 2:
            self._is_full = False
            self.connection.release_reads("unacknowledged")

    def join(self, run: PublishRun) -> Published:
        """Take over the pending message of ``OneInFlightPublisher.leave``."""
        self._window.open(run)
        size_bytes = PACKET_OVERHEAD_BYTES + len(run.payloads[0])
        published = Published(self, run, size_bytes)
        self.unacknowledged_bytes += size_bytes
        self._in_turn.append(published)
        return published

    def is_receiving(self, packet_ids: Collection[int]) -> bool:
        """Return whether PUBREC is still to be sent for any of these."""
        ids = set(packet_ids)
        return any(
            one.run.qos == EXACTLY_ONCE and not ids.isdisjoint(one.run.packet_ids)
            for one in self._in_turn
        )

    def wait_until_kept(self, then: Callable[[], None]) -> None:
        """Serve nothing more of the client until all that it published is durable."""
        self.connection.wait()
        self.when_kept = partial(self.connection.guard, then)

    def release(self, run: AckRun) -> None:
        """Remove QoS 2 messages from the window: PUBREL came."""
        self._window.release(run)

    def _refuse(self, run: PublishRun, error: MqttError) -> None:
        """Answer a refused run in the order of the runs; QoS 0 is only counted."""
        self._counters.publish_received += len(run.payloads)
        published = Published(self, run, 0)
        if run.qos:
            self._in_turn.append(published)
        self.on_published(published, error)

    def on_published(self, published: Published, error: GatewayError | None) -> None:
        """Note the outcome of a run, and acknowledge all runs whose turn has come."""
        self._uncount(published.size_bytes)
        if error is not None:
            self._note_refusal(published, error)
        if published.run.qos:
            published.is_done = True
            in_turn = self._in_turn
            while in_turn and in_turn[0].is_done:
                self._acknowledge(in_turn.popleft())
        if self.when_kept is not None and not self.is_pending:
            when_kept, self.when_kept = self.when_kept, None
            when_kept()
        connection = self.connection
        if connection.is_leaving:
            connection.hurry()
        if connection.is_lost:
            self.close()

    def _note_refusal(self, published: Published, error: GatewayError) -> None:
        """Set the answer to a refused run: a reason code, or the end of a 3.x connection.

        An acknowledgement of 3.x has no codes. A publish that rules forbid is acknowledged and
        dropped, as Mosquitto does (MQTT 3.1.1: MQTT-3.3.5-2). A publish that may succeed later,
        or is too large for its topic, is not acknowledged: the connection is closed, and the
        client sends it again on its next one. Earlier publishes are acknowledged first. So is one
        whose outcome is unknown, in 5.0 too: a refusal would say that it was not published.
        """
        connection = self.connection
        self._counters.publish_refused += len(published.run.payloads)
        if not published.run.qos:
            self._publishing.live_refused()
        published.code = within(ACK_CODES, reason_code(error))
        published.reason = public_text(error)
        connection.note(type(error).__name__, published.reason)
        published.must_close = isinstance(error, OutcomeUnknown) or (
            connection.version is not Version.V5
            and (error.retriable or isinstance(error, MessageTooLarge))
        )

    def _acknowledge(self, published: Published) -> None:
        run = published.run
        if published.must_close:
            self.connection.disconnect(published.code, published.reason)  # 3.x: only the close
            return
        kind = _PUBACK if run.qos == 1 else _PUBREC
        self._counters.messages_sent += len(run.packet_ids)
        if published.code is _SUCCESS:
            if kind is _PUBACK:
                self._window.close(run)
            self.connection.send(encode_acks(kind, run.packet_ids, self.connection.version))
        else:
            self._window.close(run)
            self.connection.send(*self._refusals(kind, published))

    def _refusals(self, kind: PacketType, published: Published) -> list[bytes]:
        connection = self.connection
        packet_ids, code = published.run.packet_ids, published.code
        if connection.version is Version.V5 and connection.may_send_reasons:
            reason = published.reason[:REASON_CHARS_MAX]
            found = [encode_refusal(kind, one, code, reason) for one in packet_ids]
            if len(found[0]) <= connection.packet_bytes_max:
                return found
        return [encode_acks(kind, packet_ids, connection.version, [code] * len(packet_ids))]
