"""Transaction that a Produce request is part of: checks of its batches with the coordinator."""

from collections.abc import Iterable, Sequence
from typing import Final

from adapters.kafka.errors import ErrorCode, Refused
from adapters.kafka.session import Session
from adapters.kafka.transactions.coordinator import (
    VERSION_WITH_EPOCHS,
    VERSION_WITHOUT_EPOCHS,
    transactional_id,
)
from features.transactions import PartitionRef
from gateway.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    GatewayError,
    InvalidTransactionState,
    NotOwner,
    Overloaded,
    StorageUnavailable,
    TransactionAbortable,
)
from gateway.model import BatchHeader
from gateway.partition import Partition
from gateway.transactions.joins import Join
from gateway.writer import Write

ADDS_PARTITIONS_FROM: Final = 12
ABORTABLE_FROM: Final = 11


class ProducerTransaction:
    """Transaction of one request. Its batches have one producer id.

    From version 12 on of Produce the first batch for a partition adds it to the transaction
    (KIP-890); up to version 11 the partition was added by a request of its own. Where another node
    coordinates the transaction, ``join`` comes first.
    """

    __slots__ = (
        "_coordinator", "_joined", "_name", "_producer", "_request_version", "version",
    )  # fmt: skip

    def __init__(self, session: Session, name: str, request_version: int) -> None:
        self._coordinator = session.node.transactions
        self._name = transactional_id(session, name)
        self._request_version = request_version
        self._producer: tuple[int, int] | None = None
        self._joined: frozenset[PartitionRef] = frozenset()
        self.version = VERSION_WITHOUT_EPOCHS
        """Version of the transaction protocol."""
        if request_version >= ADDS_PARTITIONS_FROM:
            self.version = VERSION_WITH_EPOCHS

    @property
    def must_join(self) -> bool:
        """Whether the coordinator is another node, or completes the transaction before."""
        return not self._is_here or self._coordinator.is_ending(self._name)

    @property
    def _is_here(self) -> bool:
        return self._coordinator.owners.owns(self._name)

    async def join(self, batches: Iterable[tuple[Partition, BatchHeader]]) -> None:
        """Let partitions join the transaction; the batches are appended in the same turn.

        Errors: those of ``TransactionJoins.join``, as a leader answers them.
        """
        refs: dict[tuple[int, int], dict[PartitionRef, None]] = {}
        for partition, header in batches:
            if header.is_transactional and not _is_of_open(partition, header):
                producer = header.producer_id, header.producer_epoch
                refs.setdefault(producer, {})[_ref(partition)] = None
        for producer, partitions in list(refs.items())[:1]:  # ``check`` refuses a second one
            join = Join(
                self._name,
                *producer,
                self.version,
                tuple(partitions),
                adds=self.version >= VERSION_WITH_EPOCHS,
            )
            try:
                await self._coordinator.joins.join(join)
            except GatewayError as error:
                raise self._as_leader(error) from None
            self._joined = frozenset(partitions)

    def check(self, write: Write) -> None:
        """Check that the coordinator takes a batch; nothing is changed.

        Errors: those of ``TransactionCoordinator.check_written``, as a leader answers them.
        """
        header = write.header
        producer = header.producer_id, header.producer_epoch
        if self._producer not in {None, producer}:
            msg = "a request has batches of one producer only"
            raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, msg)
        self._producer = producer
        if not self._is_here:
            if not _is_of_open(write.partition, header) and (
                _ref(write.partition) not in self._joined
            ):
                msg = "the transaction's coordinator moves to another node"
                raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS, msg)
            return
        try:
            if self.version >= VERSION_WITH_EPOCHS or _is_open(write.partition, producer[0]):
                self._coordinator.check_producer(self._name, *producer)
            else:
                self._coordinator.check_written(self._name, *producer, _ref(write.partition))
        except GatewayError as error:
            raise self._as_leader(error) from None

    def begin(self, writes: Sequence[Write]) -> None:
        """Add the partitions of checked batches that the transaction does not have yet.

        It comes before their append, in the same turn of the loop. Errors: those of
        ``TransactionCoordinator.add``.
        """
        if self._producer is None or self.version < VERSION_WITH_EPOCHS or not self._is_here:
            return
        producer_id = self._producer[0]
        refs = [
            _ref(write.partition)
            for write in writes
            if not _is_open(write.partition, producer_id)
        ]
        if refs:
            self._coordinator.add(
                self._name, *self._producer, partitions=refs, version=self.version
            )

    def _as_leader(self, error: GatewayError) -> GatewayError:
        """Return the error that a partition's leader answers for one of the coordinator."""
        if isinstance(error, InvalidTransactionState):
            if self._request_version >= ABORTABLE_FROM:
                return TransactionAbortable(str(error))
            return error
        is_soon_over = isinstance(
            error, (NotOwner, CoordinatorLoading, Overloaded, StorageUnavailable)
        )
        if is_soon_over or (
            isinstance(error, ConcurrentTransactions)
            and self._request_version < ADDS_PARTITIONS_FROM
        ):
            # Clients repeat this one without a look for another leader.
            return Refused(ErrorCode.NOT_ENOUGH_REPLICAS, str(error))
        return error


def _is_open(partition: Partition, producer_id: int) -> bool:
    """Whether the producer has written to a partition in its open transaction."""
    transactions = partition.transactions
    return transactions is not None and producer_id in transactions.open


def _is_of_open(partition: Partition, header: BatchHeader) -> bool:
    """Whether a batch goes on with what its producer has open in a partition."""
    producers = partition.producers
    return (
        _is_open(partition, header.producer_id)
        and producers is not None
        and producers.epoch_of(header.producer_id) == header.producer_epoch
    )


def _ref(partition: Partition) -> PartitionRef:
    return PartitionRef(partition.topic.uuid, partition.number)
