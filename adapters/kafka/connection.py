"""Connection of a Kafka client: reads frames, serves requests and sends replies in order."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable
from types import ModuleType
from typing import Any, Final, Protocol

from adapters.kafka.codec import RequestHeader, TooManyElements, decode_request_header
from adapters.kafka.codecs import unserved_apis
from adapters.kafka.config import KafkaConfig
from adapters.kafka.handlers import APIS, Api, ServingOrder, api_versions
from adapters.kafka.node.large_requests import SLICE_ELEMENTS, free_in_slices
from adapters.kafka.node.node import Node
from adapters.kafka.quotas.request_meter import meter_of
from adapters.kafka.requests.reply import Reply, is_flexible
from adapters.kafka.requests.request_codec import decode_body, encode_body, find_api
from adapters.kafka.requests.split_requests import handle_split
from adapters.kafka.session import Session
from gateway.admission import unsent_bytes
from gateway.auth.ports import ANONYMOUS
from gateway.connection import WRITE_HIGH_BYTES
from gateway.errors import PeerError
from gateway.framed_connection import FramedConnection
from gateway.listener import Listener
from gateway.quotas.read_mute import ReadMute

_REQUEST_BYTES_MIN: Final = 8  # API key, version, correlation id
_APPENDING: Final = frozenset(
    api.key for api in APIS.values() if api.serving_order is ServingOrder.PIPELINED
)
"""Keys of the APIs whose requests append to the log."""


class AdapterPort(Protocol):
    """Port of a connection to the adapter; ``server.KafkaAdapter`` implements it.

    ``handlers`` has the handler modules imported so far, ``requests`` counts requests; both by
    API key.
    """

    config: KafkaConfig
    node: Node
    handlers: dict[int, ModuleType]
    requests: Counter[int]

    def load(self, api: Api) -> ModuleType:
        """Import an API's handler module and return it; safe in any thread."""
        ...

    def new_session(self, connection: "KafkaConnection") -> Session:
        """Return a session by the settings of the connection's listener."""
        ...


class KafkaConnection(FramedConnection):
    """Connection of a client. Requests are served in order; pipelined ones overlap.

    Reads are held for these reasons: ``requests`` (too many queued requests), ``room`` (too many
    queued bytes, of this connection or of all), ``unacknowledged``, ``wal``, ``writes``,
    ``quota`` (throttled), ``drain``. The first two do not stop serving, because serving ends them.
    """

    def __init__(self, listener: Listener, adapter: AdapterPort) -> None:
        node, config = adapter.node, adapter.config
        bytes_max = config.request_bytes_max
        if node.authenticator.required or listener.config.refuses_strangers:
            bytes_max = min(bytes_max, config.unauthenticated_request_bytes_max)
        super().__init__(
            listener,
            node.request_budget,
            node.broker.append_queue,
            bytes_min=_REQUEST_BYTES_MIN,
            bytes_max=bytes_max,
            unacknowledged_bytes_max=config.unacknowledged_bytes_max,
        )
        self._adapter = adapter
        self._node = node
        self._session: Session | None = None
        self._replies: deque[Reply] = deque()
        self._serving: Reply | None = None  # the next request waits for this reply
        self._task: asyncio.Task[None] | None = None
        self._fetched_bytes = 0  # sent in fetch responses, not yet taken by the peer
        self._is_serving = False
        self._mute = ReadMute()

    @property
    def session(self) -> Session:
        """The session; created with the first request."""
        if self._session is None:
            self._session = self._adapter.new_session(self)
            if self._session.is_authenticated:
                self.framer.bytes_max = self._adapter.config.request_bytes_max
        return self._session

    @property
    def user(self) -> str:
        """Name of the peer's principal."""
        return ANONYMOUS if self._session is None else self._session.principal.name

    # --- reading

    def serve_frames(self) -> None:
        """See ``FramedConnection``."""
        if self._is_serving or self.is_closing:
            return  # called by an immediate reply; the loop below continues
        self._is_serving = True
        try:
            while self.frames and self._may_serve(self.frames[0]):
                self._serve(self.frames.popleft())
        finally:
            self._is_serving = False
        waiting_count = len(self.frames) + len(self._replies)
        if waiting_count > self._adapter.config.requests_queued_max:
            self.hold_reads("requests")
        elif waiting_count <= self._adapter.config.requests_queued_max // 2:
            self.release_reads("requests")
        if (
            self.frames
            or self.intake.kept_bytes
            or self.framer.is_midway
            or not self.has_greeted
        ):
            self._count_read()

    def _may_serve(self, frame: memoryview) -> bool:
        """Return whether the next request may be served: replies taken, and room in the log."""
        if (
            self._serving is not None
            or self.is_closing
            or self.out_bytes > WRITE_HIGH_BYTES
            or self.is_held_but_for("requests", "room")
        ):
            return False
        append_queue = self._node.broker.append_queue
        if not append_queue.is_saturated or frame[0] << 8 | frame[1] not in _APPENDING:
            return True
        self.hold_for_log()
        return False

    def _count_read(self) -> None:
        """Count the bytes read and not served yet; at the limits, hold reads."""
        queued_bytes = sum(map(len, self.frames))
        framer = self.framer
        kept_bytes = queued_bytes + framer.kept_bytes
        has_room = self.intake.count(kept_bytes, is_midway=framer.is_midway)
        if not self.session.is_authenticated:
            self.keep_before_login(kept_bytes + unsent_bytes(self))
        if has_room and queued_bytes <= self._adapter.config.unacknowledged_bytes_max:
            self.release_reads("room")
        else:
            self.hold_reads("room")

    # --- serving

    def _serve(self, frame: memoryview) -> None:
        header = decode_request_header(frame, is_flexible)
        self.has_greeted = self.session.is_authenticated  # else handshake_s_max applies
        if header.api_key not in APIS and self._refuse_unserved(header):
            return
        api = find_api(header, self.session)
        self._adapter.requests[api.key] += 1
        reply = Reply(self, header, api.name, self._node.latency)
        self._replies.append(reply)
        if header.version not in api.versions:
            reply(api_versions.unsupported_version())
            return
        self.session.client_id = header.client_id
        if self._node.quotas.is_active:
            meter = self.session.meter = reply.meter = meter_of(self.session, header, frame)
            if meter is not None:
                if meter.throttle_ms:  # the next request waits
                    self._mute.begin(self, meter.throttle_ms)
                with meter:
                    self._begin(api, header, frame, reply)
                return
        self._begin(api, header, frame, reply)

    def _begin(self, api: Api, header: RequestHeader, frame: memoryview, reply: Reply) -> None:
        module = self._adapter.handlers.get(api.key)
        if module is None:
            self._start(reply, self._load_and_handle(api, header, frame, reply))
        else:
            self._handle(module, api, header, frame, reply)

    def _refuse_unserved(self, header: RequestHeader) -> bool:
        """Answer an API that is not served, if its response has a top-level error code."""
        body = unserved_apis.answer(header.api_key, header.version)
        if body is None or not self.session.is_authenticated:
            return False
        reply = Reply(self, header)
        self._replies.append(reply)
        reply(body)
        return True

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
            reply.unacknowledged_bytes = len(frame)
            self.add_unacknowledged(len(frame))
        elements_max = min(SLICE_ELEMENTS, self._adapter.config.request_elements_max)
        try:
            request = decode_body(module, api, version, body, elements_max)
        except TooManyElements:
            if api.before_authentication:
                raise
            self._start(reply, self._handle_large(module, api, version, body, reply))
            return
        if api.serving_order is not ServingOrder.SEQUENTIAL:
            if api.serving_order is ServingOrder.DEFERRED:
                self._serving = reply
            if module.handle(
                request, self.session, version, reply
            ):  # it waits for another node
                self._start(reply, self._handle_large(module, api, version, body, reply))
            return
        response = module.handle(request, self.session, version)
        if isinstance(response, Awaitable):
            self._start(reply, self._answer_later(response, version, reply))
        else:
            reply(encode_body(response, version))

    async def _handle_large(
        self, module: ModuleType, api: Api, version: int, body: memoryview, reply: Reply
    ) -> None:
        """Serve a request of more than ``SLICE_ELEMENTS`` elements, or that waits.

        The connection's next request waits until the handler has ended, for every API.
        """
        large_request_thread = self._node.large_request_thread
        elements_max = self._adapter.config.request_elements_max
        request = await large_request_thread.run(
            decode_body, module, api, version, body, elements_max
        )
        handle = getattr(module, "handle_large", None)
        if api.serving_order is ServingOrder.SEQUENTIAL:
            response = (
                handle_split(api.key, module.handle, request, self.session, version)
                if handle is None
                else handle(request, self.session, version)
            )
            reply(await large_request_thread.run(encode_body, await response, version))
            return
        assert handle is not None, f"{api.name} takes no large requests"
        await handle(request, self.session, version, reply)
        await large_request_thread.run(free_in_slices, request.topics)
        if api.serving_order is ServingOrder.PIPELINED and self._serving is reply:
            self._serving = None
            self.serve_frames()

    def _start(self, reply: Reply, work: Any) -> None:  # noqa: ANN401 - a coroutine
        self._serving = reply
        if reply.meter is not None:
            work = reply.meter.timed(work)
        self._task = self.listener.loop.create_task(work)
        self._task.add_done_callback(lambda task: self.guard(self._on_task_done, task))

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.result()

    async def _load_and_handle(
        self, api: Api, header: RequestHeader, frame: memoryview, reply: Reply
    ) -> None:
        """Import the handler, and possibly kafka-python, in a thread; then handle the request."""
        module = await self.listener.loop.run_in_executor(None, self._adapter.load, api)
        self._serving = None
        self._handle(module, api, header, frame, reply)
        self.serve_frames()  # for a pipelined API the next request need not wait

    async def _answer_later(self, response: Awaitable[Any], version: int, reply: Reply) -> None:
        body = encode_body(await response, version)
        if self.session.is_rejected:
            self.frames.clear()  # later requests are not served
        elif self.session.is_authenticated:
            self.framer.bytes_max = self._adapter.config.request_bytes_max
            self.keep_before_login(0)
            self.has_greeted = True
        reply(body)
        if self.session.is_rejected:
            msg = "authentication failed"
            raise PeerError(msg)

    # --- answering

    def on_reply(self, reply: Reply) -> None:
        """Send the replies that are complete in order, then serve the next request."""
        if reply is self._serving:
            self._serving = None
        replies = self._replies
        while replies and replies[0].is_done:
            first = replies.popleft()
            self._fetched_bytes += first.fetched_bytes
            if first.pieces:
                self.send(*first.pieces)
        if reply.meter is not None and reply.meter.throttle_ms:
            self._mute.begin(self, reply.meter.throttle_ms)
        if reply.unacknowledged_bytes:
            self.take_unacknowledged(reply.unacknowledged_bytes)
        self.serve_frames()

    def flushed(self) -> None:
        """See ``Connection``: give the bytes that the peer has taken back to the fetch budget."""
        if self._fetched_bytes and self.is_writable:
            taken, self._fetched_bytes = self._fetched_bytes, 0
            self._node.fetch_budget.give_back(taken)
        self.serve_frames()

    # --- ending

    def is_busy(self) -> bool:
        """See ``Connection``."""
        return bool(self._replies)

    def has_unsaved_work(self) -> bool:
        """See ``Connection``: requests that are being served."""
        return bool(self._replies)

    def hurry(self) -> None:
        """See ``Connection``: answer a waiting fetch now."""
        if self._serving is not None and self._serving.hurry is not None:
            self._serving.hurry()

    def overdue(self, now_s: float) -> str | None:
        """See ``Connection``; a peer that takes nothing while others need room is closed sooner."""
        budget = self._node.fetch_budget
        if (
            self._fetched_bytes
            and budget.waiting_count
            and self.stalled_s(now_s) > self.listener.config.frame_s_max
        ):
            return "fetch_bytes_budget"
        return super().overdue(now_s)

    def closed(self) -> None:
        """See ``Connection``."""
        if self._serving is not None and self._serving.cancel is not None:
            self._serving.cancel()
        if self._task is not None:
            self._task.cancel()
        self._mute.cancel()
        super().closed()
        self._node.share_sessions.end_connection(self._session)
        fetched_bytes = self._fetched_bytes + sum(r.fetched_bytes for r in self._replies)
        self._fetched_bytes = 0
        self._replies.clear()
        self._node.fetch_budget.give_back(fetched_bytes)

    def describe(self) -> dict[str, Any]:
        """See ``Connection``."""
        session = self._session
        return super().describe() | {
            "client_id": session.client_id if session else "",
            "user": session.principal.name if session else "",
        }
