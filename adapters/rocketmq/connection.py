"""Connection of a client: reads frames, serves requests side by side, sends responses as they come.

Requests of one connection are begun in order and answered in any: clients relate responses to
requests by ``opaque``.
"""

from collections import deque
from time import perf_counter
from typing import Any, Final

from adapters.rocketmq.access import authenticate
from adapters.rocketmq.node import RocketMqNode
from adapters.rocketmq.remoting.codec import FRAME_BYTES_MIN, decode_frame, encode_frame
from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.wire import Command, RequestCode, ResponseCode
from adapters.rocketmq.request import Handler, Handlers, Request
from gateway.admission import unsent_bytes
from gateway.auth.ports import ANONYMOUS
from gateway.budget import Intake
from gateway.config.base import Address
from gateway.connection import WRITE_HIGH_BYTES, Connection
from gateway.connection_listener import ConnectionListener
from gateway.errors import GatewayError, as_value
from gateway.length_framer import LengthFramer

_APPENDING: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
    }
)
"""Codes of the requests that append messages to the log."""
UNSERVED: Final = "unserved"
"""Name of all codes that are not served, in metrics."""


class RemotingConnection(Connection):
    """Connection of a client.

    Reads are held for these reasons: ``room`` (too many bytes of all connections),
    ``unacknowledged``, ``wal``, ``writes``, ``drain``.
    """

    def __init__(
        self,
        listener: "ConnectionListener[Connection]",
        node: RocketMqNode,
        handlers: Handlers,
    ) -> None:
        super().__init__(listener)
        self._node = node
        self._handlers = handlers
        self._is_known = not node.kernel.authenticator.required
        config = node.config
        self._framer = LengthFramer(
            listener.receive_buffer,
            bytes_min=FRAME_BYTES_MIN,
            bytes_max=config.request_bytes_max
            if self._is_known
            else min(config.request_bytes_max, config.unauthenticated_request_bytes_max),
        )
        self._intake = Intake(node.request_budget, self._on_room)
        self._frames: deque[memoryview] = deque()
        self._pending: set[Request] = set()
        self._is_serving = False
        self._unacknowledged_bytes = 0
        self._pulled_bytes = 0  # sent in responses to pulls, not yet taken by the peer
        self.client_id = ""
        self.client_version = 0
        self.user = ANONYMOUS

    # --- what handlers see

    @property
    def advertised(self) -> Address:
        """See ``request.Client``."""
        return self._node.advertised_to(self.transport)

    @property
    def peer_address(self) -> str:
        """See ``request.Client``."""
        peer = self.transport.get_extra_info("peername") if self.transport else None
        return str(Address(self.peer_host, peer[1] if peer else 0))

    def notify(self, command: Command) -> None:
        """See ``request.Client``."""
        self.send(encode_frame(command))

    # --- reading

    def receive_buffer(self) -> memoryview:
        """See ``Connection``."""
        return self._framer.buffer()

    def received(self, size_bytes: int) -> None:
        """See ``Connection``."""
        frames = self._framer.received(size_bytes)
        self._frames.extend(frames)
        if not self._framer.is_midway:
            self.frame_started_s = None
        elif self.frame_started_s is None or frames:
            self.frame_started_s = self.listener.now_s
        self._serve_queued()

    def released(self) -> None:
        """See ``Connection``: serve the requests that are read already."""
        self._serve_queued()

    def _serve_queued(self) -> None:
        if self._is_serving or self.is_closing:
            return  # called by an immediate response; the loop below goes on
        self._is_serving = True
        try:
            while self._frames and self._may_serve():
                self._serve(self._frames.popleft())
        finally:
            self._is_serving = False
        self._count_read()

    def _may_serve(self) -> bool:
        if self.is_closing or self.is_held_but_for("room"):
            return False
        append_queue = self._node.kernel.broker.append_queue
        if not append_queue.is_saturated:
            return True
        self.hold_reads("wal")
        append_queue.hold(self._on_log_low)
        return False

    def _on_log_low(self) -> None:
        self.release_reads("wal")

    def _count_read(self) -> None:
        """Count the bytes read and not served yet; without room for them, hold reads."""
        kept_bytes = self._framer.kept_bytes + sum(map(len, self._frames))
        has_room = self._intake.count(kept_bytes, is_midway=self._framer.is_midway)
        if not self._is_known:
            self.keep_before_login(kept_bytes + unsent_bytes(self))
        if has_room:
            self.release_reads("room")
        else:
            self.hold_reads("room")

    def _on_room(self) -> None:
        self.release_reads("room")

    # --- serving

    def _serve(self, frame: memoryview) -> None:
        command = decode_frame(frame)
        if command.is_response:
            return  # to a request of ours; those that are sent are oneway
        self.client_version = command.version
        principal = None
        handler = self._handlers.get(command.code)
        self._node.requests[command.code if handler else UNSERVED] += 1
        node = self._node
        try:
            principal = authenticate(
                command,
                node.kernel.access_keys,
                self.peer_host,
                is_required=node.kernel.authenticator.required,
            )
            self._note_user(principal.name)
            self._check_room()
        except GatewayError as error:
            request = Request(command, node, self, node.anonymous(self.peer_host), len(frame))
            self._pending.add(request)
            request.fail(as_value(error))
            return
        request = Request(command, node, self, principal, len(frame))
        self._pending.add(request)
        if command.code in _APPENDING:
            self._count_unacknowledged(len(frame))
        self._handle(handler, request)

    def _note_user(self, name: str) -> None:
        self.user = name
        self.has_greeted = True
        if not self._is_known:
            self._is_known = True
            self._framer.bytes_max = self._node.config.request_bytes_max
            self.keep_before_login(0)

    def _check_room(self) -> None:
        """Check the number of pending requests. Error: ``Refused`` with SYSTEM_BUSY."""
        pending_max = self._node.config.requests_pending_max
        if len(self._pending) >= pending_max:
            remark = f"[OVERLOAD]{pending_max} requests of this connection are not answered"
            raise Refused(ResponseCode.SYSTEM_BUSY, remark)

    def _handle(self, handler: Handler | None, request: Request) -> None:
        if handler is None:
            remark = f" request type {request.command.code} not supported"
            request.reply(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
            return
        try:
            handler(request)
        except GatewayError as error:
            request.fail(as_value(error))

    def _count_unacknowledged(self, size_bytes: int) -> None:
        self._unacknowledged_bytes += size_bytes
        if self._unacknowledged_bytes > self._node.config.unacknowledged_bytes_max:
            self.hold_reads("unacknowledged")

    # --- answering

    def on_done(self, request: Request, frame: bytes | None) -> None:
        """See ``request.Client``."""
        self._pending.discard(request)
        code = request.command.code
        if code in self._handlers:
            seconds = perf_counter() - request.begun_s
            self._node.latency.observe(self._node.name_of(code), seconds)
        self._pulled_bytes += request.pulled_bytes
        if frame is not None:
            self.send(frame)
        if code in _APPENDING:
            self._unacknowledged_bytes = max(self._unacknowledged_bytes - request.size_bytes, 0)
            if self._unacknowledged_bytes <= self._node.config.unacknowledged_bytes_max // 2:
                self.release_reads("unacknowledged")

    def flushed(self) -> None:
        """See ``Connection``: give the bytes that the peer has taken back to the pull budget."""
        if self._pulled_bytes and self.is_writable and self.out_bytes <= WRITE_HIGH_BYTES:
            taken, self._pulled_bytes = self._pulled_bytes, 0
            self._node.pull_budget.give_back(taken)

    # --- ending

    def is_busy(self) -> bool:
        """See ``Connection``: pulls wait for longer than a connection may idle."""
        return bool(self._pending)

    def has_unsaved_work(self) -> bool:
        """See ``Connection``."""
        return bool(self._pending)

    def hurry(self) -> None:
        """See ``Connection``: answer the pulls that wait."""
        for request in tuple(self._pending):
            if request.hurry is not None:
                request.hurry()

    def overdue(self, now_s: float) -> str | None:
        """See ``Connection``."""
        if self._intake.is_stalled(self.bytes_received, now_s, is_held=bool(self._holds)):
            return "request_bytes_budget"
        return super().overdue(now_s)

    def closed(self) -> None:
        """See ``Connection``."""
        self._frames.clear()
        self._node.kernel.broker.append_queue.unhold(self._on_log_low)
        self._intake.close()
        pulled_bytes, self._pulled_bytes = self._pulled_bytes, 0
        for request in tuple(self._pending):
            request.abandon()
        self._pending.clear()
        self._node.pull_budget.give_back(pulled_bytes)
        self._node.end_client(self)

    def describe(self) -> dict[str, Any]:
        """See ``Connection``."""
        groups = self._node.groups_of(self)
        return super().describe() | {
            "client_id": self.client_id,
            "user": self.user,
            "groups": groups,
        }
