"""Coordinator on a kernel in memory, and a producer that writes through it."""

from features.transactions import GroupRef, InitRequest, PartitionRef, Transaction
from gateway.config.settings import BrokerConfig
from gateway.config.transactions import TransactionsConfig
from gateway.groups.cursors import Commit, CursorManager
from gateway.groups.manager import GroupManager
from gateway.groups.model import GroupName
from gateway.metadata.store import ProducerIds
from gateway.partition import Partition
from gateway.producers import ProducerStates, open_producers
from gateway.slots import shard_of_transactional_id
from gateway.transactions.coordinator import TransactionCoordinator
from gateway.transactions.journal import TransactionalId
from gateway.transfer.transfers import Transfers
from gateway.writer import Write
from tests.gateway.kernel_in_memory import House, outcome
from tests.support.batches import sample_batch

NAME = TransactionalId("default", "tx")
GROUP = GroupName("default", "readers")
TIMEOUT_MS = 60_000
SHARDS = 4
COORDINATOR = shard_of_transactional_id(NAME.name, SHARDS)
"""Shard of the transactional id ``NAME``."""


class TransactionRig:
    """House with producers' states, groups and a coordinator."""

    coordinator: TransactionCoordinator
    cursors: CursorManager
    groups: GroupManager
    producers: ProducerStates
    transfers: Transfers

    def __init__(self, house: House, config: TransactionsConfig | None = None) -> None:
        self.house = house
        self.config = config or TransactionsConfig()
        self.sequences: dict[Partition, int] = {}

    async def open(self) -> None:
        house = self.house
        broker, topics, clock = house.broker, house.topics, house.clock
        self.producers = ProducerStates(
            await open_producers(broker, topics, clock), broker, topics, clock, BrokerConfig()
        )
        await self.producers.load()
        self.groups, self.cursors = await house.groups()
        self.transfers = Transfers(broker, topics, clock)
        await self.transfers.open()
        self.coordinator = await TransactionCoordinator.open(
            broker,
            topics,
            self.cursors,
            self.transfers,
            clock,
            self.config,
            ProducerIds(house.metadata),
        )

    def close(self) -> None:
        self.coordinator.close()
        self.transfers.close()
        self.groups.close()
        self.cursors.close()
        self.producers.stop()

    async def restart(self) -> None:
        """Start again on what is in the log, as after a kill."""
        self.close()
        await self.house.restart()
        await self.open()

    async def init(self, name: TransactionalId = NAME) -> Transaction:
        self.sequences.clear()
        return await self.coordinator.init(name, InitRequest(TIMEOUT_MS))

    async def write(
        self,
        value: Transaction,
        partition: Partition,
        *,
        name: TransactionalId = NAME,
        version: int = 2,
    ) -> None:
        """Add a partition and append one record."""
        ref = PartitionRef(partition.topic.uuid, partition.number)
        producer = value.producer_id, value.epoch
        self.coordinator.add(name, *producer, partitions=[ref], version=version)
        sequence = self.sequences.get(partition, 0)
        batch = sample_batch(
            producer_id=value.producer_id,
            producer_epoch=value.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        write = self.house.broker.prepare(partition, batch, transaction_version=version)
        assert isinstance(write, Write)
        await outcome(lambda on_done: self.house.broker.append([write], on_done))
        self.sequences[partition] = sequence + 1

    async def commit_offset(
        self, value: Transaction, partition: Partition, offset: int, group: GroupName = GROUP
    ) -> None:
        producer = value.producer_id, value.epoch
        self.coordinator.add(NAME, *producer, groups=[GroupRef(*group)], version=2)
        commits = [Commit(partition.topic.uuid, partition.number, offset)]
        await outcome(
            lambda on_done: self.cursors.commit_pending(
                group, value.producer_id, commits, on_done
            )
        )

    async def end(
        self,
        value: Transaction,
        *,
        is_commit: bool = True,
        version: int = 2,
        name: TransactionalId = NAME,
    ) -> Transaction:
        self.sequences.clear()
        return await self.coordinator.end(
            name, value.producer_id, value.epoch, is_commit=is_commit, version=version
        )

    def seen(self, partition: Partition) -> list[bytes | None]:
        """Return the values of records that readers of committed data see."""
        return [value for value in self.house.values(partition) if value == b"value"]

    def offset(self, partition: Partition, group: GroupName = GROUP) -> int | None:
        found = self.cursors.fetch(group, partition.topic.uuid, partition.number)
        return None if found is None else found.offset

    def is_unstable(self, partition: Partition, group: GroupName = GROUP) -> bool:
        return self.cursors.is_unstable(group, partition.topic.uuid, partition.number)
