"""Connection of one MQTT client: read packets, call their handlers, acknowledge in order."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final

from adapters.mqtt.access.authentication import EnhancedExchange
from adapters.mqtt.access.client_access import ClientAccess
from adapters.mqtt.connection import keep_alive
from adapters.mqtt.connection.disconnect import drop_queued
from adapters.mqtt.connection.one_task import OneTask, Then, Work
from adapters.mqtt.connection.ownership import leave_drained_node, refer_to_owner
from adapters.mqtt.connection.packet_reader import FULL_READ_BYTES, TURN, new_reader
from adapters.mqtt.connection.ports import ConnectionServer
from adapters.mqtt.errors import MqttError, ReasonCode, reason_code
from adapters.mqtt.packets.refusal_packets import can_refuse, last_connack, last_disconnect
from adapters.mqtt.publishing.inbound import Inbound
from adapters.mqtt.publishing.one_in_flight_publisher import OneInFlightPublisher
from adapters.mqtt.session import State
from adapters.mqtt.sessions.client_session import ClientSession
from adapters.mqtt.wire import (
    PACKET_ID_MAX,
    PUBLISHES,
    REMAINING_LENGTH_MAX,
    Connect,
    Packet,
    Version,
)
from gateway.auth.ports import ANONYMOUS, Principal
from gateway.connection import Connection
from gateway.errors import GatewayError, public_text
from gateway.listener import Listener

REQUESTS_WAITING_MAX: Final = 100  # SUBSCRIBE and UNSUBSCRIBE that are being kept


class MqttConnection(Connection, asyncio.Protocol):
    """Connection of one client; sessions see it as a ``ports.SessionConnection``.

    As an ``asyncio.Protocol`` it gets each read as one object. Reads are held for these reasons:
    ``waiting`` (authentication, loading of the session, or a long SUBSCRIBE is under way), ``turn``
    (the read was large, see ``packet_reader``), ``wal`` (the log has more than it can write),
    ``unacknowledged`` and ``requests`` (too many of the client's own wait), ``quota``, ``writes``
    (above ``receiver_bytes_max``), ``drain``. Below that a slow receiver is read from: its
    acknowledgements make room.
    """

    is_framed: ClassVar = False  # whether packets are in frames of another protocol

    def __init__(self, listener: Listener, adapter: ConnectionServer) -> None:
        super().__init__(listener)
        self.adapter = adapter
        self.node = adapter.node
        config = self.config = adapter.config
        self.state = State.AWAIT_CONNECT
        self.version = Version.V3_1_1
        self.connect: Connect | None = None
        self.client_id = ""
        self.principal = Principal(ANONYMOUS, "mqtt", "")
        self.access: ClientAccess | None = None
        self.session: ClientSession | None = None
        self.exchange: EnhancedExchange | None = None
        self.receive_maximum = PACKET_ID_MAX
        self.packet_bytes_max = REMAINING_LENGTH_MAX + 5
        self.topic_alias_maximum = 0
        self.aliases: dict[bytes, int] = {}  # aliases that the server has set
        node = adapter.node
        parts = node.publishing, node.mixed_topics, node.counters, node.quotas
        self.inbound = Inbound(self, *parts)
        self.publisher: OneInFlightPublisher | None = None
        self.session_expiry_interval: int | None = None  # of DISCONNECT
        self.with_will = False  # before CONNACK there is none
        self.silence_s_max: float | None = None
        self._handlers = self.adapter.handlers[self.state]
        self._publishing, self._counters = node.publishing, node.counters
        self.one_in_flight = node.one_in_flight
        self.reader = new_reader(config)
        self._queued: list[Packet] = []
        self._is_waiting = False
        self._requests_count = 0
        self._work = OneTask()
        self.filters_served = 0  # of SUBSCRIBE and UNSUBSCRIBE, since the last rest
        self.is_leaving = False  # the node drains
        self.is_lost = False  # the transport has gone, and the session knows
        self._is_moving = False  # the session is on its way to another node

    # --- reading

    def received(self, size_bytes: int) -> None:
        """See ``Connection``: used by event loops that treat it as a ``BufferedProtocol``."""
        if not self.is_closing:
            self.receive_stream(bytes(self.listener.receive_buffer[:size_bytes]))

    def data_received(self, data: bytes) -> None:
        """See asyncio, and ``Connection.buffer_updated``."""
        if self.is_closing:  # see ``close_gently``
            return
        self.last_received_s = self.listener.now_s
        self.bytes_received += len(data)
        try:
            self.receive_stream(data)
        except Exception as error:  # noqa: BLE001 - see ``failed_by``
            self.failed_by(error)

    def receive(self, data: bytes) -> None:
        """Serve bytes of the stream, cut anywhere; packets before an error are served first."""
        if self.publisher is not None:
            self.publisher.take(data)
            return
        packets = (reader := self.reader).receive(data)
        self._counters.messages_received += len(packets)
        if not reader.has_partial:
            self.frame_started_s = None
        elif packets or self.frame_started_s is None:
            self.frame_started_s = self.listener.now_s
        if self._queued:
            self._queued += packets
        else:
            self._serve(packets)
        if reader.error is not None and not self._queued and not self.is_closing:
            raise reader.error.without_traceback()
        if self.state is not State.CONNECTED:
            self._go_on_before_login()
        elif reader.is_cut or len(data) >= FULL_READ_BYTES:
            self._rest()
        if not self.is_writable and self.out_bytes > self.config.receiver_bytes_max:
            self.hold_reads("writes")
        likeness = reader.likeness
        if (
            likeness is not None
            and likeness.may_be_one_in_flight
            and len(packets) == 1
            and not (self._queued or self._is_waiting or reader.has_partial)
        ):
            self.one_in_flight.admit(self, likeness, packets[0])

    receive_stream = receive  # a WebSocket removes its frames first

    def _rest(self) -> None:
        """Read and serve nothing more in this turn of the loop."""
        if TURN not in self._holds:
            self.hold_reads(TURN)
            self.listener.loop.call_soon(self.release_reads, TURN)

    def _go_on_before_login(self) -> None:
        """Decode the next packet if it may be AUTH; count the bytes that wait for CONNACK."""
        reader = self.reader
        if reader.is_cut and reader.expects_auth and not (self._is_waiting or self.is_closing):
            self.receive(b"")
        else:
            self.keep_before_login(self._kept_bytes())

    def _kept_bytes(self) -> int:
        """Return the size of the incomplete packet that is kept."""
        return self.reader.partial_bytes

    def _leave_publisher(self) -> None:
        if self.publisher is not None:
            self.publisher.leave()

    def released(self) -> None:
        """See ``Connection``: serve the packets that were read already."""
        if self._is_waiting or self.is_closing:
            return
        packets, self._queued = self._queued, []
        self._serve(packets)
        if self.reader.is_cut and not (self._queued or self.is_closing):
            self.receive(b"")
            return
        error = self.reader.error
        if error is not None and not self._queued and not self.is_closing:
            raise error.without_traceback()

    def _serve(self, packets: Sequence[Packet]) -> None:
        for index, packet in enumerate(packets):
            kind = type(packet)
            if self._is_waiting or (
                kind in PUBLISHES and self._publishing.is_saturated and self._hold_for_log()
            ):
                self._queued += packets[index:]
                return
            handle = self._handlers.get(kind)
            if handle is None:
                msg = f"{kind.__name__} while {self.state.name}"
                raise MqttError(ReasonCode.PROTOCOL_ERROR, msg)
            handle(self, packet)
            if self.is_closing:
                return

    def _hold_for_log(self) -> bool:
        self.hold_reads("wal")
        self._publishing.hold(self._on_log_low)
        return True

    def _on_log_low(self) -> None:
        self.release_reads("wal")

    def begin(self, connect: Connect) -> None:
        """Store the limits of CONNECT; CONNACK is bound by them already."""
        self.enter(State.AUTHENTICATING)
        self.connect = connect
        self.version = connect.version
        self.receive_maximum = connect.receive_maximum
        self.packet_bytes_max = connect.maximum_packet_size
        self.topic_alias_maximum = min(connect.topic_alias_maximum, self.config.topic_alias_max)
        self.inbound.begin(connect)

    @property
    def may_send_reasons(self) -> bool:
        """Whether reason strings may go with any packet (MQTT-3.1.2-29)."""
        return self.connect is not None and self.connect.request_problem_information

    def enter(self, state: State) -> None:
        """Move on to the next state."""
        self._leave_publisher()
        if state is State.CONNECTED:
            self.keep_before_login(0)
            self.reader.admit()
        self.state = state
        self._handlers = self.adapter.handlers[state]

    # --- waiting: packets that arrive meanwhile are served afterwards

    def wait(self) -> None:
        """Serve nothing more before ``go_on``."""
        self._leave_publisher()
        self._is_waiting = True
        self.hold_reads("waiting")

    def go_on(self) -> None:
        """Serve the packets that arrived meanwhile, and read on."""
        if self._is_moving:
            return
        self._is_waiting = False
        self.release_reads("waiting")

    def start(self, work: Work, then: Then) -> None:
        """Run ``work``, one at a time; call ``then(result, error)`` if still connected."""
        self._work.start(self, work, then)

    @property
    def is_working(self) -> bool:
        """Whether ``start`` has work under way."""
        return self._work.is_working

    # --- requests that are answered when their changes are durable

    def request_began(self) -> None:
        """Count a request whose changes are being written; above the bound, hold reads."""
        self._requests_count += 1
        if self._requests_count > REQUESTS_WAITING_MAX:
            self.hold_reads("requests")

    def request_ended(self) -> None:
        """Count a request as written; below half of the bound, read on."""
        self._requests_count -= 1
        if self._requests_count <= REQUESTS_WAITING_MAX // 2:
            self.release_reads("requests")

    # --- sending and ending

    def send_packet(self, data: bytes) -> None:
        """Send one packet. Error: 0x95 when it exceeds Maximum Packet Size (MQTT-3.1.2-24)."""
        if len(data) > self.packet_bytes_max:
            msg = f"an answer of {len(data)} bytes, the client takes {self.packet_bytes_max}"
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, msg)
        self.node.counters.messages_sent += 1
        self.send(data)

    def disconnect(
        self, code: ReasonCode, message: str = "", *, server_reference: str | None = None
    ) -> None:
        """Send the reason (5.0: DISCONNECT or CONNACK; 3.x: CONNACK only) and close."""
        bounds, last = (self.version, self.packet_bytes_max), b""
        if self.state is State.CONNECTED:
            last = last_disconnect(code, message, server_reference, *bounds)
        elif self.state is not State.CLOSED and can_refuse(code, self.reader.version):
            last = last_connack(code, message, server_reference, *bounds)
        self.enter(State.CLOSED)
        if (
            0 < len(last) <= self.packet_bytes_max
        ):  # the version has such a packet, and the client accepts its size
            self.node.counters.messages_sent += 1
            self.send(last)
            self.close_gently()
        else:
            self.close()

    def fail(self, error: GatewayError) -> None:
        """See ``Connection``: the client gets the reason code."""
        if self.is_closing:
            return
        self.note(type(error).__name__, str(error))
        if self.reader.version is not None:
            self.version = self.reader.version
        self.disconnect(reason_code(error), public_text(error))

    def taken_over(self) -> None:
        """Close: another connection has this client identifier now (MQTT-3.1.4-3)."""
        self.session = None
        self.disconnect(ReasonCode.SESSION_TAKEN_OVER)

    def leave_node(self) -> None:
        """See ``SessionConnection``."""
        self._is_moving = True
        self.wait()

    def send_away(self) -> None:
        """See ``SessionConnection``: the session is durable, and another node's by now."""
        if not self.is_closing:
            self.guard(refer_to_owner, self, self.client_id)

    def quota_exceeded(self) -> None:
        """Close: ``receiver_bytes_hard_max`` is reached."""
        self.note("QuotaExceeded", "receiver_bytes_hard_max")
        self.disconnect(ReasonCode.QUOTA_EXCEEDED, "too much waits for this receiver")

    def closed(self) -> None:
        """See ``Connection``: detach from the session."""
        self.enter(State.CLOSED)
        self._work.cancel()
        queued, self._queued = self._queued, []
        self._counters.publish_refused += drop_queued(self, queued)
        self._publishing.unhold(self._on_log_low)
        self._counters.bytes_received_closed += self.bytes_received
        self._counters.bytes_sent_closed += self.bytes_sent
        session, self.session = self.session, None
        if session is not None:
            leaving = {"session_expiry_interval": self.session_expiry_interval}
            self.node.sessions.closed(session, self, with_will=self.with_will, **leaving)

    def lost(self) -> None:
        """See ``Connection``."""
        self.is_lost = True
        self.inbound.close()

    def hurry(self) -> None:
        """See ``Connection``: acknowledge what was published, then close."""
        self.is_leaving = True
        self._leave_publisher()
        if not (self.inbound.is_pending or self.state is State.CLOSED):
            leave_drained_node(self)

    def is_busy(self) -> bool:
        """See ``Connection``."""
        return self.inbound.is_pending

    def has_unsaved_work(self) -> bool:
        """See ``Connection``: unacknowledged publishes, or a session that is still attached."""
        return self.inbound.is_pending or self.session is not None

    def flushed(self) -> None:
        """See ``Connection``."""
        if self.session is not None:
            self.session.go_on()

    # --- deadlines and flow control

    def keep_silent_for(self, keep_alive_s: int) -> None:
        """Set the keep alive; 0: none."""
        self.silence_s_max = keep_alive.silence_s_max(keep_alive_s)

    def pause_writing(self) -> None:
        """See asyncio: the client reads slower than the server writes.

        Its acknowledgements are still read.
        """
        self._leave_publisher()
        self.is_writable = False
        self._taken_bytes, self._taken_s = -1, self.listener.now_s

    def check_deadlines(self, now_s: float) -> None:
        """See ``Connection``; close a client that exceeds its keep alive (MQTT-3.1.2-22)."""
        if (
            self.silence_s_max is None
            or self.is_closing
            or self._holds
            or now_s - self.last_received_s <= self.silence_s_max
        ):
            super().check_deadlines(now_s)
            return
        self.note("keep_alive", "closed: silent for one and a half times the keep alive")
        self.guard(partial(self.disconnect, ReasonCode.KEEP_ALIVE_TIMEOUT))

    def overdue(self, now_s: float) -> str | None:
        """See ``Connection``: once connected, the keep alive alone bounds silence."""
        if self.stalled_s(now_s) > self.listener.config.idle_s_max:
            return "idle_s_max"
        return None if self._holds else self.late(now_s)

    def describe(self) -> dict[str, Any]:
        """See ``Connection``."""
        return super().describe() | {
            "client_id": self.client_id,
            "user": self.principal.name,
            "version": {3: "3.1", 4: "3.1.1", 5: "5.0"}[self.version],
        }
