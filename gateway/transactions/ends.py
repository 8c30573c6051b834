"""Ends of transactions in the log of this node, and as they are sent to other nodes.

An end in the node's own shards is part of the coordinator's append. What lies in other logs gets
its part by a transfer (``gateway.transfer``), once, in one append there. Integers are big-endian,
texts UTF-8 behind their length (u32).

    end  version u8 = 0, flags u8 (1: commit, 2: the marker has an epoch that no batch has),
         producer id i64, epoch of the marker i16, epoch of the coordinator i32, then partitions
         and groups, see ``gateway.transactions.refs``
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import structlog

from features.transactions import Ending, GroupRef, PartitionRef
from gateway.atomic_append import AtomicAppend
from gateway.broker import Broker
from gateway.errors import (
    CoordinatorFenced,
    CorruptBatch,
    ProducerFenced,
    TopicNotFound,
)
from gateway.fan_out_write import FanOutWrite
from gateway.groups.cursors import CursorManager
from gateway.groups.fields import FieldReader
from gateway.groups.model import GroupName
from gateway.partition import Partition, Write
from gateway.placement import shard_of
from gateway.records.markers import Marker
from gateway.slots import shard_of_group
from gateway.topics.manager import TopicManager
from gateway.transactions.refs import encode_refs, read_refs

_HEAD: Final = struct.Struct(">BBqhi")
_VERSION: Final = 0
_IS_COMMIT: Final = 1
_BUMPS_EPOCH: Final = 2
_EPOCH_OF_ITS_OWN: Final = 2  # version of the protocol from which on a marker may have one

_log = structlog.get_logger()


class End(NamedTuple):
    """End of a transaction in some of its partitions and groups.

    ``version``: that of the protocol by which the marker is checked.
    """

    marker: Marker
    version: int
    partitions: tuple[PartitionRef, ...]
    groups: tuple[GroupRef, ...]


class EndAppends:
    """Adds what ends of transactions do in this node's shards to an append. Loop only."""

    def __init__(self, broker: Broker, topics: TopicManager, cursors: CursorManager) -> None:
        self._broker = broker
        self._topics = topics
        self._cursors = cursors
        self.on_ended: Callable[[int], None] = lambda _producer_id: None
        """Called with the producer id of each end."""

    def split(self, ending: Ending, coordinator_epoch: int) -> tuple[End, dict[int, End]]:
        """Return the part of an end in shards that this node serves, and others by shard.

        Partitions of deleted topics have ended by that.
        """
        marker = Marker(
            ending.producer_id, ending.marker_epoch, ending.is_commit, coordinator_epoch
        )
        end = End(marker, ending.marker_version, ending.partitions, ending.groups)
        shards, placement = self._broker.shards, self._broker.placement
        if shards.serves_all:
            return end, {}
        parts: dict[int, tuple[list[PartitionRef], list[GroupRef]]] = {}
        for ref in ending.partitions:
            topic = self._topics.by_uuid(ref.topic_uuid)
            if topic is not None:
                shard = shard_of(topic, ref.number, placement)
                parts.setdefault(shard, ([], []))[0].append(ref)
        for group in ending.groups:
            shard = shard_of_group(*group, placement.shard_count)
            parts.setdefault(shard, ([], []))[1].append(group)
        own = [parts.pop(shard) for shard in list(parts) if shards.is_open(shard)]
        here = end._replace(
            partitions=tuple([ref for refs, _ in own for ref in refs]),
            groups=tuple([group for _, groups in own for group in groups]),
        )
        return here, {
            shard: end._replace(partitions=tuple(refs), groups=tuple(groups))
            for shard, (refs, groups) in parts.items()
        }

    def add(self, end: End, append: AtomicAppend) -> None:
        """Add markers to partitions that have something of the transaction, and its positions.

        The marker is stored once. Errors: ``NotLeader`` for what another node owns, or this one is
        loading; those of ``Broker.prepare_marker``.
        """
        partitions = self._written(end)
        marker = self._newest(end.marker, partitions)
        self._add_writes(
            [
                self._broker.prepare_marker(one, marker, transaction_version=end.version)
                for one in partitions
            ],
            append,
        )
        self._add_positions(end, append)
        self.on_ended(marker.producer_id)

    def receive(self, values: Sequence[bytes], append: AtomicAppend) -> None:
        """Add ends that come from another node; see ``Transfers.appliers``.

        A partition in which a later producer of the id has written has no open transaction of
        this one. Errors: ``NotLeader``.
        """
        for end in map(decode_end, values):
            partitions = self._written(end)
            marker = self._newest(end.marker, partitions)
            writes = []
            for one in partitions:
                try:
                    writes.append(
                        self._broker.prepare_marker(
                            one, marker, transaction_version=end.version
                        )
                    )
                except (ProducerFenced, CoordinatorFenced) as error:
                    _log.warning(
                        "marker of a transaction refused", partition=repr(one), error=str(error)
                    )
            self._add_writes(writes, append)
            self._add_positions(end, append)
            self.on_ended(marker.producer_id)

    def _newest(self, marker: Marker, partitions: Sequence[Partition]) -> Marker:
        """Return a marker with a coordinator epoch that all partitions take."""
        # An operator may have sent a marker with a higher epoch than that of any coordinator.
        epochs = [
            one.producers.coordinator_epoch_of(marker.producer_id)
            for one in partitions
            if one.producers is not None
        ]
        return marker._replace(coordinator_epoch=max([marker.coordinator_epoch, *epochs]))

    def _add_writes(self, prepared: Iterable[Write | None], append: AtomicAppend) -> None:
        writes = [write for write in prepared if write is not None]
        if len(writes) > 1:
            targets = [write.partition for write in writes]
            first = writes[0]
            append.add_write(FanOutWrite(targets, bytearray(first.batch), first.header))
        elif writes:
            append.add_write(writes[0])

    def _add_positions(self, end: End, append: AtomicAppend) -> None:
        groups = [GroupName(*group) for group in end.groups]
        self._cursors.check_present(groups)
        self._cursors.end_pending(
            end.marker.producer_id, groups, append, is_commit=end.marker.is_commit
        )

    def _written(self, end: End) -> list[Partition]:
        """Return the partitions in which the transaction has written. Error: ``NotLeader``."""
        found = []
        for ref in end.partitions:
            partition = self._partition(ref)
            if partition is None or partition.transactions is None:
                continue
            if end.marker.producer_id in partition.transactions.open:
                found.append(partition)
        return found

    def _partition(self, ref: PartitionRef) -> Partition | None:
        """Return a partition; None when its topic was deleted. Error: ``NotLeader``."""
        topic = self._topics.by_uuid(ref.topic_uuid)
        if topic is None:
            return None
        try:
            return self._broker.partition(topic, ref.number)
        except TopicNotFound:
            return None


def encode_end(end: End) -> bytes:
    """Return an end as bytes, see the module."""
    marker = end.marker
    flags = _IS_COMMIT * marker.is_commit + _BUMPS_EPOCH * (end.version >= _EPOCH_OF_ITS_OWN)
    head = _HEAD.pack(
        _VERSION, flags, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
    )
    return head + encode_refs(end.partitions, end.groups)


def decode_end(data: bytes) -> End:
    """Return the end of some bytes. Error: ``CorruptBatch``."""
    reader = FieldReader(data)
    try:
        version, flags, producer_id, epoch, coordinator_epoch = reader.unpack(_HEAD)
        if version != _VERSION:
            raise CorruptBatch(f"the end of a transaction has version {version}")
        partitions, groups = read_refs(reader)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise CorruptBatch(f"the end of a transaction as it was sent: {error}") from None
    marker = Marker(producer_id, epoch, bool(flags & _IS_COMMIT), coordinator_epoch)
    return End(marker, _EPOCH_OF_ITS_OWN if flags & _BUMPS_EPOCH else 1, partitions, groups)
