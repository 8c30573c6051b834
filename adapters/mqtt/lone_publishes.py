"""The way in for who waits for each PUBACK: one QoS 1 PUBLISH at a time, much like the last one.

There is no run to gain by then, so what many such clients bring in one turn of the loop is taken
together: gathered until the coalescer appends its round, stored as ``SingleRecords``, and
acknowledged in one go. What a message depends on (its route, its rights, what is the same in all
records of its publisher) is looked up once, and holds until a revision changes; whatever is odd
goes the way of ``inbound``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from adapters.mqtt.access import Access
from adapters.mqtt.counters import Counters
from adapters.mqtt.delayed import DELAYED_PREFIX
from adapters.mqtt.mapping import header_block
from adapters.mqtt.publish_codec import Likeness
from adapters.mqtt.routes import Routes
from adapters.mqtt.session import State
from adapters.mqtt.wire import Packet, PublishRun
from gateway.clock import Clock
from gateway.coalescer import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Coalescer
from gateway.connection import send_each
from gateway.errors import GatewayError
from gateway.model import HEADER_BYTES
from gateway.partition import Partition
from gateway.single_records import RecordFrame, SingleRecords
from gateway.topics import TopicManager

if TYPE_CHECKING:  # connections know their publisher, feeds what it hands to them
    from adapters.mqtt.connection import MqttConnection
    from adapters.mqtt.feed_set import FeedSet
    from adapters.mqtt.inbound import Published

LONE_BYTES_MAX: Final = 4_096  # a larger packet: other costs matter more
_QOS_1: Final = b"\x32"  # the first octet: neither DUP nor RETAIN
_PUBACK: Final = b"\x40\x02"
_NO_PACKET_ID: Final = b"\0\0"
_TWO_OCTETS: Final = 128  # Remaining Lengths from here on take two octets


class LonePublisher:
    """What one client's next packet must look like, and the one that is on its way.

    A packet that is taken here is acknowledged before the next one is taken, so there is nothing
    to count and no order to keep. ``leave`` puts it into the line of ``inbound``.
    """

    __slots__ = (
        "_bytes_max",
        "_epoch",
        "_gathering",
        "_id_at",
        "_inbound",
        "_key",
        "_prefix",
        "_size_bytes",
        "_tail",
        "_tail_at",
        "connection",
        "data",
        "frame",
        "headers",
        "likeness",
        "partition",
        "payload_at",
        "published",
    )

    def __init__(
        self,
        gathering: "LonePublishes",
        connection: "MqttConnection",
        likeness: Likeness,
        partition: Partition,
        record: tuple[bytes, bytes],
    ) -> None:
        """``record``: key and encoded headers."""
        self.connection = connection
        self.likeness = likeness
        self.partition = partition
        self.published: Published | None = None  # in the line of ``inbound``, once it has left
        self.data: bytes | None = None  # the packet that is on its way
        self.frame: RecordFrame
        self.payload_at = 0
        self._key, self.headers = record
        self._gathering = gathering
        self._epoch = gathering.epoch
        self._inbound = connection.inbound
        self._tail = likeness.tail
        self._prefix = b""
        self._id_at = self._tail_at = 0
        self._size_bytes = -1
        config = connection.config
        self._bytes_max = min(
            LONE_BYTES_MAX, config.packet_bytes_max, config.unacknowledged_bytes_max
        )

    def take(self, data: bytes) -> bool:
        """Take what one read brought, or return False with nothing done."""
        if self.data is not None:
            if data[:1] == _QOS_1:
                self.likeness.may_be_lone = False  # it does not wait
            return False
        if len(data) != self._size_bytes and not self._resize(len(data)):
            return False
        gathering = self._gathering
        if (
            not data.startswith(self._prefix)
            or (self._tail and not data.startswith(self._tail, self._tail_at))
            or self._epoch is not gathering.epoch
            or self._inbound.unacknowledged_bytes
            or data[self._id_at : self._tail_at] == _NO_PACKET_ID
            or (not gathering.waiting and not gathering.begin())
        ):
            return False
        self.data = data
        gathering.waiting.append(self)
        return True

    def _resize(self, size_bytes: int) -> bool:
        """Be ready for packets of another size; False when they are none for this way."""
        if size_bytes > self._bytes_max:
            return False
        length = size_bytes - 2
        head = _QOS_1 + bytes((length & 0x7F,))
        if length >= _TWO_OCTETS:
            length -= 1
            head = _QOS_1 + bytes((length & 0x7F | _TWO_OCTETS, length >> 7))
        prefix = head + self.likeness.topic_octets
        payload_at = len(prefix) + 2 + len(self._tail)
        is_minimal = length >= _TWO_OCTETS or len(head) == 2  # noqa: PLR2004 - type and length
        if not is_minimal or payload_at > size_bytes:
            return False
        self._prefix, self._size_bytes = prefix, size_bytes
        self._id_at, self._tail_at, self.payload_at = len(prefix), len(prefix) + 2, payload_at
        self.frame = RecordFrame(self._key, self.headers, size_bytes - payload_at)
        return True

    def answer(self) -> tuple["MqttConnection", bytes]:
        """Be ready for the next packet; return what acknowledges this one, and where."""
        data, self.data = self.data, None
        assert data is not None
        return self.connection, _PUBACK + data[self._id_at : self._tail_at]

    def run(self) -> PublishRun:
        """Return the packet as ``inbound`` knows it."""
        assert self.data is not None
        run = self.likeness.decode(self.data)
        assert run is not None
        return run

    def leave(self) -> None:
        """Something else comes on the connection: what is on its way stands in line from now."""
        self.connection.lone = None
        if self.data is not None:
            self._gathering.fill()
            if self.data is not None:
                self.published = self._inbound.join(self.run())

    def give_up(self) -> None:
        """What holds for all has changed meanwhile: let ``inbound`` look at the packet."""
        run, self.data = self.run(), None
        self.connection.lone = None
        self.connection.guard(self._inbound.take, run)

    def refuse(self, error: GatewayError) -> None:
        """The log has not taken the packet."""
        if self.published is None:
            self.connection.lone = None
            self.published = self._inbound.join(self.run())
        self.data = None
        self.published(error)


class LoneMessages:
    """The messages of one append, for live readers: runs are made when somebody wants them."""

    __slots__ = ("_payloads", "_publishers")

    def __init__(self, publishers: Sequence[LonePublisher], payloads: Sequence[bytes]) -> None:
        self._publishers = publishers
        self._payloads = payloads

    def runs(self) -> list[PublishRun]:
        """Return a run for each message, in the order of their offsets."""
        return [
            publisher.likeness.message(payload, publisher.connection.client_id)
            for publisher, payload in zip(self._publishers, self._payloads, strict=True)
        ]


class LonePublishes:
    """Gathers what lone publishers bring until the coalescer appends.

    ``epoch`` changes with everything that was looked up for publishers. ``waiting``: those whose
    packet is not in a round yet.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - its surroundings, made once
        self,
        clock: Clock,
        counters: Counters,
        coalescer: Coalescer,
        topics: TopicManager,
        routes: Routes,
        feeds: "FeedSet",
        access: Access,
        is_saturated: Callable[[], bool],
    ) -> None:
        self.epoch = object()
        self.waiting: list[LonePublisher] = []
        self._clock = clock
        self._counters = counters
        self._coalescer = coalescer
        self._topics = topics
        self._routes = routes
        self._feeds = feeds
        self._authorizer = access.authorizer
        self._is_saturated = is_saturated
        self._authorizer_revision = self._topics_revision = -1
        coalescer.before_seal.append(self.fill)

    def publisher(
        self, connection: "MqttConnection", likeness: Likeness, packet: Packet
    ) -> LonePublisher | None:
        """Return how what is like ``packet`` is taken from now on; None: as ``packet`` was."""
        topic, access = likeness.topic, connection.access
        if (
            type(packet) is not PublishRun
            or packet.topic != topic
            or topic.startswith(DELAYED_PREFIX)
            or access is None
            or connection.state is not State.CONNECTED
            or not connection.is_writable
            or connection.inbound.has_exactly_once
        ):
            return None
        if not self._is_current():
            self.fill()
            self._renew()
        if access.publish_refusal(topic, 1) is not None:
            return None
        routed = self._routes.find(topic, 1)
        try:
            partition = self._feeds.target(routed)
        except GatewayError:
            return None
        run = likeness.message(b"", connection.client_id)
        record = (routed.key, header_block(run, routed, connection.client_id))
        return LonePublisher(self, connection, likeness, partition, record)

    def _is_current(self) -> bool:
        """Say whether all that was looked up still holds."""
        return (
            self._authorizer.revision == self._authorizer_revision
            and self._topics.revision == self._topics_revision
        )

    def _renew(self) -> None:
        """Have everything looked up again."""
        self._authorizer_revision = self._authorizer.revision
        self._topics_revision = self._topics.revision
        self.epoch = object()

    def begin(self) -> bool:
        """The first of a round comes; False while the log has more than it can write."""
        if self._is_saturated():
            return False
        self._coalescer.schedule()
        return True

    def fill(self) -> None:
        """Put all that waits into the open round."""
        waiting = self.waiting
        if not waiting:
            return
        self.waiting = []
        counters = self._counters
        counters.messages_received += len(waiting)
        if not self._is_current():
            self._renew()
            for publisher in waiting:
                publisher.give_up()
            return
        counters.publish_received += len(waiting)
        now_unix_ms = self._clock.unix_ms()
        by_partition: dict[Partition, list[LonePublisher]] = {}
        for publisher in waiting:
            some = by_partition.get(publisher.partition)
            if some is None:
                by_partition[publisher.partition] = [publisher]
            else:
                some.append(publisher)
        for partition, some in by_partition.items():
            largest_bytes = max([publisher.frame.size_bytes for publisher in some])
            bytes_max = min(BATCH_BYTES_MAX, partition.topic.settings.message_bytes_max)
            count = min(BATCH_RECORDS_MAX, (bytes_max - HEADER_BYTES) // largest_bytes) or 1
            for start in range(0, len(some), count):
                self._add(partition, some[start : start + count], now_unix_ms)

    def _add(
        self, partition: Partition, some: Sequence[LonePublisher], now_unix_ms: int
    ) -> None:
        payloads = [one.data[one.payload_at :] for one in some]  # type: ignore[index]  # waits
        records = SingleRecords(
            [one.frame for one in some], payloads, now_unix_ms, LoneMessages(some, payloads)
        )
        try:
            self._coalescer.add(partition, records, partial(self._done, some))
        except GatewayError:  # of one of them, perhaps: each gets an answer of its own
            self._counters.publish_received -= len(some)
            for publisher in some:
                publisher.give_up()

    def _done(self, some: Sequence[LonePublisher], error: GatewayError | None) -> None:
        """The log has all of them, or none."""
        if error is not None:
            for publisher in reversed(some):
                publisher.refuse(error)
            return
        alone = [publisher for publisher in some if publisher.published is None]
        self._counters.messages_sent += len(alone)
        send_each([publisher.answer() for publisher in alone])
        if len(alone) < len(some):
            for publisher in some:
                if publisher.published is not None:
                    publisher.data = None
                    publisher.published(None)
