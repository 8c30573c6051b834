"""Connection of one AMQP 0-9-1 client: reads frames, hands them to channels, sends."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from adapters.amqp.node import AmqpNode
from adapters.amqp.permissions import Access
from adapters.amqp.v091.authentication import mechanisms_offered
from adapters.amqp.v091.channel import Channel
from adapters.amqp.v091.channels import Channels, Handler
from adapters.amqp.v091.client_facts import ClientFacts
from adapters.amqp.v091.errors import AmqpFault, FrameFault, ReplyCode, to_fault
from adapters.amqp.v091.framing import (
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    PROTOCOL_HEADERS,
    Frame,
    FrameReader,
    encode_method_frame,
    index_of,
)
from adapters.amqp.v091.heartbeats import Heartbeats
from adapters.amqp.v091.kept_bytes import KeptBytes
from adapters.amqp.v091.methods.codec import decode_method
from adapters.amqp.v091.methods.connection import ConnectionClose, ConnectionStart
from adapters.amqp.v091.methods.model import Method
from adapters.amqp.v091.publishing import ConnectionPublisher
from adapters.amqp.v091.session import CLOSES, State, Tuning, check_method
from adapters.amqp.v091.throttling import Throttle
from adapters.amqp.v091.transaction import TransactionRoom
from gateway.admission import unsent_bytes
from gateway.auth.ports import ANONYMOUS, Principal
from gateway.connection import WRITE_HIGH_BYTES, Connection
from gateway.errors import GatewayError, as_value
from gateway.listener import Listener

ConnectionHandler = Callable[["AmqpConnection", Any], Coroutine[Any, Any, None] | None]
"""Serves a method of the class connection."""


class AmqpConnection(Connection):
    """A connection of one client.

    Reads are held for ``room`` (for large contents), ``wal`` (the log has more than it can write),
    ``disk`` (it is full), ``pipelined`` (too many frames wait for an earlier one), ``writes`` and
    ``drain``.
    """

    access: Access

    def __init__(
        self,
        listener: Listener,
        node: AmqpNode,
        connection_handlers: Mapping[type[Method], ConnectionHandler],
        handlers: Mapping[type[Method], Handler],
    ) -> None:
        super().__init__(listener)
        self.node = node
        self._connection_handlers = connection_handlers
        self.config = node.config
        self.state = State.HEADER
        self.tuning = Tuning(
            self.config.channels_max, self.config.frame_bytes_max, self.config.heartbeat_s
        )
        self.principal = Principal(ANONYMOUS, "amqp", "")
        self.user_name = ""  # as the client says it, also where nobody has to log in
        self.is_impersonator = False
        self.vhost = ""
        self.namespace = ""
        self.client = ClientFacts()
        self.client_capabilities: frozenset[str] = frozenset()
        self.channels = Channels(self, handlers)
        self.publisher = ConnectionPublisher(self)
        self.control = Channel(self, 0)
        self.holder = node.kernel.queues.new_holder(self.channels.on_lapsed)
        self.reader = FrameReader(min(LOGIN_FRAME_BYTES_MAX, self.config.frame_bytes_max))
        self.kept = KeptBytes(self, self.reader, node.body_budget)
        self._frames: list[Frame] = []
        self._to_settle: deque[Channel] = deque()
        self._leaves_by: Callable[[], None] | None = None
        self.transaction_room = TransactionRoom(self.config.transaction_bytes_max)
        self.is_full = False
        """Whether the client reads slower than it is sent to; then consumers are paused."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.heartbeats = Heartbeats(listener.now_s)
        self._is_serving = False
        self.throttle = Throttle(self)

    # --- reading

    def received(self, size_bytes: int) -> None:
        """See ``Connection``."""
        if self.is_closing:
            return
        data = self.listener.receive_buffer[:size_bytes]
        if self.state is State.HEADER:
            self._receive_header(data)
            return
        frames = self.reader.receive(data)
        if not self.reader.kept_bytes:
            self.frame_started_s = None
        elif frames or self.frame_started_s is None:
            self.frame_started_s = self.listener.now_s
        self._frames += frames
        self._serve()
        self.reader.check()

    def _receive_header(self, data: memoryview) -> None:
        header = self.reader.take_protocol_header(data)
        if header is None:
            self.frame_started_s = self.frame_started_s or self.listener.now_s
            return
        if header not in PROTOCOL_HEADERS:
            self.note("ProtocolHeader", f"{header!r} is no header of AMQP 0-9-1")
            self.send(PROTOCOL_HEADER)
            self.close_gently()
            return
        self.frame_started_s = None
        self.state = State.START
        mechanisms = " ".join(mechanisms_offered(self.config)).encode()
        properties = self.node.server_properties
        self.send_method(0, ConnectionStart(0, 9, properties, mechanisms, b"en_US"))
        self._frames += self.reader.receive(b"")
        self._serve()
        self.reader.check()

    def _serve(self) -> None:
        """Take the frames that were read, then settle what they brought, a run at a time."""
        if self._is_serving:
            return
        self._is_serving = True
        try:
            frames, self._frames = self._frames, []
            for index, frame in enumerate(frames):
                if self.is_closing or self._leaves_by is not None:
                    return
                if self.throttle.must_hold(frame):
                    self._frames = frames[index:] + self._frames
                    break
                self._take(frame)
            self._settle_all()
        finally:
            self._is_serving = False
        self._count_kept()

    def released(self) -> None:
        """See ``Connection``: take the frames that were read before."""
        self._serve()

    def _count_kept(self) -> None:
        self.kept.count()
        if self.state is not State.OPEN and not self.is_closing:
            self.keep_before_login(self.kept.size_bytes + unsent_bytes(self))

    # --- frames

    def _take(self, frame: Frame) -> None:
        number = frame.channel
        channel = self.channels.find(number)
        try:
            if channel is not None and not channel.is_closing:
                channel.receive(frame)
            elif number == 0:
                self._take_control(frame)
            elif self.state is State.OPEN:
                self.channels.receive_unopened(frame)
            elif self.state is not State.CLOSING:
                raise AmqpFault(ReplyCode.CHANNEL_ERROR, "expected 'connection' method")
        except GatewayError as error:
            fault = to_fault(as_value(error))
            if fault.index == (0, 0):
                fault.index = index_of(frame)
            self.fail_channel(channel, fault)

    def _take_control(self, frame: Frame) -> None:
        kind, _, payload = frame
        if kind == HEARTBEAT:
            return
        if kind != METHOD:
            raise AmqpFault(ReplyCode.UNEXPECTED_FRAME, f"frame of type {kind} on channel 0")
        if self.control.is_waiting:
            self.control.pending.append(frame)
            return
        method = decode_method(payload)
        if self.state is State.CLOSING and method.INDEX not in CLOSES:
            return
        check_method(self.state, method)
        work = self._connection_handlers[type(method)](self, method)
        if work is not None:
            self.control.wait_for(work, method.INDEX)

    def pause_writing(self) -> None:
        """See asyncio: the client reads slower than it is sent to."""
        super().pause_writing()
        self._pause_consumers()

    def pause_if_full(self) -> None:
        """Pause consumers when much is queued: many may deliver in one turn of the loop."""
        if self.out_bytes > WRITE_HIGH_BYTES:
            self._pause_consumers()

    def _pause_consumers(self) -> None:
        if not self.is_full:
            self.is_full = True
            self.channels.pause_consumers()

    def flushed(self) -> None:
        """See ``Connection``."""
        if self.is_full and self.is_writable:
            self.is_full = False
            self.channels.resume_consumers()

    def receive_pending(self, channel: Channel) -> None:
        """Take the frames that a channel kept while it waited."""
        while channel.pending and not (channel.is_waiting or self.is_closing):
            self._take(channel.pending.popleft())
        self._settle_all()
        self._count_kept()
        self.leave_if_idle()

    # --- what a read has brought

    def settle_soon(self, channel: Channel) -> None:
        """Settle a channel when all frames of this read are taken."""
        self._to_settle.append(channel)

    def _settle_all(self) -> None:
        while self._to_settle:
            channel = self._to_settle.popleft()
            if channel.is_ended:
                continue
            try:
                channel.settle()
            except GatewayError as error:
                self.fail_channel(channel, to_fault(as_value(error)))

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self.listener.loop

    def start(
        self, channel: Channel, work: Coroutine[Any, Any, None], index: tuple[int, int]
    ) -> None:
        """Run ``work``, a method's; the channel goes on when it is done."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(
            lambda done: self.guard(self._on_task_done, channel, index, done)
        )

    def _on_task_done(
        self, channel: Channel, index: tuple[int, int], task: "asyncio.Task[None]"
    ) -> None:
        self._tasks.discard(task)
        if task.cancelled() or self.is_closing:
            return
        error = task.exception()
        if isinstance(error, GatewayError):
            fault = to_fault(error)
            fault.index = index
            self.fail_channel(channel, fault)
        elif error is not None:
            raise error
        channel.go_on()

    def send_method(self, number: int, method: Method) -> None:
        """Send a method on a channel."""
        self.send(encode_method_frame(number, method))

    # --- ending

    def fail_channel(self, channel: Channel | None, fault: AmqpFault) -> None:
        """Close the channel, or the connection where the fault is hard or there is no channel."""
        self.note(fault.code.name, fault.reply_text)
        if fault.is_hard or channel is None or channel.number == 0:
            self.end(fault)
        elif not channel.is_ended:
            self._settle_all()  # what came before the fault counts; it may have one of its own
            if not channel.is_ended:
                channel.fail(fault, fault.index)

    def fail(self, error: GatewayError) -> None:
        """See ``Connection``: the client gets the reply code."""
        fault = error if isinstance(error, AmqpFault) else FrameFault(str(error))
        self.note(type(error).__name__, str(error))
        self.end(fault)

    def end(self, fault: AmqpFault) -> None:
        """Send connection.close and wait for its answer; before Tune, the socket is closed."""
        if self.is_closing or self.state in {State.CLOSING, State.CLOSED}:
            return
        if self.state is State.HEADER:
            self.close()
            return
        if self._has_ended_by_settling():
            return
        self._leaves_by = None
        self.close_channels()
        self.state = State.CLOSING
        self.send_method(0, ConnectionClose(fault.code, fault.reply_text, *fault.index))
        self.listener.loop.call_later(CLOSE_OK_S_MAX, self._end_closing)

    def _has_ended_by_settling(self) -> bool:
        """Settle what came before a fault; say whether that had one of its own."""
        self._settle_all()
        return self.state is State.CLOSING

    def _end_closing(self) -> None:
        if self.state is State.CLOSING:
            self.state = State.CLOSED
            self.close()

    def leave(self, end: Callable[[], None]) -> None:
        """Take no more frames, and call ``end`` when no channel is busy; see ``is_idle``."""
        self._settle_all()
        self._leaves_by = end
        self.leave_if_idle()

    def leave_if_idle(self) -> None:
        """Call what ``leave`` was given, if no channel is busy."""
        end = self._leaves_by
        if end is not None and self.channels.is_idle:
            self._leaves_by = None
            end()

    def close_channels(self) -> None:
        """End all channels; what is in flight returns to its queues."""
        self.channels.close()
        self._frames.clear()

    def closed(self) -> None:
        """See ``Connection``."""
        self.state = State.CLOSED
        for task in tuple(self._tasks):
            task.cancel()
        self.close_channels()
        self.throttle.close()
        self.kept.close()
        self.node.forget(self)

    # --- deadlines

    def check_deadlines(self, now_s: float) -> None:
        """See ``Connection``; sends heartbeats, and closes a silent peer."""
        if self.state is State.OPEN and not self.is_closing:
            if self.heartbeats.is_due(self.bytes_sent, now_s):
                self.send(HEARTBEAT_FRAME)
            if self.heartbeats.is_lost(self.last_received_s, now_s) and not self._holds:
                self.note("heartbeat", "closed: silent for two heartbeats")
                self.close()
        super().check_deadlines(now_s)

    def overdue(self, now_s: float) -> str | None:
        """See ``Connection``: once open, heartbeats alone bound silence."""
        if self.kept.is_stalled(now_s, is_held=bool(self._holds)):
            return "request_bytes_budget"
        if self.state is not State.OPEN:
            return super().overdue(now_s)
        if self.stalled_s(now_s) > self.config.idle_s_max:
            return "idle_s_max"
        return None if self._holds else self.late(now_s)

    def hurry(self) -> None:
        """See ``Connection``: the node drains. What was published is confirmed first."""
        if self.state is State.OPEN:
            text = "broker forced connection closure"
            self.leave(partial(self.end, AmqpFault(ReplyCode.CONNECTION_FORCED, text)))
        else:
            self.close()

    def has_unsaved_work(self) -> bool:
        """See ``Connection``: unconfirmed publishes, commits under way."""
        return not self.channels.is_idle

    def describe(self) -> dict[str, Any]:
        """See ``Connection``."""
        return super().describe() | {
            "user": self.principal.name,
            "vhost": self.vhost,
            "channels": self.channels.count,
            "product": self.client.product,
        }


CLOSE_OK_S_MAX: Final = 5.0
LOGIN_FRAME_BYTES_MAX: Final = 16_384  # before Tune
