"""Service ``mqtt.session``: what any node asks the owner of a client's session.

An operator's node ends a client's connection wherever it is. A call is a client identifier; its
answer says nothing more than that the connection was ended.
"""

from typing import Final

from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.errors import ReasonCode
from adapters.mqtt.node import Node
from gateway.errors import InvalidRequest
from gateway.model import DEFAULT_NAMESPACE
from gateway.shards.calls import ShardCalls
from gateway.shards.model import (
    DONE,
    NOT_OWNER,
    Codec,
    OnReply,
    Room,
    Sink,
    StreamSource,
)
from gateway.slots import shard_of_client

SERVICE: Final = "mqtt.session"


class _Text:
    """Bytes of a client identifier; a reply has no payload. See ``Codec``."""

    def encode_request(self, payload: object) -> bytes:
        """Return a client identifier as bytes."""
        assert isinstance(payload, str)
        return payload.encode()

    def decode_request(self, data: bytes) -> object:
        """Return a client identifier."""
        return data.decode()

    def encode_reply(self, payload: object) -> bytes:
        """Return nothing: the status says it all."""
        del payload
        return b""

    def decode_reply(self, data: bytes) -> object:
        """See ``encode_reply``."""
        return data or None


class SessionService:
    """Serves the sessions of this node's shards."""

    codec: Codec = _Text()

    def __init__(self, node: Node) -> None:
        self._node = node

    def call(self, room: Room, payload: object, on_reply: OnReply) -> None:
        """End the connection of a client. Error: ``InvalidRequest`` when it is not connected."""
        if not self._node.shards.is_open(room.shard):
            on_reply(NOT_OWNER)
            return
        assert isinstance(payload, str)
        session = self._node.sessions.find(payload)
        connection = None if session is None else session.connection
        if not isinstance(connection, MqttConnection):
            raise InvalidRequest(f"no client {payload[:80]!r} is connected")
        reason = ReasonCode.ADMINISTRATIVE_ACTION, "an operator has ended the connection"
        connection.guard(connection.disconnect, *reason)
        on_reply(DONE)

    def open_stream(self, room: Room, payload: object, sink: Sink) -> StreamSource:
        """Refuse: there are no streams of sessions."""
        del room, payload, sink
        raise InvalidRequest("sessions have no streams")


async def end_connection(node: Node, calls: ShardCalls, client_id: str) -> None:
    """End a client's connection, whichever node serves its session.

    Errors: ``InvalidRequest`` when it is not connected; ``NotOwner`` while no node serves it;
    ``OutcomeUnknown`` when the owner's answer is lost. To repeat it does no harm but to a client
    that has connected again.
    """
    shard = shard_of_client(DEFAULT_NAMESPACE, client_id, node.placement.shard_count)
    await calls.ask(shard, SERVICE, client_id)
