"""A client that waits for each PUBACK: its next packet is compared with the last one."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, ClassVar, Final, Protocol

from adapters.mqtt.packets.publish_codec import Likeness
from adapters.mqtt.publishing.inbound import Inbound, Published
from adapters.mqtt.publishing.ports import PublishingConnection
from adapters.mqtt.session import State
from adapters.mqtt.wire import PublishRun
from gateway.connection_listener import ConnectionListener
from gateway.errors import GatewayError
from gateway.partition import Partition
from gateway.records.singles import RecordFrame

ONE_IN_FLIGHT_BYTES_MAX: Final = (
    4_096  # below ``unacknowledged_bytes_max``; beyond, other costs matter
)
_QOS_1: Final = b"\x32"  # the first byte: neither DUP nor RETAIN
_NO_IDENTIFIER: Final = b"\x00\x00"
_VARINT_CONTINUES: Final = 128  # Remaining Lengths from here on take two bytes


class Gathering(Protocol):
    """The gathering of packets of all clients; see ``one_in_flight_batches``."""

    def begin(self, lane: "PublisherLane") -> bool:
        """Begin to take a lane's packets in this turn; False when they go the common way."""
        ...

    def fill(self) -> None:
        """Put all that waits into the open round."""
        ...


class OneInFlightConnection(PublishingConnection, Protocol):
    """The connection of a client that waits for each PUBACK."""

    publisher: "OneInFlightPublisher | None"
    inbound: Inbound
    listener: ConnectionListener[Any]
    transport: asyncio.Transport | None
    is_framed: ClassVar[bool]
    is_writable: bool
    bytes_sent: int
    state: State

    def receive(self, data: bytes) -> None:
        """Take bytes of the stream of packets."""
        ...

    def send_now(self, data: bytes) -> None:
        """Write bytes to the socket in this turn of the loop."""
        ...

    def failed_by(self, error: Exception) -> None:
        """Close by an error, or a bug."""
        ...


class PublisherLane:
    """Packets of one-in-flight publishers for one partition, while its lookups hold.

    ``waiting``: those whose packet is not in a round yet, in the order in which packets came.
    ``is_framed``: see ``MqttConnection``, of which a listener makes one kind.
    """

    __slots__ = ("_gathering", "is_framed", "is_over", "listener", "partition", "waiting")

    def __init__(
        self,
        gathering: Gathering,
        partition: Partition,
        connection: OneInFlightConnection,
    ) -> None:
        self.partition = partition
        self.listener = connection.listener
        self.is_framed = connection.is_framed
        self.waiting: list[OneInFlightPublisher] = []
        self.is_over = False
        self._gathering = gathering

    def begin(self) -> bool:
        """Begin a round for its first packet; False when the packet goes the common way."""
        return not self.is_over and self._gathering.begin(self)

    def take_waiting(self) -> "list[OneInFlightPublisher]":
        """Return the waiting publishers, and clear their list."""
        some = self.waiting[:]
        self.waiting.clear()  # not another one: publishers know it
        return some


class OneInFlightPublisher:
    """Expected next packet of one client, and its packet in flight.

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
        gathering: Gathering,
        connection: OneInFlightConnection,
        likeness: Likeness,
        lane: PublisherLane,
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
        self._bytes_max = min(ONE_IN_FLIGHT_BYTES_MAX, connection.config.packet_bytes_max)
        assert connection.transport is not None
        self.write: Callable[[bytes], object] = (
            connection.send_now if connection.is_framed else connection.transport.write
        )
        taking = self._taking()
        next(taking)
        self.take: Callable[[bytes], None] = taking.send

    def begin(self) -> None:
        """Take the bytes of reads from now on; see ``MqttConnection.receive``."""
        connection = self.connection
        connection.publisher = self

    def _end(self) -> None:
        connection = self.connection
        if connection.publisher is self:
            connection.publisher = None
            del self.take  # its generator knows this publisher, and rings are not freed at once

    def _taking(self) -> Generator[None, bytes, None]:
        """Take the bytes of reads until a different packet comes: see ``leave``.

        A generator, whose ``send`` the transport calls: the values that each read is compared with
        are local variables, and no read needs a frame of its own.
        """
        connection = self.connection
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
                    data = yield
                if not self._is_ready_for(data):
                    break
            self.leave()
            connection.receive(data)
        except Exception as fault:  # noqa: BLE001 - see ``failed_by``
            connection.failed_by(fault)
        yield  # nobody sends any more, and an end would be raised

    def _is_ready_for(self, data: bytes) -> bool:
        """Look at a packet that differs from the last one: in size, if it is to go this way."""
        if self.data is not None:
            if data[:1] == _QOS_1:
                self.likeness.may_be_one_in_flight = False  # it does not wait
            return False
        return len(data) != self._size_bytes and self._resize(len(data))

    def _resize(self, size_bytes: int) -> bool:
        """Prepare for packets of another size; False when they cannot be taken here.

        The first packet cannot be taken while an earlier one, published by ``inbound``, is not
        acknowledged, or its acknowledgement is not sent. Later packets are published by
        ``inbound`` only after ``leave``.
        """
        if (
            size_bytes > self._bytes_max
            or self._inbound.unacknowledged_bytes
            or self.connection.out_bytes
        ):
            return False
        length = size_bytes - 2
        head = _QOS_1 + bytes((length & 0x7F,))
        if length >= _VARINT_CONTINUES:
            length -= 1
            head = _QOS_1 + bytes((length & 0x7F | _VARINT_CONTINUES, length >> 7))
        prefix = head + self.likeness.topic_data
        payload_at = len(prefix) + 2 + len(self._tail)
        is_minimal = length >= _VARINT_CONTINUES or len(head) == 2  # noqa: PLR2004 - type and length
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
        """Stop, as another packet comes: the packet in flight joins the order of ``inbound``."""
        self._end()
        if self.data is not None:
            self._gathering.fill()
            if self.data is not None:
                self.published = self._inbound.join(self.run())

    def give_up(self) -> None:
        """Hand the packet to ``inbound``, because routes or rights have changed."""
        run, self.data = self.run(), None
        self._end()
        self.connection.guard(self._inbound.take, run)

    def refuse(self, error: GatewayError) -> None:
        """The log has not taken the packet."""
        if self.published is None:
            self._end()
            self.published = self._inbound.join(self.run())
        self.data = None
        self.published(error)
