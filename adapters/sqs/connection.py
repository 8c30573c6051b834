"""One SQS client: read HTTP requests, serve them, write their answers in order."""

import asyncio
from collections import deque
from typing import Any, Final, Protocol

from adapters.sqs.codec import TARGET, TARGETS, is_json
from adapters.sqs.config import SqsConfig
from adapters.sqs.dispatch import Dispatcher
from adapters.sqs.errors import REQUEST_TOO_LARGE, ErrorCode, SqsError
from adapters.sqs.http.reply import Reply
from adapters.sqs.session import BadRequest, HttpSession
from adapters.sqs.wire import Request
from gateway.admission import unsent_bytes
from gateway.auth.certificates import certificate_user
from gateway.budget import Budget, Intake
from gateway.connection import WRITE_HIGH_BYTES, Connection
from gateway.listener import Listener
from gateway.writer import Writer

AT_ONCE_BYTES_MAX: Final = 65_536
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
# What may go on while the log is behind. The Query protocol says late what it wants.
_NOT_APPENDING: Final = TARGETS.keys() - {
    b"AmazonSQS.SendMessage",
    b"AmazonSQS.SendMessageBatch",
}
_BAD_REQUEST: Final = ErrorCode("BadRequest", "BadRequest")
_HEADERS_TOO_LONG: Final = ErrorCode("RequestHeaderSectionTooLarge", "BadRequest", 431)
_CODES: Final = {413: REQUEST_TOO_LARGE, 431: _HEADERS_TOO_LONG}


class ConnectionAdapter(Protocol):
    """The adapter as its connections use it; ``SqsAdapter`` implements it."""

    @property
    def config(self) -> SqsConfig:
        """The adapter's settings."""
        ...

    @property
    def writer(self) -> Writer:
        """The writer of the log; while it is saturated, sends are held back."""
        ...

    @property
    def body_budget(self) -> Budget:
        """Bytes of requests that all connections may hold together."""
        ...

    @property
    def dispatcher(self) -> Dispatcher:
        """Serves requests."""
        ...

    def next_request_id(self) -> str:
        """Return an id that no other request of this node has."""
        ...

    def http_date(self) -> str:
        """Return the time for the header ``Date``."""
        ...

    def base_url(self, host: bytes | None, transport: asyncio.Transport | None) -> str:
        """Return the beginning of queue URLs for a client that calls this host."""
        ...


class SqsConnection(Connection):
    """Requests are begun in order and answered in order; several may be under way.

    A request that a coroutine serves is finished before the next is begun, so that who makes
    a queue and writes to it in one go finds it there. Reads are held for these reasons:
    ``requests`` (too many wait), ``room`` (for a large body), ``wal``, ``writes``, ``drain``.
    The first two do not stop serving, which is what ends them.
    """

    def __init__(self, listener: Listener, adapter: ConnectionAdapter) -> None:
        super().__init__(listener)
        self._adapter = adapter
        self._pipelined_max = adapter.config.requests_pipelined_max
        self.http_date = adapter.http_date
        config = adapter.config
        self._session = HttpSession(
            header_bytes_max=config.header_bytes_max,
            request_bytes_max=config.request_bytes_max,
        )
        self._requests: deque[Request] = deque()
        self._queued_bytes = 0  # of their bodies
        self._replies: deque[Reply] = deque()
        self._ready_bytes = 0  # of answers that wait for those before them
        self._task: asyncio.Task[None] | None = None
        self._is_serving = False
        self._is_ending = False  # what is served now is the last
        self._ignores_input = False  # nothing that still comes is looked at
        self._intake = Intake(adapter.body_budget, self._on_room)
        self._is_authenticated = False  # it has shown who it is, or need not
        self._host: bytes | None = None  # what ``_base_url`` was made of
        self._base_url = ""
        self._certificate_user: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``Connection``."""
        super().connection_made(transport)
        self._certificate_user = certificate_user(self.transport, self.listener.config)

    # --- reading

    def received(self, size_bytes: int) -> None:
        """See ``Connection``."""
        if self._ignores_input:
            return
        session = self._session
        requests = session.receive_data(self.listener.receive_buffer[:size_bytes])
        if not session.is_midway:
            self.frame_started_s = None
        elif self.frame_started_s is None or requests:
            self.frame_started_s = self.listener.now_s
        if requests:
            self.has_greeted = True
            self._requests.extend(requests)
            for request in requests:  # nearly always one
                self._queued_bytes += len(request.body)
        self._serve_queued()

    def released(self) -> None:
        """See ``Connection``: go on with what was read already."""
        self._serve_queued()

    def _serve_queued(self) -> None:
        if self._is_serving or self.is_closing:
            return  # an answer that came at once; the loop below goes on
        self._is_serving = True
        try:
            while self._requests and self._may_serve(self._requests[0]):
                self._serve(self._requests.popleft())
        finally:
            self._is_serving = False
        session = self._session
        if session.error is not None and not self._requests and not self._is_ending:
            self._refuse(session.error)
        waiting_count = len(self._requests) + len(self._replies)
        if waiting_count > self._pipelined_max:
            self.hold_reads("requests")
        elif self._holds and waiting_count <= self._pipelined_max // 2:
            self.release_reads("requests")
        if (
            self._requests
            or self._intake.kept_bytes
            or session.is_midway
            or not self._is_authenticated
        ):
            self._count_read()
        if session.wants_continue and not self._requests and not self._replies:
            session.wants_continue = False
            self.send(_CONTINUE)

    def _may_serve(self, request: Request) -> bool:
        """Say whether the next request's turn has come."""
        if (
            self._task is not None
            or self._is_ending
            or self.is_closing
            or len(self._replies) >= self._pipelined_max
            or self.out_bytes + self._ready_bytes > WRITE_HIGH_BYTES
            or (self._holds and self.is_held_but_for("requests", "room"))
        ):
            return False
        writer = self._adapter.writer
        if not writer.is_saturated or request.headers.get(TARGET) in _NOT_APPENDING:
            return True
        self.hold_reads("wal")
        writer.hold(self._on_log_low)
        return False

    def _on_log_low(self) -> None:
        self.release_reads("wal")

    def _count_read(self) -> None:
        """Count what was read and is not served; without room nothing more is read."""
        session = self._session
        kept_bytes = self._queued_bytes + session.kept_bytes
        if self._intake.count(kept_bytes, is_midway=session.is_midway):
            self.release_reads("room")
        else:
            self.hold_reads("room")
        if not self._is_authenticated:
            self.keep_before_login(kept_bytes + unsent_bytes(self))

    def _on_room(self) -> None:
        self.guard(self._serve_queued)  # which counts anew

    # --- serving

    def _serve(self, request: Request) -> None:
        adapter = self._adapter
        self._queued_bytes -= len(request.body)
        reply = Reply(
            self,
            adapter.next_request_id(),
            is_last=request.is_last,
            sends_body=request.method != b"HEAD",
        )
        self._replies.append(reply)
        if request.is_last:
            self._is_ending = True
        host = request.headers.get(b"host")
        if host != self._host or not self._base_url:
            self._host = host
            self._base_url = adapter.base_url(host, self.transport)
        work = adapter.dispatcher.serve(
            request,
            reply,
            peer_host=self.peer_host,
            base_url=self._base_url,
            certificate_user=self._certificate_user,
        )
        if not self._is_authenticated and reply.call is not None:
            self._is_authenticated = True
            self.keep_before_login(0)
        if work is not None:
            self._task = self.listener.loop.create_task(work)
            self._task.add_done_callback(lambda task: self.guard(self._on_task_done, task))

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            task.result()
        self._serve_queued()

    def _refuse(self, error: BadRequest) -> None:
        """Answer what is not HTTP, or too large, and close."""
        self._is_ending = True
        self.note("BadRequest", error.message)
        reply = Reply(self, self._adapter.next_request_id(), is_last=True, sends_body=True)
        reply.is_json = is_json(self._session.under_way)
        self._replies.append(reply)
        self._ignores_input = True
        reply.fail(SqsError(_CODES.get(error.status, _BAD_REQUEST), error.message))

    # --- answering

    def on_reply(self, size_bytes: int) -> None:
        """An answer is complete: send what is in turn, then serve what waited for it."""
        replies = self._replies
        is_alone = len(replies) == 1 and not self._requests  # as most clients have it
        send = self.send_now if is_alone and size_bytes <= AT_ONCE_BYTES_MAX else self.send
        self._ready_bytes += size_bytes
        is_last = False
        while replies and (data := replies[0].data) is not None:
            send(data)
            self._ready_bytes -= len(data)
            is_last = replies.popleft().is_last
        if is_last or (self._is_ending and not replies):
            self._close_behind_last()
        elif not self._is_serving:
            self._serve_queued()

    def _close_behind_last(self) -> None:
        """Close; who is still sending is given time to read why, and is read to the end.

        With bytes unread the system would reset the connection, and the answer with it. The
        peer's end, or ``frame_s_max``, is the end of it.
        """
        if self.transport is None or not self._ignores_input or self._holds:
            self.close()
            return
        self.flush()
        if self._out or not self.transport.can_write_eof():
            self.close()
            return
        self.transport.write_eof()
        self.frame_started_s = self.listener.now_s

    def flushed(self) -> None:
        """See ``Connection``."""
        if self._requests:
            self._serve_queued()
        elif self.unauthenticated_bytes and not self.is_closing:
            self._count_read()

    # --- ending

    def overdue(self, now_s: float) -> str | None:
        """See ``Connection``; who stops amid a body while others need the room is closed sooner."""
        if self._intake.is_stalled(self.bytes_received, now_s, is_held=bool(self._holds)):
            return "request_bytes_budget"
        return super().overdue(now_s)

    def is_busy(self) -> bool:
        """See ``Connection``."""
        return bool(self._replies)

    def has_unsaved_work(self) -> bool:
        """See ``Connection``: requests that are being served."""
        return bool(self._replies)

    def hurry(self) -> None:
        """See ``Connection``: receives that wait are answered now, then the client goes."""
        self._is_ending = True
        if not self._replies:
            self.close()
            return
        self._replies[-1].is_last = True
        for reply in tuple(self._replies):
            call = reply.call
            if call is not None and call.on_gone is not None:
                call.on_gone()
                call.reply({})

    def closed(self) -> None:
        """See ``Connection``: receives that wait do so no more."""
        replies, self._replies = self._replies, deque()
        self._ignores_input = True
        self._session.close()
        self._requests.clear()
        self._queued_bytes = 0
        if self._task is not None:
            self._task.cancel()
        adapter = self._adapter
        adapter.writer.unhold(self._on_log_low)
        self._intake.close()
        for reply in replies:
            call = reply.call
            if call is not None and call.on_gone is not None:
                self.guard(call.on_gone)

    def describe(self) -> dict[str, Any]:
        """See ``Connection``."""
        return super().describe() | {"requests_waiting": len(self._replies)}
