"""Requests to shards and their replies, and the ports of what serves and carries them."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from gateway.errors import GatewayError, NotOwner, OutcomeUnknown


class Status(Enum):
    """Outcome of a call."""

    DONE = "done"
    REFUSED = "refused"
    """Nothing was changed; the reply has the error."""
    NOT_OWNER = "not the owner"
    """Nothing was changed: the node does not own the shard in the request's epoch."""
    UNKNOWN = "unknown"
    """The answer was lost. The call may have been served, or may still be served later."""


class Reply(NamedTuple):
    """Answer to a call. ``payload`` is set with ``DONE``, ``error`` with ``REFUSED``."""

    status: Status
    payload: object = None
    error: GatewayError | None = None

    def as_error(self) -> GatewayError | None:
        """Return what a caller raises or passes on; None when the call is done."""
        if self.status is Status.DONE:
            return None
        if self.status is Status.NOT_OWNER:
            return NotOwner("the shard is another node's")
        if self.status is Status.UNKNOWN:
            return OutcomeUnknown("the answer of the shard's owner was lost")
        return self.error


DONE = Reply(Status.DONE)
NOT_OWNER = Reply(Status.NOT_OWNER)
UNKNOWN = Reply(Status.UNKNOWN)

OnReply = Callable[[Reply], None]
"""Callback that runs once, in a later turn of the loop than the call. It does not raise."""


def refused(error: GatewayError) -> Reply:
    """Return the reply of a call that changed nothing."""
    return Reply(Status.REFUSED, error=error)


class Request(NamedTuple):
    """Call of a service of a shard. ``epoch`` is the shard's, as the caller knows it."""

    shard: int
    epoch: int
    service: str
    payload: object


class Room(NamedTuple):
    """Shard that this node serves, in one epoch. A shard that comes back has another room."""

    shard: int
    epoch: int


class Sink(Protocol):
    """End of a stream at the service: takes items while there is credit."""

    @property
    def credit(self) -> int:
        """Number of items that may be sent now."""
        ...

    def send(self, item: object) -> None:
        """Send an item, which takes one of the credit."""
        ...

    def end(self, reply: Reply) -> None:
        """End the stream; after ``DONE`` the receiver has had every item."""
        ...


class StreamSource(Protocol):
    """Items of a stream at the service, which the stream calls for more."""

    def on_credit(self) -> None:
        """Send more: there is credit again."""
        ...

    def on_closed(self) -> None:
        """Stop: the receiver is gone, or does not want any more."""
        ...


class StreamReceiver(Protocol):
    """End of a stream at the caller."""

    def on_item(self, item: object) -> None:
        """Take an item; they come in order, without a gap."""
        ...

    def on_end(self, reply: Reply) -> None:
        """Note the end, once; nothing follows. Not called after ``Stream.close``."""
        ...


class Stream(Protocol):
    """Stream as its caller holds it."""

    def grant(self, count: int) -> None:
        """Let the service send so many items more."""
        ...

    def close(self) -> None:
        """End it; nothing more is received."""
        ...


class Codec(Protocol):
    """Bytes of a service's payloads, for calls that leave the process."""

    def encode_request(self, payload: object) -> bytes:
        """Return a request's payload as bytes."""
        ...

    def decode_request(self, data: bytes) -> object:
        """Return a request's payload. Error: ``ValueError``."""
        ...

    def encode_reply(self, payload: object) -> bytes:
        """Return the payload of a reply, or an item of a stream, as bytes."""
        ...

    def decode_reply(self, data: bytes) -> object:
        """Return the payload of a reply, or an item. Error: ``ValueError``."""
        ...


class Service(Protocol):
    """Part of a node that other nodes call, for one shard at a time."""

    codec: Codec

    def call(self, room: Room, payload: object, on_reply: OnReply) -> None:
        """Serve a call; reply once, now or later. Error: ``GatewayError``, which refuses it."""
        ...

    def open_stream(self, room: Room, payload: object, sink: Sink) -> StreamSource:
        """Begin a stream. Nothing is sent before this has returned. Error: as ``call``."""
        ...


class Link(Protocol):
    """Way to the other nodes. Whatever happens to it, each call is answered once."""

    def call(self, node_id: int, request: Request, on_reply: OnReply) -> None:
        """Send a call to a node."""
        ...

    def stream(
        self, node_id: int, request: Request, receiver: StreamReceiver, credit: int
    ) -> Stream:
        """Begin a stream from a node."""
        ...


class NoLink:
    """Way to other nodes of a node that has none: they own nothing."""

    def call(self, node_id: int, request: Request, on_reply: OnReply) -> None:
        """See ``Link``."""
        del node_id, request
        on_reply(NOT_OWNER)

    def stream(
        self, node_id: int, request: Request, receiver: StreamReceiver, credit: int
    ) -> Stream:
        """See ``Link``."""
        del node_id, request, credit
        receiver.on_end(NOT_OWNER)
        return _ENDED


class _EndedStream:
    """Stream that has ended as it began."""

    def grant(self, count: int) -> None:
        """See ``Stream``."""

    def close(self) -> None:
        """See ``Stream``."""


_ENDED = _EndedStream()
