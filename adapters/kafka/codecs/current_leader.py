"""Codec of the leader that answers of Produce and Fetch name beside NOT_LEADER (KIP-951)."""

import struct
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from adapters.kafka.codecs.metadata_codec import BrokerAddress
from gateway.errors import GatewayError, NotLeader
from gateway.model import encode_uvarint

PRODUCE_LEADERS_FROM: Final = 10
FETCH_LEADERS_FROM: Final = 12
FETCH_NODES_FROM: Final = 16

PRODUCE_LEADER_TAG: Final = 0
FETCH_LEADER_TAG: Final = 1
_NODES_TAG: Final = 0

_LEADER: Final = struct.Struct(">iib")
_NODE_ID: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\0"


class CurrentLeader(NamedTuple):
    """Leader of a partition and its epoch."""

    leader_id: int
    leader_epoch: int


def current_leader(error: GatewayError | None) -> CurrentLeader | None:
    """Return the leader that an error names, for clients that go there at once (KIP-951)."""
    if isinstance(error, NotLeader) and error.owner_id >= 0:
        return CurrentLeader(error.owner_id, error.epoch)
    return None


def encode_leader(tag: int, leader: CurrentLeader) -> bytes:
    """Return a partition's tagged fields with its current leader."""
    return bytes((1, tag, _LEADER.size)) + _LEADER.pack(*leader, 0)


def encode_nodes(nodes: Sequence[BrokerAddress], leaders: Collection[int]) -> bytes:
    """Return the tagged fields of a response with the addresses of ``leaders``."""
    named = [node for node in nodes if node.node_id in leaders]
    if not named:
        return _NO_TAGS
    body = encode_uvarint(len(named) + 1) + b"".join(map(_encode_node, named))
    return bytes((1, _NODES_TAG)) + encode_uvarint(len(body)) + body


def _encode_node(node: BrokerAddress) -> bytes:
    rack = _NO_TAGS if node.rack is None else _compact(node.rack)
    port = _NODE_ID.pack(node.port)
    return _NODE_ID.pack(node.node_id) + _compact(node.host) + port + rack + _NO_TAGS


def _compact(text: str) -> bytes:
    data = text.encode()
    return encode_uvarint(len(data) + 1) + data
