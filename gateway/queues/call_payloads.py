"""Requests of the service ``queue`` and its replies, and their bytes.

Each request names partitions of one queue that lie in one shard. Bytes are one for the kind, then
the fields as a JSON array; keys, values and headers are base64.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from pydantic import ConfigDict, TypeAdapter

from features.queue.model import Outcome, SettledRange
from gateway.queues.browsing import Browsed

_EPOCH_SHIFT: Final = 96
_NODE_SHIFT: Final = 64


class Holder(NamedTuple):
    """Connection that has messages in flight, of any node.

    ``epoch``: the node's incarnation, from 1, since connection numbers begin anew with each.
    """

    node: int
    connection: int
    epoch: int

    @property
    def number(self) -> int:
        """The holder as lanes know it; never that of a connection of this node.

        >>> Holder(node=2, connection=7, epoch=1).number == (1 << 96) + (2 << 64) + 7
        True
        """
        return (self.epoch << _EPOCH_SHIFT) + (self.node << _NODE_SHIFT) + self.connection


NO_HOLDER: Final = Holder(0, 0, 0)
"""Holder of messages that only the end of their lease gives back: ``BY_TIME``."""


class QueueRef(NamedTuple):
    """Queue of a topic, in any node."""

    topic_uuid: UUID
    group: str


class CountMessages(NamedTuple):
    """Request of the messages by state of some partitions; the reply is ``CountedPartitions``."""

    queue: QueueRef
    numbers: tuple[int, ...]


class BrowseMessages(NamedTuple):
    """Request of messages of a partition without taking them; the reply is ``BrowsedMessages``.

    They begin at ``from_offset``, or at the lowest that is not settled.
    """

    queue: QueueRef
    number: int
    from_offset: int | None
    messages_max: int


class PurgeMessages(NamedTuple):
    """Request to drop the messages of partitions below an offset; the reply has no payload.

    ``ends``: number of a partition, and offset. Sent again it drops nothing that came later.
    """

    queue: QueueRef
    ends: tuple[tuple[int, int], ...]


class SettledOffsets(NamedTuple):
    """``SettledRange`` of the offsets from ``first`` up to ``end``, which is not among them."""

    first: int
    end: int
    attempt: int
    outcome: Outcome

    @property
    def settled_range(self) -> SettledRange:
        """The range as a queue takes it."""
        return SettledRange(range(self.first, self.end), self.attempt, self.outcome)


class SettleMessages(NamedTuple):
    """Request to settle what a holder has in flight; the reply is ``SettledCounts``."""

    queue: QueueRef
    number: int
    holder: Holder
    ranges: tuple[SettledOffsets, ...]
    delay_ms: int = 0
    reason: str = "rejected"


class PartitionCounts(NamedTuple):
    """Messages of a partition by state, as ``Counts``, and the partition's end."""

    number: int
    ready: int
    in_flight: int
    delayed: int
    end_offset: int


class CountedPartitions(NamedTuple):
    """Reply to ``CountMessages``, in its order."""

    partitions: tuple[PartitionCounts, ...]


class BrowsedMessages(NamedTuple):
    """Reply to ``BrowseMessages``. ``is_cut``: more were asked for than a reply may hold."""

    messages: tuple[Browsed, ...]
    is_cut: bool


class SettledCounts(NamedTuple):
    """Reply to ``SettleMessages``: number of messages that were settled, by range."""

    counts: tuple[int, ...]


class _Kinds:
    """Bytes of named tuples, by their place in a list."""

    def __init__(self, kinds: Sequence[type[Any]]) -> None:
        config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
        self._numbers = {kind: number for number, kind in enumerate(kinds)}
        self._adapters = [TypeAdapter[Any](kind, config=config) for kind in kinds]

    def encode(self, payload: object) -> bytes:
        number = self._numbers[type(payload)]
        return bytes((number,)) + self._adapters[number].dump_json(payload)

    def decode(self, data: bytes) -> object:
        if not data or data[0] >= len(self._adapters):
            msg = f"no kind of payload: {data[:1]!r}"
            raise ValueError(msg)
        return self._adapters[data[0]].validate_json(data[1:])


class QueueCodec:
    """Bytes of the service's payloads; see ``gateway.shards.model.Codec``."""

    def __init__(self) -> None:
        requests = CountMessages, BrowseMessages, PurgeMessages, SettleMessages
        self._requests = _Kinds(requests)
        self._replies = _Kinds((CountedPartitions, BrowsedMessages, SettledCounts))
        self.encode_request = self._requests.encode
        self.decode_request = self._requests.decode
        self.encode_reply = self._replies.encode
        self.decode_reply = self._replies.decode
