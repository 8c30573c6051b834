"""Codec of the leader that answers of Produce and Fetch name beside NOT_LEADER (KIP-951)."""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from adapters.kafka.codecs.metadata_codec import FLEXIBLE_FROM, BrokerAddress, encode_broker
from gateway.errors import GatewayError, NotLeader
from gateway.model import encode_uvarint

PRODUCE_LEADERS_FROM: Final = 10
FETCH_NODES_FROM: Final = 16

PRODUCE_LEADER_TAG: Final = 0
FETCH_LEADER_TAG: Final = 1
_NODES_TAG: Final = 0

_LEADER: Final = struct.Struct(">iib")
_NO_TAGS: Final = b"\0"


class CurrentLeader(NamedTuple):
    """Leader of a partition and its epoch."""

    leader_id: int
    leader_epoch: int


class LedResult(Protocol):
    """Result for one partition, which may name its leader."""

    @property
    def leader(self) -> CurrentLeader | None:
        """Leader that the response names, None for none."""
        ...


def current_leader(error: GatewayError | None) -> CurrentLeader | None:
    """Return the leader that an error names, for clients that go there at once (KIP-951)."""
    if isinstance(error, NotLeader) and error.owner_id >= 0:
        return CurrentLeader(error.owner_id, error.epoch)
    return None


def encode_leader(tag: int, leader: CurrentLeader) -> bytes:
    """Return a partition's tagged fields with its current leader."""
    return bytes((1, tag, _LEADER.size)) + _LEADER.pack(*leader, 0)


def encode_nodes(
    nodes: Sequence[BrokerAddress], topics: Iterable[tuple[object, Sequence[LedResult]]]
) -> bytes:
    """Return the tagged fields of a response with the addresses of the leaders it names."""
    if not nodes:
        return _NO_TAGS
    leaders = {one.leader.leader_id for _, results in topics for one in results if one.leader}
    named = [node for node in nodes if node.node_id in leaders]
    if not named:
        return _NO_TAGS
    body = encode_uvarint(len(named) + 1) + b"".join(
        encode_broker(FLEXIBLE_FROM, node) for node in named
    )
    return bytes((1, _NODES_TAG)) + encode_uvarint(len(body)) + body
