"""One connection's state, without any I/O: its frames, who it is, what the node offers it."""

import struct
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.kafka.config import KafkaConfig, KafkaListener
from adapters.kafka.node.fetch_pacing import FetchPacing
from adapters.kafka.node.large_requests import LargeRequestThread
from adapters.kafka.node.metadata_cache import MetadataCache
from gateway.auth.audit import Audit
from gateway.auth.login_throttle import LoginThrottle
from gateway.auth.ports import (
    ANONYMOUS,
    Authenticator,
    Authorizer,
    Operation,
    Principal,
    ResourceType,
)
from gateway.broker import Broker
from gateway.budget import Budget
from gateway.clock import Clock
from gateway.config.base import Address
from gateway.config.settings import Settings
from gateway.delays.manager import Delays
from gateway.errors import PeerError
from gateway.groups.cursors import CursorManager
from gateway.groups.manager import GroupManager
from gateway.metadata.store import MetadataStore, ProducerIds
from gateway.model import DEFAULT_NAMESPACE
from gateway.placement import Placement
from gateway.topics.manager import TopicManager

REQUEST_BYTES_MIN: Final = 8  # API key, version, correlation id
DIRECT_BYTES_MIN: Final = 64 * 1024  # from here on a frame is read in place, without a copy

_SIZE: Final = struct.Struct(">i")
_SIZE_BYTES: Final = 4
_FIRST_BYTES: Final = 2 * DIRECT_BYTES_MIN
_GROWTH: Final = 4


class Framer:
    """Cuts a stream of bytes into frames: a size (int32), then as many bytes.

    Small frames are copied out of the shared buffer; the rest of a large one is read straight
    into its own buffer. That one grows as bytes come, to four times of them, or to the size of the
    largest frame that was completed: an announced size costs nothing. A frame is mutable and
    belongs to whoever takes it. ``bytes_max``: the largest frame that is taken.
    """

    __slots__ = (
        "_filled",
        "_frame",
        "_head",
        "_is_direct",
        "_proven_bytes",
        "_shared",
        "_size_bytes",
        "_start",
        "_view",
        "bytes_max",
    )

    def __init__(self, shared: memoryview, *, bytes_max: int) -> None:
        self._shared = shared
        self.bytes_max = bytes_max
        self._size_bytes = 0  # of the frame under way; 0 between frames
        self._frame: bytearray | None = None
        self._start = b""  # what came of a large frame before it had its buffer
        self._filled = 0
        self._head = b""
        self._is_direct = False
        self._view: memoryview | None = None  # of the frame, where it was read into last
        self._proven_bytes = _FIRST_BYTES  # of the largest frame that was completed

    @property
    def is_midway(self) -> bool:
        """A frame has begun and is not complete."""
        return self._size_bytes > 0 or bool(self._head)

    @property
    def large_bytes(self) -> int:
        """Bytes of the frame under way when it is a large one, else 0."""
        return self._size_bytes if self._size_bytes >= DIRECT_BYTES_MIN else 0

    @property
    def kept_bytes(self) -> int:
        """Bytes that the frame under way occupies, or will as soon as more of it comes."""
        if self._frame is None:
            return self._room_for(len(self._start)) if self._size_bytes else 0
        if len(self._frame) - self._filled >= DIRECT_BYTES_MIN:
            return len(self._frame)
        return self._room_for(self._filled)

    def buffer(self) -> memoryview:
        """Return where the next bytes go."""
        if self._size_bytes and (self._frame is None or self._is_nearly_full()):
            self._grow(self._filled or len(self._start))
        frame = self._frame
        self._is_direct = frame is not None and len(frame) - self._filled >= DIRECT_BYTES_MIN
        if not self._is_direct:
            return self._shared
        self._view = memoryview(frame)[self._filled :]  # type: ignore[arg-type]  # is_direct says so
        return self._view

    def received(self, size_bytes: int) -> list[memoryview]:
        """Take what was read into ``buffer``; return the frames that are complete now.

        Error: ``PeerError`` for a size below a request's header or above ``bytes_max``.
        """
        if self._is_direct:
            self._filled += size_bytes
            return self._take_if_full()
        data = self._shared[:size_bytes]
        frames = []
        if self._frame is not None:
            part = data[: self._size_bytes - self._filled]
            if len(self._frame) < self._filled + len(part):
                self._grow(self._filled + len(part))
            self._frame[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            data = data[len(part) :]
            frames = self._take_if_full()
        self._cut(data, frames)
        return frames

    def _is_nearly_full(self) -> bool:
        assert self._frame is not None
        return len(self._frame) - self._filled < min(
            DIRECT_BYTES_MIN, self._size_bytes - self._filled
        )

    def _room_for(self, filled: int) -> int:
        """Return how large the buffer of the frame under way is to be when so much has come."""
        return min(self._size_bytes, max(self._proven_bytes, _GROWTH * filled))

    def _grow(self, filled: int) -> None:
        room_bytes = self._room_for(filled)
        if self._frame is None:
            self._filled = len(self._start)
            self._frame = bytearray(room_bytes)
            self._frame[: self._filled] = self._start
            self._start = b""
        else:  # in place: what was read is not copied, nor are its pages given anew
            if self._view is not None:
                self._view.release()  # a frame that is looked at does not grow
            self._frame.extend(bytes(room_bytes - len(self._frame)))

    def _take_if_full(self) -> list[memoryview]:
        if self._frame is None or self._filled < self._size_bytes:
            return []
        frame, self._frame = self._frame, None
        self._view = None
        self._proven_bytes = max(self._proven_bytes, self._size_bytes)
        self._size_bytes = 0
        return [memoryview(frame)]

    def _cut(self, data: memoryview, frames: list[memoryview]) -> None:
        if self._head and len(data):
            data = memoryview(self._head + bytes(data))
            self._head = b""
        at, end = 0, len(data)
        while end - at >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(data, at)
            if not REQUEST_BYTES_MIN <= size <= self.bytes_max:
                msg = (
                    f"a request of {size} bytes; "
                    f"{REQUEST_BYTES_MIN} to {self.bytes_max} are taken"
                )
                raise PeerError(msg)
            at += _SIZE_BYTES
            if end - at < size:
                self._size_bytes = size
                self._start = bytes(data[at:end])
                return
            frames.append(memoryview(bytearray(data[at : at + size])))
            at += size
        self._head = bytes(data[at:end])


@dataclass(frozen=True, slots=True)
class Node:
    """What handlers use of the node: the kernel's parts and the listener's settings."""

    broker: Broker
    topics: TopicManager
    groups: GroupManager
    cursors: CursorManager
    delays: Delays
    authenticator: Authenticator
    authorizer: Authorizer
    placement: Placement
    metadata: MetadataStore
    clock: Clock
    settings: Settings
    config: KafkaConfig
    fetch_budget: Budget
    fetch_pacing: FetchPacing
    request_budget: Budget
    producer_ids: ProducerIds
    metadata_cache: MetadataCache
    large_request_thread: LargeRequestThread = field(default_factory=LargeRequestThread)
    audit: Audit = field(default_factory=Audit)
    logins: LoginThrottle = field(default_factory=LoginThrottle)


class Session:
    """Who a connection is. Handlers read it; SASL handlers write it."""

    __slots__ = (
        "accepts_sasl",
        "advertised",
        "client_id",
        "is_authenticated",
        "is_rejected",
        "namespace",
        "node",
        "peer_host",
        "principal",
        "sasl",
    )

    def __init__(
        self,
        node: Node,
        *,
        peer_host: str,
        advertised: Address,
        listener: KafkaListener | None = None,
        certificate_user: str | None = None,
    ) -> None:
        """``certificate_user``: whom the client's certificate maps to on its listener."""
        listener = listener or node.config
        named = None if listener.authentication == "sasl" else certificate_user
        self.node = node
        self.peer_host = peer_host
        self.advertised = advertised
        self.client_id = ""
        self.namespace = listener.namespace
        self.principal = Principal(named or ANONYMOUS, "kafka", peer_host)
        self.is_authenticated = named is not None or (
            listener.authentication == "any" and not node.authenticator.required
        )
        self.accepts_sasl = listener.authentication != "certificate"
        self.is_rejected = False  # authentication failed: answer, then close
        self.sasl: Any = None

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Say whether the connection's principal may do that.

        Rules name what is outside of the default namespace ``namespace/name``.
        """
        if self.namespace != DEFAULT_NAMESPACE and resource_type is not ResourceType.CLUSTER:
            name = f"{self.namespace}/{name}"
        return self.node.authorizer.allows(self.principal, operation, resource_type, name)

    def changes(
        self, action: str, name: str, *, dry: bool = False
    ) -> AbstractContextManager[None]:
        """Write an audit line about the change made inside; ``dry``: it is only tried out."""
        return nullcontext() if dry else self.node.audit.change(self.principal, action, name)
