"""Pending wills: messages that are published for disconnected clients after a delay.

A will waits for its delay or for the end of the session, whichever comes first (MQTT 5.0 section
3.1.3.2.2). The time is counted by the monotonic clock, so no step of the wall clock moves it. A
client that resumes its session in time cancels its will (MQTT-3.1.3-9).

A will as bytes, for the session store (integers are big-endian):

    version u8 = 0, flags u8 (bits 0 and 1: QoS, bit 2: retain), delay interval u32 (s),
    length of the topic u16, length of the properties u32, topic (UTF-8), properties (as in
    PUBLISH, their own length first), payload
"""

import asyncio
import heapq
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from adapters.mqtt.packets.properties import (
    decode_publish_properties,
    encode_publish_properties,
)
from adapters.mqtt.wire import Will
from gateway.clock import Clock
from gateway.errors import InvalidRecord

PUBLISHED_PER_TURN_MAX: Final = 1_000
"""Wills that one turn of the loop publishes; a whole fleet may go at once."""

_VERSION: Final = 0
_HEAD: Final = struct.Struct(">BBIHI")
_QOS_MASK: Final = 0x03
_RETAIN_MASK: Final = 0x04
_STALE_ROOM: Final = 64  # entries that do not hold any more, beside as many as do
_MS_PER_S: Final = 1_000


def delay_s(will: Will, session_expiry_interval_s: int) -> int:
    """Return the delay of a will: its own, or the session's expiry when that is shorter."""
    return min(will.delay_interval, session_expiry_interval_s)


def encode_will(will: Will) -> bytes:
    """Return a will as bytes; ``decode_will`` reads them."""
    topic = will.topic.encode()
    properties = encode_publish_properties(will.properties)
    flags = will.qos | (_RETAIN_MASK if will.retain else 0)
    head = _HEAD.pack(_VERSION, flags, will.delay_interval, len(topic), len(properties))
    return b"".join((head, topic, properties, will.payload))


def decode_will(data: bytes) -> Will:
    """Return the will that ``encode_will`` made bytes of.

    Error: ``InvalidRecord`` for a version that a later release wrote.
    """
    version, flags, delay_interval, topic_bytes, properties_bytes = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise InvalidRecord(f"a stored will has version {version}, {_VERSION} is known")
    properties_at = _HEAD.size + topic_bytes
    payload_at = properties_at + properties_bytes
    return Will(
        topic=data[_HEAD.size : properties_at].decode(),
        payload=data[payload_at:],
        qos=flags & _QOS_MASK,
        retain=bool(flags & _RETAIN_MASK),
        properties=decode_publish_properties(data[properties_at:payload_at]),
        delay_interval=delay_interval,
    )


class PendingWill(NamedTuple):
    """A will whose time is ``due_ms`` (monotonic)."""

    client_id: str
    will: Will
    due_ms: int


class PendingWills:
    """Pending wills and their due times, one a client. Pure: times are arguments (monotonic ms)."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingWill] = {}
        self._heap: list[tuple[int, str]] = []  # some of them do not hold any more

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def next_due_ms(self) -> int | None:
        """Time at which ``due`` has wills to return, or a bit earlier; None when no will waits."""
        return self._heap[0][0] if self._heap else None

    def put(self, pending: PendingWill) -> None:
        """Let a will wait; another one of that client is forgotten."""
        self._pending[pending.client_id] = pending
        heapq.heappush(self._heap, (pending.due_ms, pending.client_id))
        if len(self._heap) > 2 * len(self._pending) + _STALE_ROOM:
            # A client that comes and goes leaves an entry each time, for as long as its delay.
            self._heap = [(one.due_ms, one.client_id) for one in self._pending.values()]
            heapq.heapify(self._heap)

    def pop(self, client_id: str) -> Will | None:
        """Return a client's will, which waits no more."""
        pending = self._pending.pop(client_id, None)
        return None if pending is None else pending.will

    def due(self, now_ms: int, *, count_max: int) -> list[PendingWill]:
        """Return wills whose time has come, the earliest first; they wait no more."""
        found: list[PendingWill] = []
        while self._heap and self._heap[0][0] <= now_ms and len(found) < count_max:
            due_ms, client_id = heapq.heappop(self._heap)
            pending = self._pending.get(client_id)
            if pending is not None and pending.due_ms == due_ms:
                del self._pending[client_id]
                found.append(pending)
        return found


class Wills:
    """The wills of the node's clients. One timer, set for the earliest.

    Sessions bound them: there is at most one for each that is kept.
    """

    def __init__(self, clock: Clock, publish: Callable[[str, Will], None]) -> None:
        """``publish`` takes the client identifier and the will; it must not raise."""
        self._clock = clock
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._pending = PendingWills()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return len(self._pending)

    def schedule(self, client_id: str, will: Will, delay_s: int) -> None:
        """Publish a will after ``delay_s``; without a delay that is done when this returns."""
        if delay_s <= 0:
            self._pending.pop(client_id)
            self._publish(client_id, will)
            return
        due_ms = self._clock.monotonic_ms() + delay_s * _MS_PER_S
        self._pending.put(PendingWill(client_id, will, due_ms))
        self._set_timer()

    def cancel(self, client_id: str) -> bool:
        """Forget a client's will: it is back in its session (MQTT-3.1.3-9). Was there one?"""
        return self._pending.pop(client_id) is not None

    def end(self, client_id: str) -> bool:
        """Publish a client's will now: its session has ended (MQTT-3.1.2-8). Was there one?"""
        will = self._pending.pop(client_id)
        if will is None:
            return False
        self._publish(client_id, will)
        return True

    def run_due(self) -> None:
        """Publish the wills whose time has come, a bounded number each turn of the loop."""
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for client_id, will, _ in self._pending.due(now_ms, count_max=PUBLISHED_PER_TURN_MAX):
            self._publish(client_id, will)
        self._set_timer()

    def close(self) -> None:
        """Publish nothing any more: a node that stops leaves wills to the session store."""
        self._pending = PendingWills()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        due_ms = self._pending.next_due_ms
        if due_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        wait_ms = max(due_ms - self._clock.monotonic_ms(), 0)
        self._timer = self._loop.call_later(wait_ms / _MS_PER_S, self.run_due)
