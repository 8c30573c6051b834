"""Link between nodes that run in one process: payloads are passed as they are."""

import asyncio
from functools import partial

from gateway.shards.calls import ShardCalls
from gateway.shards.model import (
    NOT_OWNER,
    UNKNOWN,
    NoLink,
    OnReply,
    Reply,
    Request,
    Stream,
    StreamReceiver,
)


class InProcessLink:
    """See ``Link``. Nodes join as they start, and leave as they stop or are stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[int, ShardCalls] = {}
        self._open: dict[int, dict[object, OnReply]] = {}  # calls by the node that serves them
        self._streams: dict[int, dict[_Ended, Stream]] = {}

    def join(self, node_id: int, shards: ShardCalls) -> None:
        """Let other nodes reach one."""
        self._nodes[node_id] = shards
        self._open[node_id] = {}
        self._streams[node_id] = {}

    def leave(self, node_id: int) -> None:
        """Forget a node: what it has not answered is unknown."""
        del self._nodes[node_id]
        for on_reply in self._open.pop(node_id).values():
            on_reply(UNKNOWN)
        for ended, stream in self._streams.pop(node_id).items():
            stream.close()
            ended.receiver.on_end(UNKNOWN)

    def call(self, node_id: int, request: Request, on_reply: OnReply) -> None:
        """See ``Link``: it is served in a later turn of the loop."""
        if node_id not in self._nodes:
            on_reply(NOT_OWNER)  # nothing was sent
            return
        ticket = object()
        self._open[node_id][ticket] = on_reply
        self._loop.call_soon(self._serve, node_id, request, ticket)

    def _serve(self, node_id: int, request: Request, ticket: object) -> None:
        if ticket in self._open.get(node_id, {}):  # else it left meanwhile
            self._nodes[node_id].serve(request, partial(self._answer, node_id, ticket))

    def _answer(self, node_id: int, ticket: object, reply: Reply) -> None:
        on_reply = self._open.get(node_id, {}).pop(ticket, None)
        if on_reply is not None:
            on_reply(reply)

    def stream(
        self, node_id: int, request: Request, receiver: StreamReceiver, credit: int
    ) -> Stream:
        """See ``Link``."""
        shards = self._nodes.get(node_id)
        if shards is None:
            return NoLink().stream(node_id, request, receiver, credit)
        streams = self._streams[node_id]
        ended = _Ended(receiver, streams)
        streams[ended] = stream = shards.serve_stream(request, ended, credit)
        return stream


class _Ended:
    """StreamReceiver that takes its stream out of the open ones at the end."""

    def __init__(self, receiver: StreamReceiver, streams: "dict[_Ended, Stream]") -> None:
        self.receiver = receiver
        self._streams = streams

    def on_item(self, item: object) -> None:
        """See ``StreamReceiver``."""
        self.receiver.on_item(item)

    def on_end(self, reply: Reply) -> None:
        """See ``StreamReceiver``."""
        self._streams.pop(self, None)
        self.receiver.on_end(reply)
