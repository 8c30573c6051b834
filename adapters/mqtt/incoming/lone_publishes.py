"""The way in for who waits for each PUBACK: one QoS 1 PUBLISH at a time, much like the last one.

There is no run to gain by then, so what many such clients bring in one turn of the loop is taken
together: gathered until the coalescer appends its round, stored as ``SingleRecords``, and
acknowledged in one go. What a message depends on (its route, its rights, what is the same in all
records of its publisher) is looked up once, and holds until a revision changes; whatever is odd
goes the way of ``inbound``.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from adapters.mqtt.figures.counters import Counters
from adapters.mqtt.incoming.delayed import DELAYED_PREFIX
from adapters.mqtt.mapping import header_block
from adapters.mqtt.packets.publish_codec import Likeness
from adapters.mqtt.rights.access import Access
from adapters.mqtt.routes import Routes
from adapters.mqtt.session import State
from adapters.mqtt.wire import Packet, PublishRun
from gateway.clock import Clock
from gateway.coalescer import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Coalescer
from gateway.errors import GatewayError
from gateway.listener import Listener
from gateway.model import HEADER_BYTES
from gateway.partition import Partition
from gateway.records.singles import RecordFrame, SingleRecords
from gateway.topics.manager import TopicManager

if TYPE_CHECKING:  # connections know their publisher, feeds what it hands to them
    from adapters.mqtt.connection import MqttConnection
    from adapters.mqtt.incoming.inbound import Published
    from adapters.mqtt.outgoing.feed_set import FeedSet

LONE_BYTES_MAX: Final = 4_096  # below ``unacknowledged_bytes_max``; beyond, other costs matter
_QOS_1: Final = b"\x32"  # the first octet: neither DUP nor RETAIN
_PUBACK: Final = b"\x40\x02"
_PUBACK_BYTES: Final = 4
_NO_IDENTIFIER: Final = b"\x00\x00"
_TWO_OCTETS: Final = 128  # Remaining Lengths from here on take two octets


class _Lane:
    """Where lone publishers of one partition gather, as long as what was looked up holds.

    ``waiting``: those whose packet is not in a round yet, in the order in which packets came.
    """

    __slots__ = ("_gathering", "is_over", "listener", "partition", "waiting")

    def __init__(
        self, gathering: "LonePublishes", partition: Partition, listener: Listener
    ) -> None:
        self.partition = partition
        self.listener = listener
        self.waiting: list[LonePublisher] = []
        self.is_over = False
        self._gathering = gathering

    def begin(self) -> bool:
        """The first of a round comes; False when it is to go the other way."""
        return not self.is_over and self._gathering.begin(self)

    def take_waiting(self) -> "list[LonePublisher]":
        """Return those who wait, who do not any more."""
        some = self.waiting[:]
        self.waiting.clear()  # not another one: publishers know it
        return some


class LonePublisher:
    """What one client's next packet must look like, and the one that is on its way.

    A packet that is taken here is acknowledged before the next one is taken, so there is nothing
    to count and no order to keep. ``leave`` puts it into the line of ``inbound``.
    """

    __slots__ = (
        "_bytes_max",
        "_gathering",
        "_inbound",
        "_key",
        "_lane",
        "_prefix",
        "_size_bytes",
        "_tail",
        "connection",
        "data",
        "frame",
        "headers",
        "id_at",
        "likeness",
        "payload_at",
        "published",
        "tail_at",
        "take",
        "write",
    )

    def __init__(
        self,
        gathering: "LonePublishes",
        connection: "MqttConnection",
        likeness: Likeness,
        lane: _Lane,
        record: tuple[bytes, bytes],
    ) -> None:
        """``record``: key and encoded headers."""
        self.connection = connection
        self.likeness = likeness
        self.published: Published | None = None  # in the line of ``inbound``, once it has left
        self.data: bytes | None = None  # the packet that is on its way
        self.frame: RecordFrame
        self.payload_at = self.id_at = self.tail_at = 0
        self._key, self.headers = record
        self._gathering = gathering
        self._lane = lane
        self._inbound = connection.inbound
        self._tail = likeness.tail
        self._prefix = b""
        self._size_bytes = -1
        self._bytes_max = min(LONE_BYTES_MAX, connection.config.packet_bytes_max)
        self.write = connection.writer
        taking = self._taking()
        next(taking)
        self.take: Callable[[bytes], None] = taking.send

    def _taking(self) -> Generator[None, bytes, None]:
        """Take what reads bring, until something else comes: see ``leave``.

        A generator, whose ``send`` the transport calls: what each read is compared with is in
        locals, and none needs a frame of its own.
        """
        connection, listener = self.connection, self.connection.listener
        waiting, begin, tail = self._lane.waiting, self._lane.begin, self._tail
        data = yield
        try:
            while True:
                prefix, size_bytes = self._prefix, self._size_bytes
                id_at, tail_at = self.id_at, self.tail_at
                while (
                    len(data) == size_bytes
                    and self.data is None
                    and data.startswith(prefix)
                    and (not tail or data.startswith(tail, tail_at))
                    and data[id_at:tail_at] != _NO_IDENTIFIER
                    and (waiting or begin())
                ):
                    self.data = data
                    waiting.append(self)
                    connection.last_received_s = listener.now_s
                    connection.bytes_received += size_bytes
                    data = yield
                if not self._is_ready_for(data):
                    break
            self.leave()
            connection.take_other(data)
        except Exception as fault:  # noqa: BLE001 - see ``failed_by``
            connection.failed_by(fault)
        yield  # nobody sends any more, and an end would be raised

    def _is_ready_for(self, data: bytes) -> bool:
        """Look at a packet that differs from the last one: in size, if it is to go this way."""
        if self.data is not None:
            if data[:1] == _QOS_1:
                self.likeness.may_be_lone = False  # it does not wait
            return False
        return len(data) != self._size_bytes and self._resize(len(data))

    def _resize(self, size_bytes: int) -> bool:
        """Be ready for packets of another size; False when they are none for this way.

        Nor is the first one while what came before it, another way, is not acknowledged. Nothing
        comes that way later, but for who has left.
        """
        if size_bytes > self._bytes_max or self._inbound.unacknowledged_bytes:
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
        self.id_at, self.tail_at = len(prefix), len(prefix) + 2
        self.payload_at = payload_at
        self.frame = RecordFrame(self._key, self.headers, size_bytes - payload_at)
        return True

    def run(self) -> PublishRun:
        """Return the packet as ``inbound`` knows it."""
        assert self.data is not None
        run = self.likeness.decode(self.data)
        assert run is not None
        return run

    def leave(self) -> None:
        """Something else comes on the connection: what is on its way stands in line from now."""
        self.connection.end_lone()
        if self.data is not None:
            self._gathering.fill()
            if self.data is not None:
                self.published = self._inbound.join(self.run())

    def give_up(self) -> None:
        """What holds for all has changed meanwhile: let ``inbound`` look at the packet."""
        run, self.data = self.run(), None
        self.connection.end_lone()
        self.connection.guard(self._inbound.take, run)

    def refuse(self, error: GatewayError) -> None:
        """The log has not taken the packet."""
        if self.published is None:
            self.connection.end_lone()
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
    """Gathers what lone publishers bring until the coalescer appends."""

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
        self._clock = clock
        self._counters = counters
        self._coalescer = coalescer
        self._topics = topics
        self._routes = routes
        self._feeds = feeds
        self._authorizer = access.authorizer
        self._is_saturated = is_saturated
        self._authorizer_revision = self._topics_revision = -1
        self._lanes: dict[tuple[Partition, Listener], _Lane] = {}
        self._begun: list[_Lane] = []  # those of the open round
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
        place = partition, connection.listener
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = _Lane(self, *place)
        run = likeness.message(b"", connection.client_id)
        record = (routed.key, header_block(run, routed, connection.client_id))
        return LonePublisher(self, connection, likeness, lane, record)

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
        for lane in self._lanes.values():
            lane.is_over = True
        self._lanes = {}

    def begin(self, lane: _Lane) -> bool:
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

    def _put(self, lane: _Lane, some: list[LonePublisher]) -> None:
        now_unix_ms = self._clock.unix_ms()
        bytes_max = min(BATCH_BYTES_MAX, lane.partition.topic.settings.message_bytes_max)
        largest_bytes = max([publisher.frame.size_bytes for publisher in some])
        count = min(BATCH_RECORDS_MAX, (bytes_max - HEADER_BYTES) // largest_bytes) or 1
        for start in range(0, len(some), count):
            self._add(lane, some[start : start + count], now_unix_ms)

    def _add(self, lane: _Lane, some: Sequence[LonePublisher], now_unix_ms: int) -> None:
        payloads = [one.data[one.payload_at :] for one in some]  # type: ignore[index]  # waits
        records = SingleRecords(
            [one.frame for one in some], payloads, now_unix_ms, LoneMessages(some, payloads)
        )
        try:
            self._coalescer.add(lane.partition, records, partial(self._done, lane, some))
        except GatewayError:  # of one of them, perhaps: each gets an answer of its own
            self._counters.publish_received -= len(some)
            for publisher in some:
                publisher.give_up()

    def _done(
        self, lane: _Lane, some: Sequence[LonePublisher], error: GatewayError | None
    ) -> None:
        """The log has all of them, or none."""
        if error is not None:
            for publisher in reversed(some):
                publisher.refuse(error)
            return
        left = []
        for one in some:
            if one.published is not None:
                left.append(one)
                continue
            data, one.data = one.data, None  # ready for the next packet
            connection = one.connection
            connection.bytes_sent += _PUBACK_BYTES
            try:
                one.write(_PUBACK + data[one.id_at : one.tail_at])  # type: ignore[index]  # waits
            except Exception as fault:  # noqa: BLE001 - a bug that one meets is no other's
                connection.failed_by(fault)
        answered = len(some) - len(left)
        lane.listener.socket_writes += answered
        self._counters.messages_sent += answered
        for publisher in left:
            assert publisher.published is not None
            publisher.data = None
            publisher.published(None)
