"""One SQS client connection: reads HTTP requests, serves them, answers in order."""

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
from gateway.append_queue import AppendQueue
from gateway.auth.certificates import certificate_user
from gateway.budget import Budget, Intake
from gateway.connection import WRITE_HIGH_BYTES, Connection
from gateway.half_close import end_output
from gateway.listener import Listener

AT_ONCE_BYTES_MAX: Final = 65_536
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
# Targets that are served while the log is saturated. The Query protocol names its action late.
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
    def append_queue(self) -> AppendQueue:
        """The log's queue of appends; while it is saturated, sends wait."""
        ...

    @property
    def body_budget(self) -> Budget:
        """Bytes of requests that all connections may hold together."""
        ...

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of requests."""
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
    """A connection that begins and answers requests in order; several may be in progress.

    A request that a coroutine serves is finished before the next one begins, so that a client that
    creates a queue and sends to it in one write finds the queue. Reads are held for these reasons:
    ``requests`` (too many wait), ``room`` (for a large body), ``wal``, ``writes``, ``drain``. The
    first two do not stop serving, because serving ends them.
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
        self._queued_bytes = 0  # of the bodies of queued requests
        self._replies: deque[Reply] = deque()
        self._ready_bytes = 0  # of complete answers that wait for earlier ones
        self._task: asyncio.Task[None] | None = None
        self._is_serving = False
        self._is_ending = False  # no further request is served
        self._ignores_input = False  # further input is discarded
        self._intake = Intake(adapter.body_budget, self._on_room)
        self._is_authenticated = False  # or has sent a request that needs no login
        self._host: bytes | None = None  # the host of ``_base_url``
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
        """See ``Connection``: serve the requests that were read before."""
        self._serve_queued()

    def _serve_queued(self) -> None:
        if self._is_serving or self.is_closing:
            return  # called by an immediate answer; the loop below continues
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
        """Return whether the next request may be served now."""
        if (
            self._task is not None
            or self._is_ending
            or self.is_closing
            or len(self._replies) >= self._pipelined_max
            or self.out_bytes + self._ready_bytes > WRITE_HIGH_BYTES
            or (self._holds and self.is_held_but_for("requests", "room"))
        ):
            return False
        append_queue = self._adapter.append_queue
        if not append_queue.is_saturated or request.headers.get(TARGET) in _NOT_APPENDING:
            return True
        self.hold_reads("wal")
        append_queue.hold(self._on_log_low)
        return False

    def _on_log_low(self) -> None:
        self.release_reads("wal")

    def _count_read(self) -> None:
        """Count bytes that were read and not served; hold reads while the budget is used up."""
        session = self._session
        kept_bytes = self._queued_bytes + session.kept_bytes
        if self._intake.count(kept_bytes, is_midway=session.is_midway):
            self.release_reads("room")
        else:
            self.hold_reads("room")
        if not self._is_authenticated:
            self.keep_before_login(kept_bytes + unsent_bytes(self))

    def _on_room(self) -> None:
        self.guard(self._serve_queued)  # which counts again

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
        """Answer a request that is not HTTP, or too large, and close."""
        self._is_ending = True
        self.note("BadRequest", error.message)
        reply = Reply(self, self._adapter.next_request_id(), is_last=True, sends_body=True)
        reply.is_json = is_json(self._session.incomplete_request)
        self._replies.append(reply)
        self._ignores_input = True
        reply.fail(SqsError(_CODES.get(error.status, _BAD_REQUEST), error.message))

    # --- answering

    def on_reply(self, size_bytes: int) -> None:
        """Send the answers whose turn it is, then serve requests that waited for them."""
        replies = self._replies
        is_alone = len(replies) == 1 and not self._requests  # the common case
        send = self.send_now if is_alone and size_bytes <= AT_ONCE_BYTES_MAX else self.send
        self._ready_bytes += size_bytes
        is_last = False
        while replies and (data := replies[0].data) is not None:
            send(data)
            self._ready_bytes -= len(data)
            is_last = replies.popleft().is_last
        if is_last or (self._is_ending and not replies):
            self._close_after_last()
        elif not self._is_serving:
            self._serve_queued()

    def _close_after_last(self) -> None:
        """Close; a client that is still sending is read to the end first.

        With unread bytes the system would reset the connection, and the answer would be lost. It
        ends when the client closes, or after ``frame_s_max``.
        """
        if self.transport is None or not self._ignores_input or self._holds:
            self.close()
            return
        self.flush()
        if self._out or not self.transport.can_write_eof():
            self.close()
            return
        end_output(self.transport)
        self.frame_started_s = self.listener.now_s

    def flushed(self) -> None:
        """See ``Connection``."""
        if self._requests:
            self._serve_queued()
        elif self.unauthenticated_bytes and not self.is_closing:
            self._count_read()

    # --- ending

    def overdue(self, now_s: float) -> str | None:
        """See ``Connection``; a client that stalls in a body while others wait is closed sooner."""
        if self._intake.is_stalled(self.bytes_received, now_s, is_held=bool(self._holds)):
            return "request_bytes_budget"
        return super().overdue(now_s)

    def is_busy(self) -> bool:
        """See ``Connection``."""
        return bool(self._replies)

    def has_unsaved_work(self) -> bool:
        """See ``Connection``: whether requests are in progress."""
        return bool(self._replies)

    def hurry(self) -> None:
        """See ``Connection``: answer waiting receives now, then close."""
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
        """See ``Connection``: cancel waiting receives."""
        replies, self._replies = self._replies, deque()
        self._ignores_input = True
        self._session.close()
        self._requests.clear()
        self._queued_bytes = 0
        if self._task is not None:
            self._task.cancel()
        adapter = self._adapter
        adapter.append_queue.unhold(self._on_log_low)
        self._intake.close()
        for reply in replies:
            call = reply.call
            if call is not None and call.on_gone is not None:
                self.guard(call.on_gone)

    def describe(self) -> dict[str, Any]:
        """See ``Connection``."""
        return super().describe() | {"requests_waiting": len(self._replies)}
