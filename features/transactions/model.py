"""Value of one transactional id: its producer id and epoch, and its present transaction."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_MAX: Final = 32_767
"""Given to nobody: markers have it that fence a producer with the last epoch."""
LAST_EPOCH: Final = EPOCH_MAX - 1
"""Last epoch of a producer; the next one is epoch 0 of a new producer id."""


class State(IntEnum):
    """State of a transactional id, with the numbers of Kafka's ``TransactionState``."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """Name in DescribeTransactions and ListTransactions.

        >>> State.PREPARE_COMMIT.kafka_name
        'PrepareCommit'
        """
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and partitions of other logs do not have it yet."""
        return self in {State.PREPARE_COMMIT, State.PREPARE_ABORT}

    @property
    def is_idle(self) -> bool:
        """Whether there is no transaction."""
        return self in {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}


class PartitionRef(NamedTuple):
    """Partition of a transaction."""

    topic_uuid: UUID
    number: int


class GroupRef(NamedTuple):
    """Consumer group whose positions a transaction commits."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """Value of a transactional id.

    ``last_epoch`` is the epoch before the present one, if a request that was answered may come
    again with it; ``previous_producer_id`` likewise, after the epochs of an id ran out.
    ``version`` is that of the protocol (KIP-890): 2 where each end changes the epoch.
    ``started_unix_ms`` is that of the present transaction. Partitions are in order of their add.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    version: int = 0
    started_unix_ms: int = NO_TIME
    updated_unix_ms: int = NO_TIME
    partitions: tuple[PartitionRef, ...] = ()
    groups: tuple[GroupRef, ...] = ()

    @property
    def deadline_unix_ms(self) -> int | None:
        """Time at which an open transaction is aborted; None without one."""
        if self.state is not State.ONGOING:
            return None
        return self.started_unix_ms + self.timeout_ms

    def has_replaced(self, producer_id: int, epoch: int) -> bool:
        """Return whether the present epoch followed that one of the same producer.

        Then a request with it was answered, and comes again. An epoch that another producer had
        before this one is not in ``last_epoch``.
        """
        if epoch == NO_EPOCH or epoch != self.last_epoch or epoch == self.epoch:
            return False
        return producer_id == self.producer_id or (
            producer_id == self.previous_producer_id and self.epoch == 0
        )

    def emptied(self, state: State, now_unix_ms: int) -> "Transaction":
        """Return the value after the end of the transaction."""
        return replace(
            self,
            state=state,
            started_unix_ms=NO_TIME,
            updated_unix_ms=now_unix_ms,
            partitions=(),
            groups=(),
        )
