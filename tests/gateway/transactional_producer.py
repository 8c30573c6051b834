"""A producer that writes transactional batches and markers straight to the broker."""

from typing import Protocol

from gateway.broker import Broker
from gateway.partition import Partition
from gateway.records.markers import Marker
from gateway.writer import Duplicate, Write
from tests.gateway.kernel_in_memory import outcome
from tests.support.batches import sample_batch


class HasBroker(Protocol):
    """A node of a test, whose broker a restart replaces."""

    broker: Broker


class TransactionalProducer:
    """Producer of one partition; the version is that of its protocol (2: an epoch each)."""

    def __init__(
        self, house: HasBroker, partition: Partition, producer_id: int, *, version: int = 2
    ) -> None:
        self.house = house
        self.partition = partition
        self.producer_id = producer_id
        self.version = version
        self.epoch = 0
        self.sequence = 0

    def prepare(
        self, value: bytes = b"value", count: int = 1, key: bytes | None = b"key"
    ) -> Write | Duplicate:
        batch = sample_batch(
            count=count,
            value=value,
            key=key,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        return self.house.broker.prepare(
            self.partition, batch, transaction_version=self.version
        )

    def start(self, value: bytes = b"value", count: int = 1) -> Write:
        """Append a batch, without waiting for it."""
        write = self.prepare(value, count)
        assert isinstance(write, Write)
        self.house.broker.append([write], lambda _error: None)
        self.sequence += count
        return write

    async def write(self, value: bytes = b"value", count: int = 1) -> Write:
        write = self.start(value, count)
        await outcome(self.house.broker.after_pending)
        return write

    def start_end(self, *, is_commit: bool, coordinator_epoch: int = 0) -> Write | None:
        """Append a marker, without waiting for it; None when it is known already."""
        if self.version > 1:
            self.epoch += 1
            self.sequence = 0
        marker = Marker(self.producer_id, self.epoch, is_commit, coordinator_epoch)
        write = self.house.broker.prepare_marker(
            self.partition, marker, transaction_version=self.version
        )
        if write is not None:
            self.house.broker.append([write], lambda _error: None)
        return write

    async def end(self, *, is_commit: bool, coordinator_epoch: int = 0) -> Write | None:
        write = self.start_end(is_commit=is_commit, coordinator_epoch=coordinator_epoch)
        await outcome(self.house.broker.after_pending)
        return write
