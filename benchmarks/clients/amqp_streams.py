"""A publisher that counts confirms, and a consumer that acknowledges, on sockets of a loop."""

import struct
from typing import Final

from benchmarks.clients.amqp_wire import (
    CONFIRM,
    CONFIRM_START,
    FRAME_END,
    acks_up_to,
    delivery_bytes,
)
from benchmarks.clients.mqtt_streams import UniformStream, Watcher

_TAG: Final = struct.Struct(">Q")
_TAG_AT: Final = 15  # behind the frame's header, class, method and a consumer tag of 3 bytes


class _AmqpStream(UniformStream):
    """A connection whose end fails the run."""

    def __init__(self, flow: Watcher, length: int = 0) -> None:
        super().__init__(length)
        self.flow = flow

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.BufferedProtocol``."""
        super().connection_lost(exc)
        self.flow.fail(f"the broker closed a connection: {bytes(self.buffer[:300])!r}")


class RepeatingPublisher(_AmqpStream):
    """Sends one message again and again; what comes back are confirms, in any order."""

    def __init__(self, flow: Watcher, message: bytes, *, at_once_max: int) -> None:
        super().__init__(flow, CONFIRM.size)
        self.sent = 0
        self.acked = 0
        self._message_bytes = len(message)
        self._table = memoryview(message * at_once_max)
        self._low = 0
        self._singles: set[int] = set()

    def send(self, count: int) -> None:
        """Send ``count`` messages in one write."""
        self.write(self._table[: count * self._message_bytes])
        self.sent += count

    def take(self, end: int) -> None:
        """Count confirms: RabbitMQ sends those of later messages first at times."""
        for *start, tag, multiple, _end in CONFIRM.iter_unpack(self._view_of(end)):
            if tuple(start) != CONFIRM_START or tag <= self._low or tag > self.sent:
                self.flow.fail(f"no confirm: {bytes(self.buffer[:end])!r}")
                return
            if multiple:
                self._low = tag
                self._singles = {one for one in self._singles if one > tag}
            else:
                self._singles.add(tag)
        while self._low + 1 in self._singles:
            self._low += 1
            self._singles.remove(self._low)
        self.acked = self._low + len(self._singles)
        self.flow.moved()

    def _view_of(self, end: int) -> memoryview:
        return memoryview(self.buffer)[:end]


class CountingConsumer(_AmqpStream):
    """Counts deliveries, which all have the length of the first, by their delivery tags.

    It acknowledges ``ack_every`` or more of them at once; 0: never.
    """

    def __init__(self, flow: Watcher, *, ack_every: int) -> None:
        super().__init__(flow)
        self.seen = 0
        self._acked = 0
        self._ack_every = ack_every

    def opening(self, end: int) -> bool:
        """Take the length from the first delivery."""
        self.length = delivery_bytes(self.buffer, end)
        return self.length > 0

    def take(self, end: int) -> None:
        """Check, acknowledge, count."""
        self.seen += end // self.length
        (tag,) = _TAG.unpack_from(self.buffer, end - self.length + _TAG_AT)
        if tag != self.seen or self.buffer[end - 1] != FRAME_END:
            self.flow.fail(f"delivery {tag:,} came as number {self.seen:,}")
            return
        if self._ack_every and self.seen - self._acked >= self._ack_every:
            self.write(acks_up_to(self.seen))
            self._acked = self.seen
        self.flow.moved()
