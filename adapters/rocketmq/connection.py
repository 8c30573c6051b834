"""Connection of a client: reads frames, serves requests side by side, sends responses as they come.

Requests of one connection are begun in order and answered in any: clients relate responses to
requests by ``opaque``.
"""

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
from gateway.config.base import Address
from gateway.connection import WRITE_HIGH_BYTES, Connection
from gateway.connection_listener import ConnectionListener
from gateway.errors import GatewayError, as_value
from gateway.framed_connection import FramedConnection

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


class RemotingConnection(FramedConnection):
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
        config = node.config
        is_known = not node.kernel.authenticator.required
        bytes_max = config.request_bytes_max
        if not is_known:
            bytes_max = min(bytes_max, config.unauthenticated_request_bytes_max)
        super().__init__(
            listener,
            node.request_budget,
            node.kernel.broker.append_queue,
            bytes_min=FRAME_BYTES_MIN,
            bytes_max=bytes_max,
            unacknowledged_bytes_max=config.unacknowledged_bytes_max,
        )
        self._node = node
        self._handlers = handlers
        self._is_known = is_known
        self._pending: set[Request] = set()
        self._is_serving = False
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

    def serve_frames(self) -> None:
        """See ``FramedConnection``."""
        if self._is_serving or self.is_closing:
            return  # called by an immediate response; the loop below goes on
        self._is_serving = True
        try:
            while self.frames and self._may_serve():
                self._serve(self.frames.popleft())
        finally:
            self._is_serving = False
        self._count_read()

    def _may_serve(self) -> bool:
        if self.is_closing or self.is_held_but_for("room"):
            return False
        if not self._node.kernel.broker.append_queue.is_saturated:
            return True
        self.hold_for_log()
        return False

    def _count_read(self) -> None:
        """Count the bytes read and not served yet; without room for them, hold reads."""
        kept_bytes = self.framer.kept_bytes + sum(map(len, self.frames))
        has_room = self.intake.count(kept_bytes, is_midway=self.framer.is_midway)
        if not self._is_known:
            self.keep_before_login(kept_bytes + unsent_bytes(self))
        if has_room:
            self.release_reads("room")
        else:
            self.hold_reads("room")

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
            request = Request(command, node, self, node.anonymous(self.peer_host))
            self._pending.add(request)
            request.fail(as_value(error))
            return
        request = Request(command, node, self, principal)
        self._pending.add(request)
        if command.code in _APPENDING:
            request.unacknowledged_bytes = len(frame)
            self.add_unacknowledged(len(frame))
        self._handle(handler, request)

    def _note_user(self, name: str) -> None:
        self.user = name
        self.has_greeted = True
        if not self._is_known:
            self._is_known = True
            self.framer.bytes_max = self._node.config.request_bytes_max
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
        if request.unacknowledged_bytes:
            self.take_unacknowledged(request.unacknowledged_bytes)

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

    def closed(self) -> None:
        """See ``Connection``."""
        super().closed()
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
