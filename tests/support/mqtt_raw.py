"""A blocking MQTT connection for tests: sends any bytes, waits for packets and for the end.

Every wait has a deadline; what is not there by then fails the test and says what came instead.
"""

import contextlib
import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, Self

from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V5, Kind, Properties, Received, WillMessage

ANSWER_S_MAX: Final = 30.0


class RawClient:
    """One connection. ``version`` says how packets that come are read.

    A strict one wants the DISCONNECT that 5.0 says a server SHOULD send, with its code.
    """

    def __init__(
        self,
        port: int,
        *,
        host: str = "127.0.0.1",
        version: int = V5,
        timeout_s: float = ANSWER_S_MAX,
        is_strict: bool = True,
    ) -> None:
        self.version = version
        self.is_strict = is_strict
        self.timeout_s = timeout_s
        self.client_id = ""
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._put_aside: deque[Received] = deque()
        self._packet_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.drop()

    def drop(self) -> None:
        """Go without a word, as when the network fails."""
        self.socket.close()

    def send(self, *data: bytes) -> None:
        """Send all in one piece. A peer that has gone is noticed at the next wait."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(b"".join(data))

    def next_id(self) -> int:
        """Return a packet identifier that this connection has not used."""
        self._packet_id += 1
        return self._packet_id

    def receive(self, kind: Kind | None = None, *, within_s: float | None = None) -> Received:
        """Return the next packet, which must be of ``kind`` when one is given."""
        found: Received | None
        if self._put_aside:
            found = self._put_aside.popleft()
        else:
            found = self._next(time.monotonic() + (within_s or self.timeout_s))
        assert found is not None, f"closed instead of {kind!r}"
        assert kind is None or found.kind is kind, f"{found} instead of {kind!r}"
        return found

    def until_closed(self, *, within_s: float | None = None) -> list[Received]:
        """Return what comes until the server closes the connection."""
        deadline = time.monotonic() + (within_s or self.timeout_s)
        came = []
        while (found := self._next(deadline)) is not None:
            came.append(found)
        return came

    def refused(self, *codes: int, within_s: float | None = None) -> list[Received]:
        """Expect the end: in 5.0 after a DISCONNECT with one of ``codes``, in 3.x without."""
        came = self.until_closed(within_s=within_s)
        if self.version == V5 and (self.is_strict or came):
            assert came, "closed without a DISCONNECT"
            last = came.pop()
            assert last.kind is Kind.DISCONNECT, f"{last} instead of DISCONNECT"
            assert last.code in codes or not (self.is_strict and codes), f"{last.code:#x}"
            assert last.values(wire.Prop.SESSION_EXPIRY) == [], "MQTT-3.14.2-2"
        assert all(found.kind is not Kind.DISCONNECT for found in came), came
        return came

    def rejected(self, *codes: int) -> None:
        """Expect the end of a connection that never was: CONNACK with one of ``codes``, or none.

        MQTT-3.14.0-1: no DISCONNECT. MQTT-3.2.2-6: Session Present is 0.
        """
        came = self.until_closed()
        assert [found.kind for found in came] in ([], [Kind.CONNACK]), came
        for connack in came:
            assert connack.code != 0
            assert connack.code in codes or not (self.is_strict and codes), connack
            assert not connack.session_present
            assert codes or self.version == V5 or not self.is_strict, connack

    def connect(
        self,
        client_id: str = "",
        *,
        clean: bool = True,
        keep_alive_s: int = 0,
        found: Properties = (),
        will: WillMessage | None = None,
        code: int = 0,
    ) -> Received:
        """Send CONNECT and return its CONNACK, whose code must be ``code``."""
        self.client_id = client_id
        self.send(
            wire.connect(
                client_id,
                version=self.version,
                clean=clean,
                keep_alive_s=keep_alive_s,
                found=found,
                will=will,
            )
        )
        answer = self.receive(Kind.CONNACK)
        assert answer.code == code, f"CONNACK code {answer.code:#x}"
        return answer

    def subscribe(self, *filters: tuple[str | bytes, int], found: Properties = ()) -> list[int]:
        """Subscribe to (filter, options) pairs and return the codes; PUBLISHes may not come."""
        packet_id = self.next_id()
        self.send(wire.subscribe(packet_id, filters, found=found, version=self.version))
        answer = self.receive(Kind.SUBACK)
        assert answer.packet_id == packet_id
        return answer.codes

    def subscribe_past_messages(self, *filters: tuple[str | bytes, int]) -> list[int]:
        """Subscribe while PUBLISHes may come, which stay for later calls."""
        packet_id = self.next_id()
        self.send(wire.subscribe(packet_id, filters, version=self.version))
        return self._past_messages(Kind.SUBACK, packet_id).codes

    def _past_messages(self, kind: Kind, packet_id: int) -> Received:
        """Return the next packet that is no PUBLISH; those before it stay for later calls."""
        deadline = time.monotonic() + self.timeout_s
        while (found := self._next(deadline)) is not None and found.kind is Kind.PUBLISH:
            self._put_aside.append(found)
        assert found is not None, f"closed instead of {kind!r}"
        assert (found.kind, found.packet_id) == (kind, packet_id), found
        return found

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        found: Properties = (),
    ) -> None:
        """Publish and wait until it is acknowledged; other packets must not come meanwhile."""
        packet_id = self.next_id()
        self.send(
            wire.publish(
                topic, payload, qos=qos, packet_id=packet_id, retain=retain,
                found=found, version=self.version,
            )
        )  # fmt: skip
        if qos == 1:
            assert self.receive(Kind.PUBACK).packet_id == packet_id
        elif qos:
            assert self.receive(Kind.PUBREC).packet_id == packet_id
            self.send(wire.ack(Kind.PUBREL, packet_id))
            assert self.receive(Kind.PUBCOMP).packet_id == packet_id

    def accept(self, message: Received) -> None:
        """Acknowledge a PUBLISH to its end, as its QoS asks."""
        if message.qos == 1:
            self.send(wire.ack(Kind.PUBACK, message.packet_id))
        elif message.qos:
            self.send(wire.ack(Kind.PUBREC, message.packet_id))
            self._past_messages(Kind.PUBREL, message.packet_id)
            self.send(wire.ack(Kind.PUBCOMP, message.packet_id))

    def messages(self, count: int, *, accept: bool = True) -> list[Received]:
        """Return the next ``count`` PUBLISH packets, acknowledged unless told otherwise."""
        came = []
        for _ in range(count):
            came.append(self.receive(Kind.PUBLISH))
            if accept:
                self.accept(came[-1])
        return came

    def messages_until(self, payload: bytes) -> list[Received]:
        """Return the PUBLISH packets that come before the one with this payload."""
        came: list[Received] = []
        while True:
            [message] = self.messages(1)
            if message.payload == payload:
                return came
            came.append(message)

    def ping(self) -> list[Received]:
        """Send PINGREQ and return what comes before its answer."""
        self.send(wire.PINGREQ)
        came = []
        while (found := self.receive()).kind is not Kind.PINGRESP:
            came.append(found)
        return came

    def _next(self, deadline: float) -> Received | None:
        """Return the next packet, or None at the end of the connection."""
        while (found := self._cut()) is None:
            if not self._more(deadline):
                return None
        return found

    def _more(self, deadline: float) -> bool:
        self.socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            some = self.socket.recv(1 << 16)
        except TimeoutError:
            msg = f"nothing came in time, nor the end; {bytes(self._buffer[:80])!r} is left"
            raise AssertionError(msg) from None
        except OSError:
            return False
        self._buffer += some
        return bool(some)

    def _cut(self) -> Received | None:
        size = shift = 0
        for at in range(1, min(5, len(self._buffer))):
            size |= (self._buffer[at] & 0x7F) << shift
            shift += 7
            if self._buffer[at] < 0x80:
                break
        else:
            return None
        end = at + 1 + size
        if len(self._buffer) < end:
            return None
        first, body = self._buffer[0], bytes(self._buffer[at + 1 : end])
        del self._buffer[:end]
        return Received(first, body, self.version)


def payloads(messages: Sequence[Received]) -> list[bytes]:
    """Return what the messages say."""
    return [message.payload for message in messages]
