"""One client's session: its subscriptions, its messages in flight, its positions in the log.

A session stores positions and filters, not a queue of messages. On each feed a connected client
is live, and gets new messages as they come, or it is behind at an offset, because its window was
full or it was disconnected; then it reads the log until it has caught up.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Literal

from adapters.mqtt.codec import encode_acks
from adapters.mqtt.delivery.at_most_once import (
    EXPIRED,
    expiry_s_of,
    fitting_parts,
    form_for,
)
from adapters.mqtt.delivery.mixed_topics import send_mixed_topics
from adapters.mqtt.inflight.open_identifiers import OpenIdentifiers
from adapters.mqtt.inflight.outbox import RETAINED, Outbox, packet_id_of
from adapters.mqtt.ports import (
    FeedPort,
    GroupPort,
    SessionConnection,
    SessionPort,
    SlowReceiverPort,
    SubscriberMatch,
)
from adapters.mqtt.records.mixed_topic_batch import MixedTopicBatch
from adapters.mqtt.sessions.journal import SessionJournal
from adapters.mqtt.sessions.ports import SessionServices
from adapters.mqtt.sessions.read_access import NOTHING
from adapters.mqtt.subscriptions.ended import EndedSubscriptions
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.wire import (
    AckRun,
    PacketType,
    PublishRun,
    Will,
)
from gateway.errors import StorageUnavailable
from gateway.model import Buffer

NOT_FOUND: Final = 0x92


class ClientSession:
    """Session of one client identifier. ``behind``: offsets by partition id, see ``CatchUp``."""

    __slots__ = (
        "behind",
        "client_id",
        "connection",
        "context",
        "deadline_ms",
        "disconnected_unix_ms",
        "ended",
        "expiry_s",
        "filter_bytes",
        "forbidden",
        "groups",
        "holder",
        "host",
        "inbound",
        "is_attached",
        "is_redelivering",
        "journal",
        "live_bytes_max",
        "on_progress",
        "outbox",
        "positions",
        "retained_scans",
        "slow_receivers",
        "subscriptions",
        "username",
        "will",
    )

    is_group: Literal[False] = False

    def __init__(self, client_id: str, context: SessionServices) -> None:
        self.client_id = client_id
        self.context = context
        self.connection: SessionConnection | None = None
        self.username: str | None = None
        self.host = ""  # address of the last connection, for rules; not stored
        self.expiry_s = 0
        self.disconnected_unix_ms = 0  # 0 while it is connected
        self.deadline_ms = 0  # monotonic
        self.will: Will | None = None
        self.subscriptions: dict[str, Subscription] = {}  # by the filter as the client sent it
        self.filter_bytes = 0  # of all subscriptions
        self.ended: EndedSubscriptions[SessionPort] | None = None  # still delivered
        self.forbidden = NOTHING  # subscriptions that rules deny, see ``read_access``
        self.groups: dict[str, GroupPort] = {}
        self.holder = context.lanes.new_holder()  # id, for messages of shared subscriptions
        self.outbox = Outbox()
        self.journal = SessionJournal(self)
        self.inbound = OpenIdentifiers()
        self.behind: dict[int, int] = {}
        # By partition id, where the client is too slow for QoS 0; see ``at_most_once``.
        self.slow_receivers: dict[int, SlowReceiverPort] = {}
        self.live_bytes_max = context.receiver_bytes_max
        self.positions: dict[int, int] = {}  # while disconnected
        # Subscriptions with retained messages still to be sent, and the topic reached.
        self.retained_scans: OrderedDict[str, tuple[Subscription, bytes]] = OrderedDict()
        self.is_attached = False  # CONNACK was sent, and messages are delivered
        self.is_redelivering = False
        self.on_progress: Callable[[], None] | None = (
            None  # set while redelivery waits for room
        )

    @property
    def is_kept(self) -> bool:
        """Whether the session outlives its connection, and so is stored."""
        return self.expiry_s > 0

    @property
    def reads_log(self) -> bool:
        """Whether any subscription that is not shared, current or ended, is of QoS 1 or 2."""
        return bool(self.ended) or any(
            one.qos and one.group is None for one in self.subscriptions.values()
        )

    @property
    def is_ready(self) -> bool:
        """See ``CatchUp``."""
        connection = self.connection
        return (
            connection is not None
            and not connection.is_closing
            and self.is_attached
            and not self.is_redelivering
            and self.outbox.room > 0
            and connection.out_bytes <= self.context.receiver_bytes_max
        )

    def wanted_filters(self) -> Iterator[str]:
        """See ``FollowerPort``: filters of QoS 1 and 2; QoS 0 is delivered live only."""
        for subscription in self.subscriptions.values():
            if subscription.group is None and subscription.qos:
                yield subscription.topic_filter
        if self.ended is not None:
            for one in self.ended.by_number.values():
                yield one.subscription.topic_filter

    # --- sending

    def offer(self, run: PublishRun, match: SubscriberMatch, feed: FeedPort) -> None:
        """Send a new run of QoS 1 or 2, or note the offset from which the log is to be read."""
        if feed.partition_id in self.behind:
            return
        count = len(run.payloads)
        taken = self.take(run, 0, count, match, feed) if self.is_ready else 0
        if taken < count:
            self.behind[feed.partition_id] = run.base_offset + taken

    def take(
        self, run: PublishRun, start: int, stop: int, match: SubscriberMatch, feed: FeedPort
    ) -> int:
        """See ``CatchUp``: messages of QoS 0 count as taken, as they are delivered live only."""
        if match.no_local and run.client_id == self.client_id:
            own = match.for_own()
            if own is None:
                return stop - start
            match = own
        qos = min(run.qos, match.qos)
        if not qos:
            return stop - start
        expiry_s = expiry_s_of(run, self.context.clock)
        if expiry_s == EXPIRED:
            self.context.counters.expired += stop - start
            return stop - start
        count = min(stop - start, self.outbox.room)
        if count <= 0 or not self.is_ready:
            return 0
        retain = run.retain and match.retain_as_published
        self.send_run(
            run,
            start,
            start + count,
            qos=qos,
            retain=retain,
            identifiers=match.identifiers,
            expiry_s=expiry_s,
            partition_id=feed.partition_id,
        )
        return count

    def take_mixed_topics(
        self,
        mixed: MixedTopicBatch,
        indexes: range,
        matches: Mapping[PublishRun, SubscriberMatch],
        feed: FeedPort,
    ) -> int | None:
        """See ``CatchUp``."""
        return send_mixed_topics(self, mixed, indexes, matches, feed.partition_id)

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
        """Send messages of QoS 1 or 2 within the window; journal them for a stored session.

        Return the ranges that were sent: messages that are too large are left out.
        """
        connection = self.connection
        assert connection is not None
        form = form_for(
            connection,
            run,
            qos=qos,
            retain=retain,
            identifiers=identifiers,
            expiry_s=expiry_s,
            may_set_alias=qos == 1 and not self.journal.is_held_up,
        )
        # Messages that are too large count as delivered (MQTT-3.1.2-25).
        parts = fitting_parts(form, start, stop, connection.packet_bytes_max)
        self.context.counters.too_large += stop - start - sum(end - at for at, end in parts)
        for first, end in parts:
            inflight = self.outbox.push(
                end - first,
                qos,
                partition_id=partition_id,
                first_offset=run.base_offset + first,
                retain=retain,
                identifiers=identifiers,
                group=group,
                topics=(run.topic,) if partition_id == RETAINED else (),
                attempt=attempt,
            )
            data = form.with_ids(packet_id_of(inflight.first_seq), first, end)
            self.context.counters.publish_sent += end - first
            if self.is_kept:
                self.journal.add(inflight, data)
            else:
                self.send(connection, data)
        return parts

    def send(self, connection: SessionConnection, *data: Buffer) -> None:
        """Send packets; close a connection above ``receiver_bytes_hard_max``."""
        connection.send(*data)
        if connection.out_bytes > self.context.config.receiver_bytes_hard_max:
            connection.quota_exceeded()

    # --- acknowledgements

    def acked(self, run: AckRun) -> None:
        """Settle messages by PUBACK, PUBREC or PUBCOMP. Error: ``MqttError`` for the wrong one."""
        if run.kind is PacketType.PUBREC:
            self._received(run)
        else:
            qos = 1 if run.kind is PacketType.PUBACK else 2
            self.outbox.settle(run.packet_ids, qos)
            self.note_settled()
        self.go_on()

    def _received(self, run: AckRun) -> None:
        connection = self.connection
        assert connection is not None
        release, unknown = self.outbox.receive(run.packet_ids, run.reason_codes)
        if unknown:
            codes = [NOT_FOUND] * len(unknown)
            connection.send(encode_acks(PacketType.PUBREL, unknown, connection.version, codes))
        self.note_settled()
        if not release:
            return
        data = encode_acks(PacketType.PUBREL, release, connection.version)
        if not self.is_kept:
            connection.send(data)
            return
        # After PUBREL, PUBLISH must not be sent again, not even after a crash: store that first.
        self.context.store.put_state(self, partial(self._release_when_kept, connection, data))

    def _release_when_kept(
        self, connection: SessionConnection, data: Buffer, error: StorageUnavailable | None
    ) -> None:
        if self.connection is not connection:
            return
        if error is None:
            connection.send(data)
        else:
            connection.fail(error)  # PUBREL is sent after the next CONNECT

    def note_settled(self) -> None:
        """Record settled messages: in shared lanes now, in the session at the next checkpoint."""
        outbox = self.outbox
        if outbox.settled:
            self.context.lanes.settle(outbox.take_settled())
        if not self.is_kept:
            outbox.kept(outbox.base)
        elif outbox.wants_state_kept:
            self.context.store.put_state(self)
        else:
            self.context.dirty.add(self)

    def on_state_kept(self, base: int) -> None:
        """Free identifiers: a state with this base of the outbox is durable."""
        was_full = self.outbox.room <= 0
        self.outbox.kept(base)
        if was_full and self.is_ready:
            self.go_on()

    def go_on(self) -> None:
        """Go on with what waits: there may be room again."""
        if self.on_progress is not None:
            self.on_progress()
        if self.retained_scans:
            self.context.retained_scans.send(self)
        if self.behind:
            self.context.catch_up(self)
        for slow_receiver in tuple(self.slow_receivers.values()):
            slow_receiver.go_on()
        for group in self.groups.values():
            group.go_on()

    def on_skipped(self, count: int) -> None:
        """See ``CatchUp``."""
        self.context.counters.backlog_skipped += count

    # --- subscriptions, by the registry that stores them

    def subscribe(
        self,
        items: Sequence[tuple[Subscription, bool]],
        on_done: Callable[[StorageUnavailable | None], None],
    ) -> None:
        """Add subscriptions; ``on_done`` (SUBACK) runs when they are stored, if the session is."""
        self.context.subscribing.subscribe(self, [item for item, _ in items], on_done)

    def after_suback(self, items: Sequence[tuple[Subscription, bool]]) -> None:
        """Send retained messages for subscriptions that ask for them and still exist.

        A filter that still waits for some starts again, and gets all of them once.
        """
        for subscription, may_send in items:
            name = subscription.topic_filter  # shared subscriptions get none
            if not may_send or name not in self.subscriptions or name in self.forbidden:
                continue
            if name.startswith("$SYS/"):
                self.context.retained_scans.send_sys(self, subscription)
            else:
                self.retained_scans[name] = subscription, b""
        if self.retained_scans:
            self.context.retained_scans.send(self)

    def forget_retained(self, filters: Iterable[str]) -> None:
        """Cancel the retained messages that filters still wait for."""
        for name in filters if self.retained_scans else ():
            self.retained_scans.pop(name, None)

    def unsubscribe(
        self, filters: Sequence[str], on_done: Callable[[StorageUnavailable | None], None]
    ) -> list[bool]:
        """Remove subscriptions; return for each filter whether it had one."""
        return self.context.subscribing.unsubscribe(self, filters, on_done)

    def attach(self, connection: SessionConnection) -> None:
        """Start delivery after CONNACK: waiting messages first, then new ones."""
        self.context.attach(self, connection)

    def writable(self) -> None:
        """Go on: the socket has room again."""
        self.go_on()
