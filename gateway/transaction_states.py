"""Transactions of partitions across restarts, and for readers outside the node.

A snapshot is written with each of the producers' (``gateway.producers``), before it in the log, and
when a partition gets its first transaction, before its first batch. What came after a snapshot is
replayed from the headers of the log.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import structlog

from features.open_transactions import PartitionTransactions
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.errors import GatewayError, StorageUnavailable, as_value
from gateway.partition import Partition
from gateway.records.stored_transactions import (
    TRANSACTIONS_TOPIC,
    StoredTransactions,
    partition_id_of,
    removal_items,
    transaction_items,
)
from gateway.sharded_stream import ShardedStream, rule_of_partition_ids
from gateway.streams import Item
from gateway.topics.manager import TopicManager

_NOTHING_SAVED: Final = -1

log = structlog.get_logger()

FindPartition = Callable[[int], Partition | None]


class TransactionStates:
    """Loads and saves the transactions of the node's partitions; ``ShardState``."""

    def __init__(self, stream: ShardedStream, broker: Broker) -> None:
        self._stream = stream
        self._broker = broker
        self._partitions = broker.writer.transactional
        self._saved_end: dict[Partition, int] = {}
        self._gone: set[bytes] = set()
        self._is_refused = False  # of what was put last
        self.find: FindPartition = lambda _id: None
        broker.writer.on_first_transaction = self._begin

    @classmethod
    async def open(
        cls, broker: Broker, topics: TopicManager, clock: Clock
    ) -> "TransactionStates":
        """Return the states, not loaded."""
        rule = rule_of_partition_ids(topics, broker.placement)
        stream = await ShardedStream.open(TRANSACTIONS_TOPIC, broker, topics, clock, rule=rule)
        return cls(stream, broker)

    @property
    def open_shards(self) -> Collection[int]:
        """See ``ShardState``."""
        return self._stream.open_shards

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: from the last snapshots."""
        await self._stream.load_shards(shards)
        found: dict[int, StoredTransactions] = {}
        keys: dict[int, set[bytes]] = {}
        for key, value in self._stream.items_of(shards):
            partition_id = partition_id_of(key)
            found.setdefault(partition_id, StoredTransactions()).add(key, value)
            keys.setdefault(partition_id, set()).add(key)
        for partition_id, stored in found.items():
            partition = self.find(partition_id)
            if partition is None:
                self._gone |= keys[partition_id]
            else:
                partition.transactions = stored.restore() or PartitionTransactions()
                now_unix_ms = self._broker.clock.unix_ms()
                opened = dict.fromkeys(partition.transactions.open, now_unix_ms)
                partition.transactions.opened_unix_ms.update(opened)
                self._partitions.add(partition)

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: write what has changed since the last snapshot."""
        self._save([one for one in self._partitions if one.shard in shards])

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        self._stream.close_shards(shards)
        for partition in [one for one in self._partitions if one.moved_to is not None]:
            self._partitions.discard(partition)
            self._saved_end.pop(partition, None)

    def snapshot(self) -> bool:
        """Append what has changed, now: what is appended after it is newer.

        Return False when it was refused; then the log is still needed from the last one on.
        """
        gone, self._gone = self._gone, set()
        self._save(list(self._partitions), [(key, None) for key in gone])
        self._stream.flush()
        if self._is_refused:
            self._gone |= gone
        return not self._is_refused

    def _begin(self, partition: Partition) -> None:
        """Save the state of a partition before its first transactional batch.

        Error: ``StorageUnavailable``; without a state readers outside the node would take the
        batch for a plain one.
        """
        partition.transactions = PartitionTransactions()
        self._partitions.add(partition)
        self._save([partition])
        self._stream.flush()
        if self._is_refused:
            partition.transactions = None
            self._partitions.discard(partition)
            raise StorageUnavailable(f"no room for the transactions of {partition!r}")

    def _save(self, partitions: Collection[Partition], items: list[Item] | None = None) -> None:
        self._is_refused = False
        items = items or []
        for partition in partitions:
            items += self._items_of(partition)
        if not items:
            return
        try:
            self._stream.put(items, partial(self._saved, partitions))
        except GatewayError as error:
            self._saved(partitions, as_value(error))

    def _items_of(self, partition: Partition) -> list[Item]:
        transactions, end = partition.transactions, partition.log_end_offset
        if transactions is None or partition.moved_to is not None:
            return []
        if partition.is_gone:
            self._partitions.discard(partition)
            self._saved_end.pop(partition, None)
            return removal_items(partition.partition_id, transactions)
        if self._saved_end.get(partition, _NOTHING_SAVED) == end:
            return []
        self._saved_end[partition] = transactions.applied_end = end
        return transaction_items(
            partition.partition_id, transactions, partition.log_start_offset
        )

    def _saved(self, partitions: Collection[Partition], error: GatewayError | None) -> None:
        if error is None:
            return
        self._is_refused = True
        log.warning("transactions of partitions not saved", error=str(error))
        for partition in partitions:
            self._saved_end.pop(partition, None)  # the next snapshot has all of it
            if partition.transactions is not None:
                partition.transactions.saved_chunks = range(0)
