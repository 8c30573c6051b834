"""One connection's state, without any I/O: its frames, who it is, and what the node offers it."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from adapters.kafka.config import KafkaConfig
from adapters.kafka.metadata_cache import MetadataCache
from gateway.auth import Authenticator, Authorizer, Operation, Principal, ResourceType
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config import Address, Settings
from gateway.cursors import CursorManager
from gateway.errors import PeerError
from gateway.groups import GroupManager
from gateway.metadata import MetadataStore, ProducerIds
from gateway.model import DEFAULT_NAMESPACE
from gateway.placement import Placement
from gateway.topics import TopicManager

REQUEST_BYTES_MIN: Final = 8  # API key, version, correlation id
DIRECT_BYTES_MIN: Final = 64 * 1024  # from here on a frame is read in place, without a copy

_SIZE: Final = struct.Struct(">i")
_SIZE_BYTES: Final = 4


class Framer:
    """Cuts a stream of octets into frames: a size (int32), then as many octets.

    Small frames are copied out of the shared buffer; the rest of a large one is read straight
    into its own. A frame is mutable and belongs to whoever takes it.
    """

    __slots__ = ("_bytes_max", "_filled", "_frame", "_head", "_is_direct", "_shared")

    def __init__(self, shared: memoryview, *, bytes_max: int) -> None:
        self._shared = shared
        self._bytes_max = bytes_max
        self._frame: bytearray | None = None
        self._filled = 0
        self._head = b""
        self._is_direct = False

    @property
    def is_midway(self) -> bool:
        """A frame has begun and is not complete."""
        return self._frame is not None or bool(self._head)

    def buffer(self) -> memoryview:
        """Return where the next octets go."""
        frame = self._frame
        self._is_direct = frame is not None and len(frame) - self._filled >= DIRECT_BYTES_MIN
        if self._is_direct:
            return memoryview(frame)[self._filled :]  # type: ignore[arg-type]  # is_direct says so
        return self._shared

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
            part = data[: len(self._frame) - self._filled]
            self._frame[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            data = data[len(part) :]
            frames = self._take_if_full()
        self._cut(data, frames)
        return frames

    def _take_if_full(self) -> list[memoryview]:
        if self._frame is None or self._filled < len(self._frame):
            return []
        frame, self._frame = self._frame, None
        return [memoryview(frame)]

    def _cut(self, data: memoryview, frames: list[memoryview]) -> None:
        if self._head and len(data):
            data = memoryview(self._head + bytes(data))
            self._head = b""
        at, end = 0, len(data)
        while end - at >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(data, at)
            if not REQUEST_BYTES_MIN <= size <= self._bytes_max:
                msg = f"a request of {size} octets; {REQUEST_BYTES_MIN} to {self._bytes_max} are taken"
                raise PeerError(msg)
            at += _SIZE_BYTES
            if end - at < size:
                self._frame = bytearray(size)
                self._filled = end - at
                self._frame[: self._filled] = data[at:end]
                return
            frames.append(memoryview(bytearray(data[at : at + size])))
            at += size
        self._head = bytes(data[at:end])


class FetchBudget:
    """The octets of fetch answers that peers have not taken, of all connections together."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_taken = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def free_bytes(self) -> int:
        """What may still be read; 0 or less: wait."""
        return self.bytes_max - self.bytes_taken

    def take(self, size_bytes: int) -> None:
        """Count an answer. One may exceed the budget, by the one batch that is always given."""
        self.bytes_taken += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """A peer has taken its answer: those who wait try again."""
        self.bytes_taken -= size_bytes
        if self._waiting and self.free_bytes > 0:
            waiting, self._waiting = self._waiting, []
            for retry in waiting:
                retry()

    def wait(self, retry: Callable[[], None]) -> None:
        """Call ``retry`` when there is room again; it checks for itself whether it still matters."""
        self._waiting.append(retry)


@dataclass(frozen=True, slots=True)
class Node:
    """What handlers use of the node: the kernel's parts and the listener's settings."""

    broker: Broker
    topics: TopicManager
    groups: GroupManager
    cursors: CursorManager
    authenticator: Authenticator
    authorizer: Authorizer
    placement: Placement
    metadata: MetadataStore
    clock: Clock
    settings: Settings
    config: KafkaConfig
    fetch_budget: FetchBudget
    producer_ids: ProducerIds
    metadata_cache: MetadataCache


class Session:
    """Who a connection is. Handlers read it; SASL handlers write it."""

    __slots__ = (
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

    def __init__(self, node: Node, *, peer_host: str, advertised: Address) -> None:
        self.node = node
        self.peer_host = peer_host
        self.advertised = advertised
        self.client_id = ""
        self.namespace = DEFAULT_NAMESPACE
        self.principal = Principal("ANONYMOUS", "kafka", peer_host)
        self.is_authenticated = not node.authenticator.required
        self.is_rejected = False  # authentication failed: answer, then close
        self.sasl: Any = None

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Say whether the connection's principal may do that."""
        return self.node.authorizer.allows(self.principal, operation, resource_type, name)
