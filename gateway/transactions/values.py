"""Values of transactional ids: loaded by shard, and changed in one append each.

What is appended for the end of a transaction are the markers of its partitions, the positions that
it commits, and the value of its transactional id; after a crash all of it is there, or none. Values
change at once, and callbacks run when the change is durable.
"""

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from features.transactions import Ending, PartitionRef, Transaction
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.errors import (
    GatewayError,
    StorageUnavailable,
    TopicNotFound,
    as_value,
)
from gateway.fan_out_write import FanOutWrite
from gateway.groups.cursors import CursorManager
from gateway.groups.model import GroupName
from gateway.partition import Partition
from gateway.records.markers import Marker
from gateway.sharded_stream import ShardedStream
from gateway.slots import shard_of_transactional_id
from gateway.storage import OnDone
from gateway.topics.manager import TopicManager
from gateway.transactions.atomic_append import AtomicAppend
from gateway.transactions.journal import (
    TransactionalId,
    changed_items,
    decode_items,
    id_of_key,
)
from gateway.transactions.owners import TransactionOwners

TRANSACTIONS_TOPIC: Final = "__transactions"
OUTCOMES: Final = ("commit", "abort", "timeout")

OnChanged = Callable[[TransactionalId, Transaction | None], None]


class TransactionValues:
    """Values of the node's shards. Loop only. A ``ShardState`` of ``gateway.shard_lifecycle``."""

    def __init__(
        self,
        stream: ShardedStream,
        broker: Broker,
        topics: TopicManager,
        cursors: CursorManager,
    ) -> None:
        self.stream = stream
        self.owners = TransactionOwners(broker)
        self._broker = broker
        self._topics = topics
        self._cursors = cursors
        self.by_name: dict[TransactionalId, Transaction] = {}
        self._unsettled: Counter[TransactionalId] = Counter()
        self.on_changed: list[OnChanged] = []
        """Called with each value that is set, None for an id that is removed or has left."""
        self.ended = Counter(dict.fromkeys(OUTCOMES, 0))
        """Transactions that have ended since the start, by outcome."""

    @classmethod
    async def open(
        cls, broker: Broker, topics: TopicManager, cursors: CursorManager, clock: Clock
    ) -> "TransactionValues":
        """Return the values, not loaded."""
        count = broker.placement.shard_count
        stream = await ShardedStream.open(
            TRANSACTIONS_TOPIC,
            broker,
            topics,
            clock,
            rule=lambda key, _: shard_of_transactional_id(id_of_key(key).name, count),
        )
        return cls(stream, broker, topics, cursors)

    # --- the life cycle of shards

    @property
    def open_shards(self) -> Collection[int]:
        """See ``ShardState``."""
        return self.stream.open_shards

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: open transactions have their timeouts again."""
        await self.stream.load_shards(shards)
        for name, value in decode_items(self.stream.items_of(shards)).items():
            self._set(name, value)

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: each change is appended at once."""

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        for name in [one for one in self.by_name if self.owners.shard(one) in shards]:
            self._set(name, None)
        self.stream.close_shards(shards)

    # --- changes

    def keep(
        self,
        name: TransactionalId,
        value: Transaction | None,
        ending: Ending | None,
        on_done: OnDone,
        *,
        outcome: str | None = None,
    ) -> None:
        """Change a value, with what the end of its transaction does, in one append.

        ``outcome`` is that of the metrics; by default that of ``ending``.

        Errors, with nothing changed: those of ``AtomicAppend.append``; ``NotLeader``.
        """
        before = self.by_name.get(name)
        append = AtomicAppend(self._broker)
        try:
            if ending is not None:
                self._add_markers(name, ending, append)
                if ending.is_commit:
                    self._cursors.check_present(GroupName(*group) for group in ending.groups)
                self._cursors.end_pending(
                    ending.producer_id, append, is_commit=ending.is_commit
                )
            self.stream.flush()  # what is gathered lies before
            self.stream.put(changed_items(name, before, value), _ignore, coalescer=append)
        except GatewayError as error:
            append.undo(as_value(error))
            raise
        append.append(partial(self._kept, name, before, value, on_done))
        self._set(name, value)
        self._unsettled[name] += 1
        if ending is not None:
            self.ended[outcome or ("commit" if ending.is_commit else "abort")] += 1

    def is_settled(self, name: TransactionalId) -> bool:
        """Return whether the value of an id is durable."""
        return name not in self._unsettled

    def _kept(
        self,
        name: TransactionalId,
        before: Transaction | None,
        value: Transaction | None,
        on_done: OnDone,
        error: StorageUnavailable | None,
    ) -> None:
        self._unsettled[name] -= 1
        if not self._unsettled[name]:
            del self._unsettled[name]
        if error is not None and self.by_name.get(name) is value:
            self._set(name, before)
        on_done(error)

    def _set(self, name: TransactionalId, value: Transaction | None) -> None:
        if value is None:
            self.by_name.pop(name, None)
        else:
            self.by_name[name] = value
        for follow in self.on_changed:
            follow(name, value)

    def _add_markers(self, name: TransactionalId, ending: Ending, append: AtomicAppend) -> None:
        """Add the marker of all partitions in which the transaction has written, stored once."""
        partitions = self._written(ending)
        # An operator may have sent a marker with a higher epoch than that of any coordinator.
        epochs = [
            one.producers.coordinator_epoch_of(ending.producer_id)
            for one in partitions
            if one.producers is not None
        ]
        marker = Marker(
            ending.producer_id,
            ending.marker_epoch,
            ending.is_commit,
            max([self.owners.epoch(name), *epochs]),
        )
        writes = []
        for partition in partitions:
            write = self._broker.prepare_marker(
                partition, marker, transaction_version=ending.marker_version
            )
            if write is not None:
                writes.append(write)
        if len(writes) > 1:
            targets = [write.partition for write in writes]
            append.add_write(FanOutWrite(targets, bytearray(writes[0].batch), writes[0].header))
        elif writes:
            append.add_write(writes[0])

    def _written(self, ending: Ending) -> list[Partition]:
        """Return the partitions in which the transaction has written. Error: ``NotLeader``."""
        found = []
        for ref in ending.partitions:
            partition = self._partition(ref)
            if partition is None or partition.transactions is None:
                continue
            if ending.producer_id in partition.transactions.open:
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


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result: an append that fails stops the node."""
