"""Shards of a node: which are its own, and calls to any of them, wherever it is served.

A part of the node that others may need in a shard registers a *service*: a name, and the calls and
streams that it serves. A call of a shard that this node owns is a function call. Any other goes to
the owner by the ``Link``, with the shard's epoch; a node that does not own the shard in this epoch
refuses it.
"""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Final

import structlog

from gateway.errors import GatewayError, InvalidRequest, NotOwner, Overloaded, as_value
from gateway.futures import set_result_if_pending
from gateway.placement import Placement, owner_id_of
from gateway.shards.local_stream import LocalStream
from gateway.shards.model import (
    NOT_OWNER,
    Link,
    NoLink,
    OnReply,
    Reply,
    Request,
    Room,
    Service,
    Status,
    Stream,
    StreamReceiver,
    refused,
)

CALLS_MAX: Final = 16_384
"""Calls to other nodes without an answer; more are refused."""

_log = structlog.get_logger()


class ShardCalls:
    """Rooms of this node's shards, and the way to the others. Loop only."""

    def __init__(self, placement: Placement, link: Link | None = None) -> None:
        self._placement = placement
        self.link: Link = link or NoLink()
        self._loop = asyncio.get_running_loop()
        self._services: dict[str, Service] = {}
        self._open_calls = 0
        self._rooms: list[Room | None] = [None] * placement.shard_count
        self._follow_owners(range(placement.shard_count))
        # Before what else follows: who hears of a change finds the rooms as they are after it.
        placement.on_change.insert(0, self._follow_owners)

    def register(self, name: str, service: Service) -> None:
        """Serve calls of that name. A name is registered once."""
        assert name not in self._services, name
        self._services[name] = service

    def unregister(self, name: str) -> None:
        """Serve calls of that name no more, after its part of the node has ended."""
        self._services.pop(name, None)

    def service(self, name: str) -> Service:
        """Return a service of this node; all nodes have the same. Error: ``InvalidRequest``."""
        found = self._services.get(name)
        if found is None:
            raise InvalidRequest(f"no service {name!r}")
        return found

    def local(self, shard: int) -> Room | None:
        """Return the room of a shard of this node; None for another node's."""
        return self._rooms[shard]

    def call(self, shard: int, service: str, payload: object, on_reply: OnReply) -> None:
        """Call a service of a shard, at its owner.

        ``on_reply`` runs once, in a later turn of the loop. The caller decides what ``UNKNOWN``
        means for it: never is such a call repeated as a new one here.
        """
        later = partial(self._later, on_reply)
        room = self._rooms[shard]
        if room is not None:
            self._serve(room, service, payload, later)
            return
        placement = self._placement
        owner = placement.owner(shard)
        if owner is None:
            later(NOT_OWNER)
            return
        if self._open_calls >= CALLS_MAX:
            later(refused(Overloaded(f"{CALLS_MAX} calls of other nodes are open")))
            return
        self._open_calls += 1
        request = Request(shard, placement.epoch(shard), service, payload)
        self.link.call(owner.node_id, request, partial(self._answered, later))

    async def ask(self, shard: int, service: str, payload: object) -> object:
        """Call a service as ``call``, and return the payload of its reply.

        Errors: ``Reply.as_error``; ``NotOwner`` names the owner that this node knows.
        """
        replied: asyncio.Future[Reply] = self._loop.create_future()
        self.call(shard, service, payload, partial(set_result_if_pending, replied))
        reply = await replied
        if reply.status is Status.NOT_OWNER:
            placement = self._placement
            owner_id, epoch = owner_id_of(shard, placement), placement.epoch(shard)
            raise NotOwner("the shard is another node's", owner_id=owner_id, epoch=epoch)
        error = reply.as_error()
        if error is not None:
            raise error
        return reply.payload

    def _later(self, on_reply: OnReply, reply: Reply) -> None:
        self._loop.call_soon(on_reply, reply)

    def _answered(self, later: OnReply, reply: Reply) -> None:
        self._open_calls -= 1
        later(reply)

    def stream(
        self,
        shard: int,
        service: str,
        payload: object,
        receiver: StreamReceiver,
        *,
        credit: int,
    ) -> Stream:
        """Begin a stream of items from a service of a shard, at most ``credit`` until a grant.

        ``receiver`` is called in later turns of the loop. A stream that breaks ends with
        ``UNKNOWN``; the caller begins anew from what it has received.
        """
        room = self._rooms[shard]
        if room is not None:
            return self._serve_stream(room, service, payload, receiver, credit)
        placement = self._placement
        owner = placement.owner(shard)
        epoch = placement.epoch(shard)
        request = Request(shard, epoch, service, payload)
        if owner is None:
            return NoLink().stream(-1, request, LaterEnd(self._loop, receiver), credit)
        return self.link.stream(owner.node_id, request, LaterEnd(self._loop, receiver), credit)

    # --- serving, for links

    def serve(self, request: Request, on_reply: OnReply) -> None:
        """Serve a call of another node; refuse one of a shard or an epoch that is not ours."""
        room = self._room_of(request)
        if room is None:
            on_reply(NOT_OWNER)
        else:
            self._serve(room, request.service, request.payload, on_reply)

    def serve_stream(self, request: Request, receiver: StreamReceiver, credit: int) -> Stream:
        """Begin a stream to another node; see ``serve``."""
        room = self._room_of(request)
        if room is None:
            return NoLink().stream(-1, request, receiver, credit)
        return self._serve_stream(room, request.service, request.payload, receiver, credit)

    def _room_of(self, request: Request) -> Room | None:
        if not 0 <= request.shard < len(self._rooms):
            return None
        room = self._rooms[request.shard]
        return room if room is not None and room.epoch == request.epoch else None

    def _serve(self, room: Room, name: str, payload: object, on_reply: OnReply) -> None:
        try:
            self.service(name).call(room, payload, on_reply)
        except GatewayError as error:
            on_reply(refused(as_value(error)))

    def _serve_stream(
        self, room: Room, name: str, payload: object, receiver: StreamReceiver, credit: int
    ) -> Stream:
        stream = LocalStream(self._loop, receiver, credit)
        try:
            stream.begin(self.service(name).open_stream(room, payload, stream))
        except GatewayError as error:
            stream.end(refused(as_value(error)))
        return stream

    # --- owners

    def _follow_owners(self, shards: Collection[int]) -> None:
        placement = self._placement
        for shard in shards:
            is_own = placement.owns(shard)
            self._rooms[shard] = Room(shard, placement.epoch(shard)) if is_own else None


class LaterEnd:
    """StreamReceiver whose end is told in a later turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receiver: StreamReceiver) -> None:
        self._loop = loop
        self._receiver = receiver
        self.on_item = receiver.on_item

    def on_end(self, reply: Reply) -> None:
        """See ``StreamReceiver``."""
        self._loop.call_soon(self._receiver.on_end, reply)
