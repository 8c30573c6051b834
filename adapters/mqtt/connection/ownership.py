"""Clients whose session another node serves: what they are told."""

from typing import Protocol

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.errors import ReasonCode
from gateway.config.base import Address
from gateway.connection import Connection
from gateway.connection_listener import ConnectionListener
from gateway.model import DEFAULT_NAMESPACE
from gateway.placement import Placement
from gateway.shard_lifecycle import ShardLifecycle
from gateway.slots import shard_of_client


class Shards(Protocol):
    """Parts of the node that say who serves a client."""

    @property
    def placement(self) -> Placement:
        """Owners of shards."""
        ...

    @property
    def shards(self) -> ShardLifecycle:
        """Life cycle of the shards, with those that are open."""
        ...


class ReferableConnection(Protocol):
    """Connection that may be sent to another node."""

    config: MqttConfig

    @property
    def listener(self) -> ConnectionListener[Connection]:
        """The listener that accepted it."""
        ...

    @property
    def node(self) -> Shards:
        """The parts that all connections share."""
        ...

    def disconnect(
        self, code: ReasonCode, message: str = "", *, server_reference: str | None = None
    ) -> None:
        """Send the reason and close."""
        ...


def is_served(node: Shards, client_id: str) -> bool:
    """Return whether this node serves the session of a client now."""
    return node.shards.is_open(_shard_of(node, client_id))


def refer_to_owner(connection: ReferableConnection, client_id: str) -> None:
    """Close a connection whose session this node does not serve.

    Its client gets Use another server (0x9C) with the owner's address: the owner's host, and the
    port of the client's listener, as on this node (MQTT 5.0 section 4.13.2). While nobody serves
    the session, or this node still opens it, it gets Server unavailable and tries again.
    """
    node = connection.node
    shard = _shard_of(node, client_id)
    owner = node.placement.owner(shard)
    if owner is None or owner.node_id == node.placement.node_id:
        code = ReasonCode.SERVER_UNAVAILABLE
        connection.disconnect(code, "the session is not served at the moment")
        return
    reference = str(Address(owner.host, connection.listener.port))
    connection.disconnect(ReasonCode.USE_ANOTHER_SERVER, server_reference=reference)


def leave_drained_node(connection: ReferableConnection) -> None:
    """Close a connection because the node drains."""
    reference = connection.config.server_reference
    if reference:
        connection.disconnect(ReasonCode.USE_ANOTHER_SERVER, server_reference=reference)
    else:
        connection.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)


def _shard_of(node: Shards, client_id: str) -> int:
    return shard_of_client(DEFAULT_NAMESPACE, client_id, node.placement.shard_count)
