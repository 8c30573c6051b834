"""Back-pressure on one connection: reads are held while what it publishes has no room."""

from typing import Final, Protocol

from adapters.amqp.node import AmqpNode
from adapters.amqp.v091.framing import METHOD, PUBLISH, Frame
from adapters.amqp.v091.methods.connection import ConnectionBlocked, ConnectionUnblocked
from adapters.amqp.v091.methods.model import Method

BLOCKED: Final = "connection.blocked"  # capability of clients that want to know
WAL: Final = "wal"
DISK: Final = "disk"
_REASON: Final = "low on disk"


class ThrottledConnection(Protocol):
    """The connection, as it is throttled."""

    node: AmqpNode
    client_capabilities: frozenset[str]

    def hold_reads(self, reason: str) -> None:
        """Stop reading."""
        ...

    def release_reads(self, reason: str) -> None:
        """Read again."""
        ...

    def send_method(self, number: int, method: Method) -> None:
        """Send a method on a channel."""
        ...


class Throttle:
    """Holds of one connection's reads: ``wal`` and ``disk``.

    Of a full storage only publishers are held, from their next publish on: clients that consume
    make room.
    """

    __slots__ = ("_append_queue", "_connection", "_disk_alarm", "held_for")

    def __init__(self, connection: ThrottledConnection) -> None:
        self._connection = connection
        node = connection.node
        self._append_queue = node.kernel.broker.append_queue
        self._disk_alarm = node.disk_alarm
        self.held_for = ""
        """``wal`` or ``disk`` while reads are held for it."""

    def must_hold(self, frame: Frame) -> bool:
        """Hold reads if there is no room for a frame; it is kept until then."""
        if self._append_queue.is_saturated:
            self._hold(WAL)
            self._append_queue.hold(self._on_log_low)
            return True
        if not self._disk_alarm.is_raised:
            return False
        if frame.kind != METHOD or frame.payload[:4] != PUBLISH:
            return False
        self._hold(DISK)
        self._disk_alarm.hold(self._on_room)
        if BLOCKED in self._connection.client_capabilities:
            self._connection.send_method(0, ConnectionBlocked(_REASON))
        return True

    def _hold(self, reason: str) -> None:
        self.held_for = reason
        self._connection.hold_reads(reason)

    def _release(self, reason: str) -> None:
        self.held_for = ""
        self._connection.release_reads(reason)

    def _on_log_low(self) -> None:
        self._release(WAL)

    def _on_room(self) -> None:
        if BLOCKED in self._connection.client_capabilities:
            self._connection.send_method(0, ConnectionUnblocked())
        self._release(DISK)

    def close(self) -> None:
        """Hold nothing any more: the connection has ended."""
        self._append_queue.unhold(self._on_log_low)
        self._disk_alarm.unhold(self._on_room)
