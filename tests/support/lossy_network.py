"""Link between nodes over bytes that delays, drops and duplicates frames, by a seed.

A frame is what a peer link would send: length, kind, shard, the shard's epoch, a number that its
answer bears, then a body. The frame that goes next is any of those on their way. A call whose frame
was dropped is unknown some turns later; so are some others, whose answer comes too late.
"""

import asyncio
import random
import struct
from enum import IntEnum
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from gateway import errors
from gateway.errors import GatewayError
from gateway.shards.calls import ShardCalls
from gateway.shards.model import (
    UNKNOWN,
    OnReply,
    Reply,
    Request,
    Status,
    Stream,
    StreamReceiver,
)

_HEAD: Final = struct.Struct(">IBBHIQ")
_COUNT: Final = struct.Struct(">I")
_STATUSES: Final = list(Status)
LATE_TURNS: Final = 40


class Kind(IntEnum):
    """Kinds of frames."""

    CALL = 1
    ANSWER = 2
    OPEN = 3
    ITEM = 4
    END = 5
    CREDIT = 6
    CLOSE = 7


class Chances(NamedTuple):
    """Share of frames with a fault, each from 0 to 1."""

    drop: float = 0.2
    double: float = 0.2
    late: float = 0.05


class LossyNetwork:
    """Frames on their way between nodes."""

    def __init__(self, seed: int, chances: Chances = Chances()) -> None:  # noqa: B008
        self._loop = asyncio.get_running_loop()
        self._random = random.Random(seed)
        self.chances = chances
        self._ends: dict[int, LossyLink] = {}
        self._frames: list[tuple[int, int, bytes]] = []
        self.dropped = 0
        self.doubled = 0

    def join(self, node_id: int, shards: ShardCalls) -> None:
        """Connect a node; its calls to others go through here from now on."""
        shards.link = self._ends[node_id] = LossyLink(self, node_id, shards)

    def leave(self, node_id: int) -> None:
        """Cut a node off, as its process ends; frames to it are lost."""
        self._ends.pop(node_id).cut()
        for link in self._ends.values():
            link.lose(node_id)

    def send(self, sender: int, receiver: int, frame: bytes) -> None:
        """Take a frame."""
        chance = self._random.random
        self._frames.append((sender, receiver, frame))
        if chance() < self.chances.double:
            self.doubled += 1
            self._frames.append((sender, receiver, frame))
            self._loop.call_soon(self._step)
        self._loop.call_soon(self._step)

    def is_late(self) -> bool:
        """Say whether a call's answer is to come too late."""
        return self._random.random() < self.chances.late

    def after_turns(self, turns: int, act: partial[None]) -> None:
        """Do something some turns of the loop later."""
        if turns:
            self._loop.call_soon(self.after_turns, turns - 1, act)
        else:
            act()

    def _step(self) -> None:
        frames = self._frames
        sender, receiver, frame = frames.pop(self._random.randrange(len(frames)))
        if self._random.random() < self.chances.drop or receiver not in self._ends:
            self.dropped += 1
            for node_id in (sender, receiver):
                if node_id in self._ends:
                    self._ends[node_id].dropped(frame)
            return
        self._ends[receiver].receive(sender, frame)


class LossyLink:
    """See ``gateway.shards.model.Link``: one node's end of the network."""

    def __init__(self, network: LossyNetwork, node_id: int, shards: ShardCalls) -> None:
        self._network = network
        self._node_id = node_id
        self._shards = shards
        self._numbers = count(node_id << 32)
        self._calls: dict[int, tuple[int, str, OnReply]] = {}
        self._streams: dict[int, _StreamEnd] = {}
        self._served: dict[int, _ServedStream] = {}

    # --- calling

    def call(self, node_id: int, request: Request, on_reply: OnReply) -> None:
        """See ``Link``."""
        number = next(self._numbers)
        self._calls[number] = node_id, request.service, on_reply
        payload = self._shards.service(request.service).codec.encode_request(request.payload)
        body = _packed(request.service.encode(), payload)
        self.send(node_id, Kind.CALL, request.shard, request.epoch, number, body)
        if self._network.is_late():
            self._network.after_turns(2, partial(self._expire, number))

    def stream(
        self, node_id: int, request: Request, receiver: StreamReceiver, credit: int
    ) -> Stream:
        """See ``Link``."""
        number = next(self._numbers)
        stream = _StreamEnd(self, node_id, number, request.service, receiver, credit)
        self._streams[number] = stream
        payload = self._shards.service(request.service).codec.encode_request(request.payload)
        body = _COUNT.pack(credit) + _packed(request.service.encode(), payload)
        self.send(node_id, Kind.OPEN, request.shard, request.epoch, number, body)
        return stream

    def _expire(self, number: int) -> None:
        call = self._calls.pop(number, None)
        if call is not None:
            call[2](UNKNOWN)
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.receiver.on_end(UNKNOWN)

    def lose(self, node_id: int) -> None:
        """Answer the calls to a node that is gone."""
        numbers = [number for number, call in self._calls.items() if call[0] == node_id]
        numbers += [number for number, one in self._streams.items() if one.node_id == node_id]
        for number in numbers:
            self._expire(number)

    def cut(self) -> None:
        """Forget what this node has asked and served."""
        self._calls.clear()
        self._streams.clear()
        self._served.clear()

    def forget(self, number: int) -> None:
        """Forget a stream that was closed here."""
        self._streams.pop(number, None)

    # --- frames

    def send(  # noqa: PLR0917 - the frame's fields
        self, receiver: int, kind: Kind, shard: int, epoch: int, number: int, body: bytes
    ) -> None:
        """Send one frame."""
        head = _HEAD.pack(_HEAD.size + len(body), kind, 0, shard, epoch, number)
        self._network.send(self._node_id, receiver, head + body)

    def dropped(self, frame: bytes) -> None:
        """Answer a call, or end a stream, of this node of which a frame was dropped."""
        *_, number = _HEAD.unpack_from(frame)
        if number in self._calls or number in self._streams:
            self._network.after_turns(LATE_TURNS, partial(self._expire, number))

    def receive(self, sender: int, frame: bytes) -> None:
        """Take one frame."""
        _, kind, _, shard, epoch, number = _HEAD.unpack_from(frame)
        body = frame[_HEAD.size :]
        if kind == Kind.CALL:
            self._serve(sender, shard, epoch, number, body)
        elif kind == Kind.ANSWER:
            call = self._calls.pop(number, None)
            if call is not None:  # else it came too late, or twice
                call[2](self._reply(call[1], body))
        elif kind == Kind.OPEN and number not in self._served:
            self._serve_stream(sender, shard, epoch, number, body)
        elif kind in {Kind.ITEM, Kind.END}:
            stream = self._streams.get(number)
            if stream is not None:
                stream.take(kind, body)
        elif number in self._served:
            served = self._served[number]
            if kind == Kind.CREDIT:
                served.grant_to(_COUNT.unpack(body)[0])
            else:
                served.stream.close()

    def _request(self, shard: int, epoch: int, body: bytes) -> Request:
        name, payload = _unpacked(body)
        codec = self._shards.service(name.decode()).codec
        return Request(shard, epoch, name.decode(), codec.decode_request(payload))

    def _serve(self, sender: int, shard: int, epoch: int, number: int, body: bytes) -> None:
        request = self._request(shard, epoch, body)

        def answer(reply: Reply) -> None:
            data = self.encode(request.service, reply)
            self.send(sender, Kind.ANSWER, shard, epoch, number, data)

        self._shards.serve(request, answer)

    def _serve_stream(
        self, sender: int, shard: int, epoch: int, number: int, body: bytes
    ) -> None:
        [credit] = _COUNT.unpack_from(body)
        request = self._request(shard, epoch, body[_COUNT.size :])
        served = _ServedStream(self, sender, request, number, credit)
        self._served[number] = served
        served.stream = self._shards.serve_stream(request, served, credit)

    def encode(self, service: str, reply: Reply) -> bytes:
        """Return a reply as bytes: errors by their name and text."""
        codec = self._shards.service(service).codec
        error = b"" if reply.error is None else type(reply.error).__name__.encode()
        text = str(reply.error or "").encode()
        payload = b"" if reply.payload is None else codec.encode_reply(reply.payload)
        lead = bytes((_STATUSES.index(reply.status), reply.payload is not None))
        return lead + _packed(error, text) + payload

    def _reply(self, service: str, data: bytes) -> Reply:
        return decode_reply(self._shards, service, data)

    def encode_item(self, service: str, item: object) -> bytes:
        """Return an item as bytes."""
        return self._shards.service(service).codec.encode_reply(item)

    def decode_item(self, service: str, data: bytes) -> object:
        """Return an item of bytes."""
        return self._shards.service(service).codec.decode_reply(data)

    def decode_end(self, service: str, data: bytes) -> Reply:
        """Return the reply that a stream ended with."""
        return self._reply(service, data)


class _StreamEnd:
    """Stream at its caller: items by number, so that what is lost is seen."""

    def __init__(  # noqa: PLR0917 - where it goes, and to whom it comes
        self,
        link: LossyLink,
        node_id: int,
        number: int,
        service: str,
        receiver: StreamReceiver,
        credit: int,
    ) -> None:
        self._link = link
        self.node_id = node_id
        self._number = number
        self._service = service
        self.receiver = receiver
        self._granted = credit
        self._taken = 0

    def take(self, kind: int, body: bytes) -> None:
        [index] = _COUNT.unpack_from(body)
        data = body[_COUNT.size :]
        if index < self._taken:
            return  # a second time
        if index > self._taken:  # one in between is lost, or late: the stream is broken
            self.close()
            self.receiver.on_end(UNKNOWN)
        elif kind == Kind.ITEM:
            self._taken += 1
            self.receiver.on_item(self._link.decode_item(self._service, data))
        else:
            self._link.forget(self._number)
            self.receiver.on_end(self._link.decode_end(self._service, data))

    def grant(self, count: int) -> None:
        """See ``Stream``."""
        self._granted += count  # the sum, so that a frame may come twice, or late
        self._link.send(
            self.node_id, Kind.CREDIT, 0, 0, self._number, _COUNT.pack(self._granted)
        )

    def close(self) -> None:
        """See ``Stream``."""
        self._link.forget(self._number)
        self._link.send(self.node_id, Kind.CLOSE, 0, 0, self._number, b"")


class _ServedStream:
    """Stream at the node that serves it: a receiver that sends on."""

    stream: Stream

    def __init__(
        self, link: LossyLink, sender: int, request: Request, number: int, credit: int
    ) -> None:
        self._link = link
        self._sender = sender
        self._request = request
        self._number = number
        self._granted = credit
        self._sent = 0

    def grant_to(self, granted: int) -> None:
        if granted > self._granted:
            self.stream.grant(granted - self._granted)
            self._granted = granted

    def on_item(self, item: object) -> None:
        """See ``StreamReceiver``."""
        self._send(Kind.ITEM, self._link.encode_item(self._request.service, item))
        self._sent += 1

    def on_end(self, reply: Reply) -> None:
        """See ``StreamReceiver``."""
        self._send(Kind.END, self._link.encode(self._request.service, reply))

    def _send(self, kind: Kind, data: bytes) -> None:
        shard, epoch = self._request.shard, self._request.epoch
        body = _COUNT.pack(self._sent) + data
        self._link.send(self._sender, kind, shard, epoch, self._number, body)


def decode_reply(shards: ShardCalls, service: str, data: bytes) -> Reply:
    """Return a reply of bytes; errors of the gateway come back by their name."""
    name, rest = _unpacked(data[2:], exact=False)
    text, payload = _unpacked_rest(rest)
    error: GatewayError | None = None
    if name:
        error = getattr(errors, name.decode())(text.decode())
    found = shards.service(service).codec.decode_reply(payload) if data[1] else None
    return Reply(_STATUSES[data[0]], found, error)


def _packed(first: bytes, second: bytes) -> bytes:
    return _COUNT.pack(len(first)) + first + _COUNT.pack(len(second)) + second


def _unpacked(data: bytes, *, exact: bool = True) -> tuple[bytes, bytes]:
    first, rest = _unpacked_rest(data)
    if not exact:
        return first, rest
    second, left = _unpacked_rest(rest)
    assert not left
    return first, second


def _unpacked_rest(data: bytes) -> tuple[bytes, bytes]:
    [size] = _COUNT.unpack_from(data)
    end = _COUNT.size + size
    return data[_COUNT.size : end], data[end:]
