"""One connection: frames in, a run at a time; RECEIPT once what they ask for is durable."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol
from uuid import uuid4

from gateway.auth.ports import ANONYMOUS, Principal
from gateway.budget import Intake
from gateway.connection import WRITE_HIGH_BYTES
from gateway.errors import GatewayError, StorageUnavailable, as_value
from gateway.listener import Connection, Listener
from headgate_stomp.access import PROTOCOL
from headgate_stomp.errors import StompFault, to_fault
from headgate_stomp.frames import (
    HEART_BEAT,
    Frame,
    FrameReader,
    Headers,
    encode_frame,
)
from headgate_stomp.node import StompNode
from headgate_stomp.ports import Subscription
from headgate_stomp.session import SUPPORTED, HeartBeats, State

_LOST_HEART_BEATS: Final = 2  # so many times the span that was agreed on
_MS: Final = 1_000


class FrameHandlers(Protocol):
    """Handlers of frames, in ``headgate_stomp.commands``."""

    def handle(self, frame: Frame) -> Coroutine[Any, Any, None] | None:
        """Serve a frame; the rest of the work where it has to wait. Errors: ``GatewayError``."""
        ...

    def flush(self) -> None:
        """Publish and settle what was received. Errors: ``GatewayError``."""
        ...

    def close(self) -> None:
        """End all subscriptions and transactions."""
        ...


class StompConnection(Connection):
    """Serves frames in order; while one waits, those behind it stay where they were read."""

    def __init__(
        self, node: StompNode, make_handlers: "type[FrameHandlers]", listener: Listener
    ) -> None:
        super().__init__(listener)
        config = node.config
        self.node = node
        self.state = State.AWAIT_CONNECT
        self.session = uuid4().hex
        self.holder = node.kernel.queues.new_holder()
        self.principal = Principal(ANONYMOUS, PROTOCOL, "")
        self.heart_beats = HeartBeats(0, 0)
        self.reader = FrameReader(
            header_bytes_max=config.header_bytes_max,
            headers_max=config.headers_max,
            body_bytes_max=config.body_bytes_max,
        )
        self.is_full = False
        self.subscriptions: dict[int, Subscription] = {}
        """By number, from 1 on."""
        self._commands: FrameHandlers = make_handlers(self)  # type: ignore[call-arg]
        self._intake = Intake(node.budget, partial(self.guard, self._count_kept))
        self._on_log_low = partial(self.release_reads, "log")
        self._task: asyncio.Task[None] | None = None
        self._is_serving = False
        self._undurable = 0  # appends and settlements under way
        self._leaves_with: bytes | None = None  # the last frame, when all is durable
        self._sent_bytes, self._sent_s = 0, listener.now_s  # of heart-beats

    # --- reading

    def received(self, size_bytes: int) -> None:
        """See ``Connection``."""
        if self.is_closing:
            return
        self.reader.feed(self.listener.receive_buffer[:size_bytes])
        self._serve()

    def released(self) -> None:
        """See ``Connection``: serve the frames that were read before."""
        self._serve()

    def _serve(self) -> None:
        if self._is_serving:
            return
        self._is_serving = True
        frame: Frame | None = None
        served = 0
        try:
            while self._may_serve():
                frame = None
                frame = self.reader.take()
                if frame is None:
                    break
                served += 1
                self._handle(frame)
            frame = None
            self._commands.flush()
        except GatewayError as error:
            with suppress(GatewayError):  # what came before the fault counts
                self._commands.flush()
            self._fail(as_value(error), frame)
        finally:
            self._is_serving = False
        self._time_frame(served)
        self._count_kept()

    def _may_serve(self) -> bool:
        """Say whether the next frame may be served now; hold reads while the log is behind."""
        if self.is_closing or self._task is not None or self._leaves_with is not None:
            return False
        append_queue = self.node.kernel.broker.append_queue
        if append_queue.is_saturated:
            self.hold_reads("log")
            append_queue.hold(self._on_log_low)
            return False
        return True

    def _handle(self, frame: Frame) -> None:
        work = self._commands.handle(frame)
        if work is not None:
            self.hold_reads("serving")
            self._task = self.listener.loop.create_task(work)
            self._task.add_done_callback(lambda task: self.guard(self._served, frame, task))

    def _served(self, frame: Frame, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, GatewayError):
            self._fail(error, frame)
        elif error is not None:
            raise error
        self.release_reads("serving")
        self._leave_if_idle()

    def _time_frame(self, served: int) -> None:
        if not self.reader.kept_bytes:
            self.frame_started_s = None
        elif served or self.frame_started_s is None:
            self.frame_started_s = self.listener.now_s

    def _count_kept(self) -> None:
        """Count what is kept of the client; hold reads where all connections keep too much."""
        if self.is_closing:
            return
        kept_bytes = self.reader.kept_bytes
        if self._intake.count(kept_bytes, is_midway=kept_bytes > 0):
            self.release_reads("room")
        else:
            self.hold_reads("room")
        if self.state is State.AWAIT_CONNECT:
            self.keep_before_login(kept_bytes + self.out_bytes)

    # --- answering

    def send_frame(self, command: str, headers: Headers, body: bytes = b"") -> None:
        """Send a frame."""
        self.send(encode_frame(command, headers, self.reader.version, body))

    def wait_durable(self) -> None:
        """Count an append or a settlement, whose end ``on_durable`` is told."""
        self._undurable += 1

    def on_durable(self, receipts: Sequence[str], error: StorageUnavailable | None) -> None:
        """Send the receipts of what is durable now, or the error."""
        self._undurable -= 1
        if error is not None:
            self.end_with(to_fault(error), [("receipt-id", one) for one in receipts[:1]])
            return
        for receipt in receipts:
            self.send_frame("RECEIPT", [("receipt-id", receipt)])
        self._leave_if_idle()

    def _fail(self, error: GatewayError, frame: Frame | None) -> None:
        receipt = None if frame is None else frame.headers.get("receipt")
        self.end_with(to_fault(error), [] if receipt is None else [("receipt-id", receipt)])

    # --- flow control

    def pause_writing(self) -> None:
        """See asyncio: the client reads slower than it is sent to."""
        super().pause_writing()
        self._pause()

    def pause_if_full(self) -> None:
        """Pause all subscriptions when much is queued: many may deliver in one turn."""
        if self.out_bytes > WRITE_HIGH_BYTES:
            self._pause()

    def _pause(self) -> None:
        if not self.is_full:
            self.is_full = True
            for subscription in self.subscriptions.values():
                subscription.pause()

    def flushed(self) -> None:
        """See ``Connection``."""
        if self.is_full and self.is_writable:
            self.is_full = False
            for subscription in tuple(self.subscriptions.values()):
                subscription.resume()

    # --- ending

    def fail(self, error: GatewayError) -> None:
        """See ``Connection``: the client gets ERROR."""
        self.end_with(to_fault(error))

    def end_with(self, fault: StompFault, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Send ERROR and close."""
        if self.is_closing:
            return
        self.note(fault.summary, str(fault))
        content = [("message", fault.summary), ("content-type", "text/plain")]
        found = [*content, ("version", SUPPORTED), *headers]
        self.send_frame("ERROR", found, f"{fault}\n".encode())
        self._finish()

    def leave_with(self, last_frame: bytes) -> None:
        """Serve nothing more; send ``last_frame`` and close when all is durable."""
        if self._leaves_with is None:
            self._leaves_with = last_frame
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        is_idle = not self.is_closing and not self.has_unsaved_work()
        if self._leaves_with is not None and is_idle:
            self.send(self._leaves_with)
            self._finish()

    def _finish(self) -> None:
        self.state = State.CLOSED
        self.close_gently()

    def closed(self) -> None:
        """See ``Connection``: what is in flight goes back to its queues."""
        self.state = State.CLOSED
        if self._task is not None:
            self._task.cancel()
        self.node.kernel.broker.append_queue.unhold(self._on_log_low)
        self._intake.close()
        self._commands.close()

    def hurry(self) -> None:
        """See ``Connection``: the node drains. What was sent is acknowledged first."""
        text = b"message:Server shutting down\ncontent-type:text/plain"
        self.leave_with(b"ERROR\n%s\n\nthe node stops; connect again\n\0" % text)

    def has_unsaved_work(self) -> bool:
        """See ``Connection``."""
        return self._undurable > 0 or self._task is not None

    # --- deadlines

    def is_busy(self) -> bool:
        """See ``Connection``: a subscriber may be silent, if no heart-beats were agreed on."""
        return bool(self.subscriptions) or self.has_unsaved_work()

    def check_deadlines(self, now_s: float) -> None:
        """See ``Connection``; sends heart-beats, and closes a client without any."""
        if self.state is State.CONNECTED:
            self._check_heart_beats(now_s)
        super().check_deadlines(now_s)

    def _check_heart_beats(self, now_s: float) -> None:
        sent_ms, received_ms = self.heart_beats
        if self.bytes_sent != self._sent_bytes:
            self._sent_bytes, self._sent_s = self.bytes_sent, now_s
        elif sent_ms and (now_s - self._sent_s) * _MS >= sent_ms / 2:
            self.send(HEART_BEAT)
        silent_ms = (now_s - self.last_received_s) * _MS
        if received_ms and silent_ms > _LOST_HEART_BEATS * received_ms and not self._holds:
            self.note("heart-beat", "closed: no heart-beats")
            self.close()

    def overdue(self, now_s: float) -> str | None:
        """See ``Connection``."""
        if self._intake.is_stalled(self.bytes_received, now_s, is_held=bool(self._holds)):
            return "request_bytes_budget"
        return super().overdue(now_s)

    def describe(self) -> dict[str, Any]:
        """See ``Connection``."""
        return super().describe() | {
            "user": self.principal.name,
            "version": str(self.reader.version),
            "subscriptions": len(self.subscriptions),
        }
