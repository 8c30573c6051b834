"""One Kafka client: read frames, serve requests in order, write answers in order."""

import asyncio
from collections import deque
from collections.abc import Awaitable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from adapters.kafka.codec import (
    API_VERSIONS,
    RequestHeader,
    TooManyElements,
    decode_request_header,
)
from adapters.kafka.codecs import schema_codec, unserved_apis
from adapters.kafka.handlers import APIS, Api, ServingOrder, api_versions
from adapters.kafka.node.large_requests import SLICE_ELEMENTS, free_in_slices
from adapters.kafka.requests.reply import Reply, is_flexible
from adapters.kafka.requests.split_requests import handle_split
from adapters.kafka.session import Framer, Session
from gateway.admission import unsent_bytes
from gateway.auth.ports import ANONYMOUS
from gateway.budget import Intake
from gateway.connection import WRITE_HIGH_BYTES, Connection
from gateway.errors import PeerError
from gateway.listener import Listener
from gateway.model import Buffer

if TYPE_CHECKING:  # the adapter makes connections; they know theirs
    from adapters.kafka.server import KafkaAdapter

_APPENDING: Final = frozenset(
    api.key for api in APIS.values() if api.serving_order is ServingOrder.PIPELINED
)
"""Requests that append to the log."""


def _decode(
    module: ModuleType, api: Api, version: int, body: memoryview, elements_max: int
) -> Any:  # noqa: ANN401 - each API has its own
    decode = getattr(module, "decode", None)
    if decode is None:
        return schema_codec.decode_request(api.key, version, body, elements_max)
    return decode(version, body, elements_max)


class KafkaConnection(Connection):
    """Requests are served one after the other; Produce does not hold up the next.

    Reads are held for these reasons: ``requests`` (too many wait), ``room`` (too many bytes
    wait, here or on all connections), ``unacknowledged``, ``wal``, ``writes``, ``drain``. The
    first two do not stop serving, which is what ends them.
    """

    def __init__(self, listener: Listener, adapter: "KafkaAdapter") -> None:
        super().__init__(listener)
        self._adapter = adapter
        self._node = adapter.node
        bytes_max = adapter.config.request_bytes_max
        if self._node.authenticator.required or listener.config.refuses_strangers:
            bytes_max = min(bytes_max, adapter.config.unauthenticated_request_bytes_max)
        self._framer = Framer(listener.receive_buffer, bytes_max=bytes_max)
        self._session: Session | None = None
        self._frames: deque[memoryview] = deque()
        self._replies: deque[Reply] = deque()
        self._serving: Reply | None = None  # what the next request waits for
        self._task: asyncio.Task[None] | None = None
        self._unacknowledged_bytes = 0
        self._fetched_bytes = 0  # of fetch answers that were sent and are not taken
        self._intake = Intake(self._node.request_budget, self._on_room)
        self._is_serving = False

    @property
    def session(self) -> Session:
        """Who the peer is; made with the first request."""
        if self._session is None:
            self._session = self._adapter.new_session(self)
            if self._session.is_authenticated:
                self._framer.bytes_max = self._adapter.config.request_bytes_max
        return self._session

    @property
    def user(self) -> str:
        """Name of the peer's principal."""
        return ANONYMOUS if self._session is None else self._session.principal.name

    # --- reading

    def receive_buffer(self) -> memoryview:
        """See ``Connection``."""
        return self._framer.buffer()

    def received(self, size_bytes: int) -> None:
        """See ``Connection``."""
        frames = self._framer.received(size_bytes)
        if frames:
            self._frames.extend(frames)
        if not self._framer.is_midway:
            self.frame_started_s = None
        elif self.frame_started_s is None or frames:
            self.frame_started_s = self.listener.now_s
        self._serve_queued()

    def released(self) -> None:
        """See ``Connection``: go on with what was read already."""
        self._serve_queued()

    def _serve_queued(self) -> None:
        if self._is_serving or self.is_closing:
            return  # a reply that came at once; the loop below goes on
        self._is_serving = True
        try:
            while self._frames and self._may_serve(self._frames[0]):
                self._serve(self._frames.popleft())
        finally:
            self._is_serving = False
        waiting_count = len(self._frames) + len(self._replies)
        if waiting_count > self._adapter.config.requests_queued_max:
            self.hold_reads("requests")
        elif waiting_count <= self._adapter.config.requests_queued_max // 2:
            self.release_reads("requests")
        if (
            self._frames
            or self._intake.kept_bytes
            or self._framer.is_midway
            or not self.has_greeted
        ):
            self._count_read()

    def _may_serve(self, frame: memoryview) -> bool:
        """Say whether the next request's turn has come: answers taken, and room in the log."""
        if (
            self._serving is not None
            or self.is_closing
            or self.out_bytes > WRITE_HIGH_BYTES
            or self.is_held_but_for("requests", "room")
        ):
            return False
        writer = self._node.broker.writer
        if not writer.is_saturated or frame[0] << 8 | frame[1] not in _APPENDING:
            return True
        self.hold_reads("wal")
        writer.hold(self._on_log_low)
        return False

    def _on_log_low(self) -> None:
        self.release_reads("wal")

    def _count_read(self) -> None:
        """Count what was read and is not served yet; at the bounds, read no more."""
        queued_bytes = sum(map(len, self._frames))
        framer = self._framer
        kept_bytes = queued_bytes + framer.kept_bytes
        has_room = self._intake.count(kept_bytes, is_midway=framer.is_midway)
        if not self.session.is_authenticated:
            self.keep_before_login(kept_bytes + unsent_bytes(self))
        if has_room and queued_bytes <= self._adapter.config.unacknowledged_bytes_max:
            self.release_reads("room")
        else:
            self.hold_reads("room")

    def _on_room(self) -> None:
        self.release_reads("room")

    # --- serving

    def _serve(self, frame: memoryview) -> None:
        header = decode_request_header(frame, is_flexible)
        self.has_greeted = self.session.is_authenticated  # else it has handshake_s_max for it
        if header.api_key not in APIS and self._refuse_unserved(header):
            return
        api = self._find(header)
        self._adapter.requests[api.key] += 1
        reply = Reply(self, header)
        self._replies.append(reply)
        if header.version not in api.versions:
            reply(api_versions.unsupported_version())
            return
        self.session.client_id = header.client_id
        module = self._adapter.handlers.get(api.key)
        if module is None:
            self._start(reply, self._load_and_handle(api, header, frame, reply))
        else:
            self._handle(module, api, header, frame, reply)

    def _refuse_unserved(self, header: RequestHeader) -> bool:
        """Answer an API that is not served, where its response has an error code for that."""
        body = unserved_apis.answer(header.api_key, header.version)
        if body is None or not self.session.is_authenticated:
            return False
        reply = Reply(self, header)
        self._replies.append(reply)
        reply(body)
        return True

    def _find(self, header: RequestHeader) -> Api:
        api = APIS.get(header.api_key)
        if api is None:
            msg = f"API key {header.api_key} is not served"
            raise PeerError(msg)
        if header.version not in api.versions and api.key != API_VERSIONS:
            msg = f"{api.name} version {header.version} is not served"
            raise PeerError(msg)
        if not (self.session.is_authenticated or api.before_authentication):
            msg = f"{api.name} before authentication"
            raise PeerError(msg)
        return api

    def _handle(
        self,
        module: ModuleType,
        api: Api,
        header: RequestHeader,
        frame: memoryview,
        reply: Reply,
    ) -> None:
        version, body = header.version, frame[header.body_at :]
        if api.serving_order is ServingOrder.PIPELINED:
            self._count_unacknowledged(reply, len(frame))
        elements_max = min(SLICE_ELEMENTS, self._adapter.config.request_elements_max)
        try:
            request = _decode(module, api, version, body, elements_max)
        except TooManyElements:
            if api.before_authentication:
                raise
            self._start(reply, self._handle_large(module, api, version, body, reply))
            return
        if api.serving_order is not ServingOrder.SEQUENTIAL:
            if api.serving_order is ServingOrder.DEFERRED:
                self._serving = reply
            module.handle(request, self.session, version, reply)
            return
        response = module.handle(request, self.session, version)
        if isinstance(response, Awaitable):
            self._start(reply, self._answer_later(response, version, reply))
        else:
            reply(self._encode(response, version))

    async def _handle_large(
        self, module: ModuleType, api: Api, version: int, body: memoryview, reply: Reply
    ) -> None:
        """Serve a request of more than ``SLICE_ELEMENTS``; see ``large_requests``.

        The connection's next request waits until the handler has ended, whatever its API.
        """
        large_request_thread = self._node.large_request_thread
        elements_max = self._adapter.config.request_elements_max
        request = await large_request_thread.run(
            _decode, module, api, version, body, elements_max
        )
        handle = getattr(module, "handle_large", None)
        if api.serving_order is ServingOrder.SEQUENTIAL:
            response = (
                handle_split(api.key, module.handle, request, self.session, version)
                if handle is None
                else handle(request, self.session, version)
            )
            reply(await large_request_thread.run(self._encode, await response, version))
            return
        assert handle is not None, f"{api.name} takes no large requests"
        await handle(request, self.session, version, reply)
        await large_request_thread.run(free_in_slices, request.topics)
        if api.serving_order is ServingOrder.PIPELINED and self._serving is reply:
            self._serving = None
            self._serve_queued()

    def _start(self, reply: Reply, work: Any) -> None:  # noqa: ANN401 - a coroutine
        self._serving = reply
        self._task = self.listener.loop.create_task(work)
        self._task.add_done_callback(lambda task: self.guard(self._on_task_done, task))

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.result()

    async def _load_and_handle(
        self, api: Api, header: RequestHeader, frame: memoryview, reply: Reply
    ) -> None:
        """Import the handler, which may bring kafka-python with it, while the loop goes on."""
        module = await self.listener.loop.run_in_executor(None, self._adapter.load, api)
        self._serving = None
        self._handle(module, api, header, frame, reply)
        self._serve_queued()  # where the next request does not wait for this one's answer

    async def _answer_later(
        self,
        response: Awaitable[Any],
        version: int,
        reply: Reply,
    ) -> None:
        body = self._encode(await response, version)
        if self.session.is_rejected:
            self._frames.clear()  # nothing behind it is served
        elif self.session.is_authenticated:
            self._framer.bytes_max = self._adapter.config.request_bytes_max
            self.keep_before_login(0)
            self.has_greeted = True
        reply(body)
        if self.session.is_rejected:
            msg = "authentication failed"
            raise PeerError(msg)

    @staticmethod
    def _encode(response: Any, version: int) -> Buffer:  # noqa: ANN401 - generated classes
        if isinstance(response, bytes | bytearray):
            return response
        return schema_codec.encode_response(response, version)

    def _count_unacknowledged(self, reply: Reply, size_bytes: int) -> None:
        reply.unacknowledged_bytes = size_bytes
        self._unacknowledged_bytes += size_bytes
        if self._unacknowledged_bytes > self._adapter.config.unacknowledged_bytes_max:
            self.hold_reads("unacknowledged")

    # --- answering

    def on_reply(self, reply: Reply) -> None:
        """An answer is complete: send what is in turn, then serve what waited for it."""
        if reply is self._serving:
            self._serving = None
        replies = self._replies
        while replies and replies[0].is_done:
            first = replies.popleft()
            self._fetched_bytes += first.fetched_bytes
            if first.pieces:
                self.send(*first.pieces)
        if reply.unacknowledged_bytes:
            self._unacknowledged_bytes -= reply.unacknowledged_bytes
            if self._unacknowledged_bytes <= self._adapter.config.unacknowledged_bytes_max // 2:
                self.release_reads("unacknowledged")
        self._serve_queued()

    def flushed(self) -> None:
        """See ``Connection``: what the peer has taken is no longer counted."""
        if self._fetched_bytes and self.is_writable:
            taken, self._fetched_bytes = self._fetched_bytes, 0
            self._node.fetch_budget.give_back(taken)
        self._serve_queued()

    # --- ending

    def is_busy(self) -> bool:
        """See ``Connection``."""
        return bool(self._replies)

    def has_unsaved_work(self) -> bool:
        """See ``Connection``: requests that are being served."""
        return bool(self._replies)

    def hurry(self) -> None:
        """See ``Connection``: a waiting fetch answers now."""
        if self._serving is not None and self._serving.hurry is not None:
            self._serving.hurry()

    def overdue(self, now_s: float) -> str | None:
        """See ``Connection``; who takes nothing while others need the room is closed sooner."""
        budget = self._node.fetch_budget
        if (
            self._fetched_bytes
            and budget.waiting_count
            and self.stalled_s(now_s) > self.listener.config.frame_s_max
        ):
            return "fetch_bytes_budget"
        if self._intake.is_stalled(self.bytes_received, now_s, is_held=bool(self._holds)):
            return "request_bytes_budget"
        return super().overdue(now_s)

    def closed(self) -> None:
        """See ``Connection``."""
        if self._serving is not None and self._serving.cancel is not None:
            self._serving.cancel()
        if self._task is not None:
            self._task.cancel()
        self._frames.clear()
        node = self._node
        node.broker.writer.unhold(self._on_log_low)
        self._intake.close()
        fetched_bytes = self._fetched_bytes + sum(r.fetched_bytes for r in self._replies)
        self._fetched_bytes = 0
        self._replies.clear()
        node.fetch_budget.give_back(fetched_bytes)

    def describe(self) -> dict[str, Any]:
        """See ``Connection``."""
        session = self._session
        return super().describe() | {
            "client_id": session.client_id if session else "",
            "user": session.principal.name if session else "",
        }
