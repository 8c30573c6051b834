"""The Kafka endpoint: read frames, serve requests in order, write answers in order."""

import asyncio
import importlib
import os
import struct
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, ClassVar, Final

from adapters.kafka import cold
from adapters.kafka.codec import (
    API_VERSIONS,
    RequestHeader,
    decode_request_header,
)
from adapters.kafka.config import KafkaConfig
from adapters.kafka.handlers import APIS, Api, Turn, api_versions
from adapters.kafka.metadata_cache import MetadataCache
from adapters.kafka.session import FetchBudget, Framer, Node, Session
from gateway.config import parse_address, Address
from gateway.errors import PeerError
from gateway.kernel import Endpoint, Kernel
from gateway.listener import Connection, Listener
from gateway.metadata import ProducerIds
from gateway.model import Octets

_RESPONSE: Final = struct.Struct(">ii")
_CORRELATION_BYTES: Final = 4
_FLEXIBLE_FROM: Final = {0: 9, 1: 12}


def _is_flexible(api_key: int, version: int) -> bool:
    """Say whether a request's header ends with tagged fields."""
    first = _FLEXIBLE_FROM.get(api_key)
    if first is not None:
        return version >= first
    if api_key == API_VERSIONS:
        return 3 <= version <= api_versions.VERSIONS[-1]  # noqa: PLR2004 - KIP-511
    return api_key in APIS and cold.is_flexible(api_key, version)


class Reply:
    """The place of one answer in the order of its connection's answers."""

    __slots__ = (
        "cancel", "connection", "correlation_id", "hurry", "is_done", "is_flexible", "pieces",
        "unacknowledged_bytes",
    )  # fmt: skip

    def __init__(self, connection: "KafkaConnection", header: RequestHeader) -> None:
        self.connection = connection
        self.correlation_id = header.correlation_id
        self.is_flexible = header.api_key != API_VERSIONS and _is_flexible(
            header.api_key, header.version
        )
        self.is_done = False
        self.pieces: list[Octets] = []
        self.unacknowledged_bytes = 0
        self.hurry: Callable[[], None] | None = None
        self.cancel: Callable[[], None] | None = None

    def __call__(self, body: Octets | list[Octets] | None) -> None:
        """Answer with a body, or its pieces; None is for requests that have no answer."""
        if body is not None:
            pieces = body if isinstance(body, list) else [body]
            tags = b"\x00" if self.is_flexible else b""
            size = _CORRELATION_BYTES + len(tags) + sum(map(len, pieces))
            self.pieces = [_RESPONSE.pack(size, self.correlation_id) + tags, *pieces]
        self.is_done = True
        self.connection.guard(self.connection.on_reply, self)


class KafkaConnection(Connection):
    """One client. Requests are served one after the other; Produce does not hold up the next."""

    def __init__(self, listener: Listener, adapter: "KafkaAdapter") -> None:
        super().__init__(listener)
        self._adapter = adapter
        self._node = adapter.node
        self._framer = Framer(
            listener.receive_buffer, bytes_max=adapter.config.request_bytes_max
        )
        self._session: Session | None = None
        self._frames: deque[memoryview] = deque()
        self._replies: deque[Reply] = deque()
        self._serving: Reply | None = None  # what the next request waits for
        self._task: asyncio.Task[None] | None = None
        self._unacknowledged_bytes = 0
        self._fetched_bytes = 0
        self._is_serving = False

    @property
    def session(self) -> Session:
        """Who the peer is; made with the first request."""
        if self._session is None:
            self._session = Session(
                self._node,
                peer_host=self.peer_host,
                advertised=self._adapter.advertised(self.transport),
            )
        return self._session

    # --- reading

    def receive_buffer(self) -> memoryview:
        """See ``Connection``."""
        return self._framer.buffer()

    def received(self, size_bytes: int) -> None:
        """See ``Connection``."""
        self._frames.extend(self._framer.received(size_bytes))
        if not self._framer.is_midway:
            self.frame_started_s = None
        elif self.frame_started_s is None or self._frames:
            self.frame_started_s = self.listener.now_s
        if len(self._frames) + len(self._replies) > self._adapter.config.requests_queued_max:
            self.hold_reads("requests")
        self._serve_queued()

    def released(self) -> None:
        """See ``Connection``: go on with what was read already."""
        self._serve_queued()

    def _serve_queued(self) -> None:
        if self._is_serving:
            return  # a reply that came at once; the loop below goes on
        self._is_serving = True
        try:
            while (
                self._frames and self._serving is None and not self.is_held_but_for("requests")
            ):
                self._serve(self._frames.popleft())
        finally:
            self._is_serving = False
        if (
            len(self._frames) + len(self._replies)
            <= self._adapter.config.requests_queued_max // 2
        ):
            self.release_reads("requests")

    # --- serving

    def _serve(self, frame: memoryview) -> None:
        header = decode_request_header(frame, _is_flexible)
        self.has_greeted = True
        api = self._find(header)
        self._adapter.requests[api.key] += 1
        reply = Reply(self, header)
        self._replies.append(reply)
        if header.version not in api.versions:
            reply(api_versions.unsupported_version())
            return
        session = self.session
        session.client_id = header.client_id
        module = self._adapter.handlers.get(api.key)
        body = frame[header.body_at :]
        if api.turn is Turn.IN_TURN:
            if module is None:
                self._start(reply, self._load_and_handle(api, header.version, body, reply))
            else:
                self._handle(module, api, header.version, body, reply)
            return
        module = module or self._adapter.load(api)
        request = module.decode(header.version, body)
        if api.turn is Turn.DEFERRED:
            self._serving = reply
        else:
            self._count_unacknowledged(reply, len(frame))
        module.handle(request, session, header.version, reply)
        self._hold_when_saturated()

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
        self, module: ModuleType, api: Api, version: int, body: memoryview, reply: Reply
    ) -> None:
        decode = getattr(module, "decode", None)
        request = (
            decode(version, body)
            if decode is not None
            else cold.decode_request(api.key, version, body)
        )
        response = module.handle(request, self.session, version)
        if isinstance(response, Awaitable):
            self._start(reply, self._answer_later(response, version, reply))
        else:
            reply(self._encode(response, version))

    def _start(self, reply: Reply, work: Any) -> None:  # noqa: ANN401 - a coroutine
        self._serving = reply
        self._task = self.listener.loop.create_task(work)
        self._task.add_done_callback(lambda task: self.guard(self._on_task_done, task))

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.result()

    async def _load_and_handle(
        self, api: Api, version: int, body: memoryview, reply: Reply
    ) -> None:
        """Import the handler, which may bring kafka-python with it, while the loop goes on."""
        module = await self.listener.loop.run_in_executor(None, self._adapter.load, api)
        self._serving = None
        self._handle(module, api, version, body, reply)

    async def _answer_later(
        self,
        response: Awaitable[Any],
        version: int,
        reply: Reply,
    ) -> None:
        reply(self._encode(await response, version))
        if self.session.is_rejected:
            msg = "authentication failed"
            raise PeerError(msg)

    @staticmethod
    def _encode(response: Any, version: int) -> Octets:  # noqa: ANN401 - generated classes
        if isinstance(response, bytes | bytearray):
            return response
        return cold.encode_response(response, version)

    # --- bounds of what is produced

    def _count_unacknowledged(self, reply: Reply, size_bytes: int) -> None:
        reply.unacknowledged_bytes = size_bytes
        self._unacknowledged_bytes += size_bytes
        if self._unacknowledged_bytes > self._adapter.config.unacknowledged_bytes_max:
            self.hold_reads("unacknowledged")

    def _hold_when_saturated(self) -> None:
        """Who appends waits for the log; who only reads is not held."""
        writer = self._node.broker.writer
        if self._unacknowledged_bytes and writer.is_saturated:
            self.hold_reads("wal")
            writer.hold(lambda: self.release_reads("wal"))

    # --- answering

    def on_reply(self, reply: Reply) -> None:
        """An answer is complete: send what is in turn, then serve what waited for it."""
        if reply.unacknowledged_bytes:
            self._unacknowledged_bytes -= reply.unacknowledged_bytes
            if self._unacknowledged_bytes <= self._adapter.config.unacknowledged_bytes_max // 2:
                self.release_reads("unacknowledged")
        replies = self._replies
        while replies and replies[0].is_done:
            pieces = replies.popleft().pieces
            if pieces:
                self.send(*pieces)
                if len(pieces) > 2:  # noqa: PLR2004 - only fetches have more than head and body
                    self._count_fetched(sum(map(len, pieces)))
        if reply is self._serving:
            self._serving = None
        self._serve_queued()

    def _count_fetched(self, size_bytes: int) -> None:
        self._fetched_bytes += size_bytes
        self._node.fetch_budget.take(size_bytes)

    def flushed(self) -> None:
        """See ``Connection``: what the peer has taken is no longer counted."""
        if self._fetched_bytes and self.is_writable:
            taken, self._fetched_bytes = self._fetched_bytes, 0
            self._node.fetch_budget.give_back(taken)

    # --- ending

    def is_busy(self) -> bool:
        """See ``Connection``."""
        return bool(self._replies)

    def has_unsaved_work(self) -> bool:
        """See ``Connection``: produced batches that are not acknowledged."""
        return self._unacknowledged_bytes > 0

    def hurry(self) -> None:
        """See ``Connection``: a waiting fetch answers now."""
        if self._serving is not None and self._serving.hurry is not None:
            self._serving.hurry()

    def closed(self) -> None:
        """See ``Connection``."""
        if self._serving is not None and self._serving.cancel is not None:
            self._serving.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._fetched_bytes:
            self._node.fetch_budget.give_back(self._fetched_bytes)
            self._fetched_bytes = 0
        self._frames.clear()

    def describe(self) -> dict[str, Any]:
        """See ``Connection``."""
        session = self._session
        return super().describe() | {
            "client_id": session.client_id if session else "",
            "user": session.principal.name if session else "",
        }


class KafkaAdapter:
    """The Kafka protocol on one listener."""

    Config: ClassVar = KafkaConfig

    def __init__(self, config: KafkaConfig, kernel: Kernel) -> None:
        self.config = config
        self.handlers: dict[int, ModuleType] = {}
        self.requests: Counter[int] = Counter()
        self.node = Node(
            broker=kernel.broker,
            topics=kernel.topics,
            groups=kernel.groups,
            cursors=kernel.cursors,
            authenticator=kernel.authenticator,
            authorizer=kernel.authorizer,
            placement=kernel.placement,
            metadata=kernel.metadata,
            clock=kernel.clock,
            settings=kernel.settings,
            config=config,
            fetch_budget=FetchBudget(kernel.settings.broker.fetch_bytes_budget),
            producer_ids=ProducerIds(kernel.metadata),
            metadata_cache=MetadataCache(kernel.placement),
        )
        self._listener: Listener | None = None

    def load(self, api: Api) -> ModuleType:
        """Return the API's handler module, imported when it is first needed."""
        module = importlib.import_module(f"adapters.kafka.handlers.{api.module}")
        self.handlers[api.key] = module
        return module

    @property
    def listener(self) -> Listener:
        """The listener, once started."""
        assert self._listener is not None
        return self._listener

    def advertised(self, transport: asyncio.Transport | None) -> Address:
        """Return the address clients are told: the configured one, or where they reached us."""
        if self.config.advertise is not None:
            return parse_address(self.config.advertise)
        sockname = transport.get_extra_info("sockname") if transport is not None else None
        if sockname is None:
            return Address(self.listener.host, self.listener.port)
        return Address(sockname[0], sockname[1])

    async def start(self) -> None:
        """Listen. Error: ``OSError`` when the address cannot be had."""
        for key in (0, 1, API_VERSIONS):
            self.load(APIS[key])
        self._listener = Listener(
            "kafka", self.config, lambda listener: KafkaConnection(listener, self)
        )
        await self._listener.start()

    async def drain(self, seconds_max: float) -> None:
        """Accept nothing new; let produced batches be acknowledged."""
        await self.listener.drain(seconds_max)

    async def stop(self) -> None:
        """Close every connection."""
        if self._listener is not None:
            await self._listener.stop()

    def endpoints(self) -> list[Endpoint]:
        """Return what ``headgate serve`` prints when it is ready."""
        address = Address(self.listener.host, self.listener.port)
        python = min(sys.executable, os.path.relpath(sys.executable), key=len)
        try_it = f"echo hello | {python} -m kafka.producer -b {address} -t greetings"
        return [Endpoint("kafka", str(address), try_it)]

    def request_counts(self) -> list[tuple[str, int]]:
        """Return how many requests came, by API."""
        return [(APIS[key].name, count) for key, count in self.requests.items()]

    def connections(self) -> list[dict[str, Any]]:
        """Return what ``headgate clients`` shows."""
        return [connection.describe() for connection in self.listener.connections]
