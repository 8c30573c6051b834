"""Transaction coordinator: takes requests of producers, and makes each change in one append.

The rules are in ``features.transactions``, the values and their appends in
``gateway.transactions.values``. Values change at once, and each answer waits until what it says is
durable.

A partition that is added is stored before the first batch of the transaction there, so the adding
request need not wait: whatever of the transaction survives, the partition does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NoReturn

from features.transactions import (
    NO_PRODUCER_ID,
    Ending,
    GroupRef,
    InitRequest,
    PartitionRef,
    State,
    Transaction,
    add,
    check_group,
    check_init,
    check_producer,
    check_written,
    end,
    fence,
    initialise,
    needs_producer_id,
)
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.transactions import TransactionsConfig
from gateway.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionTimeout,
    Overloaded,
    StorageUnavailable,
    TransactionNotFound,
)
from gateway.futures import await_done
from gateway.groups.cursors import CursorManager
from gateway.metadata.store import ProducerIds
from gateway.storage import OnDone
from gateway.topics.manager import TopicManager
from gateway.transactions.ends import EndAppends
from gateway.transactions.joins import TransactionJoins
from gateway.transactions.journal import TransactionalId
from gateway.transactions.timeouts import TransactionTimeouts
from gateway.transactions.values import TransactionValues
from gateway.transfer.transfers import Transfers

ID_CHARS_MAX: Final = 32_767  # what Kafka's older encodings can say


class TransactionCoordinator:
    """Transactional ids of the node's shards. Loop only.

    Errors of all requests, beside their own: ``NotCoordinator`` and ``CoordinatorLoading``;
    ``StorageUnavailable``, with nothing changed; ``ConcurrentTransactions`` while the end of a
    transaction is on its way to other nodes.
    """

    def __init__(
        self,
        values: TransactionValues,
        broker: Broker,
        clock: Clock,
        config: TransactionsConfig,
        producer_ids: ProducerIds,
    ) -> None:
        self.owners = values.owners
        self.config = config
        self._values = values
        self._broker = broker
        self._clock = clock
        self._producer_ids = producer_ids
        self._timeouts = TransactionTimeouts(values, clock, config)
        self.joins = TransactionJoins(broker, self)
        """Partitions and groups of this node that join transactions of any node."""

    @classmethod
    async def open(  # noqa: PLR0913, PLR0917 - the parts it joins
        cls,
        broker: Broker,
        topics: TopicManager,
        cursors: CursorManager,
        transfers: Transfers,
        clock: Clock,
        config: TransactionsConfig,
        producer_ids: ProducerIds,
    ) -> "TransactionCoordinator":
        """Return the node's transactions, loaded. Errors: as ``InternalStream.load``."""
        ends = EndAppends(broker, topics, cursors)
        values = await TransactionValues.open(broker, topics, clock, transfers, ends)
        coordinator = cls(values, broker, clock, config, producer_ids)
        ends.on_ended = coordinator.joins.end
        await values.load_shards(broker.shards.owned())
        broker.shards.register(values)
        coordinator._timeouts.start()
        return coordinator

    def close(self) -> None:
        """Stop the timeouts; what is open goes on after the next start."""
        self.joins.close()
        self._broker.shards.unregister(self._values)
        self._timeouts.close()
        self._values.stream.flush()

    # --- looking up

    @property
    def ended(self) -> Mapping[str, int]:
        """Transactions that have ended since the start, by outcome."""
        return self._values.ended

    @property
    def values(self) -> Mapping[TransactionalId, Transaction]:
        """Live view of all ids of this node."""
        return self._values.by_name

    @property
    def ongoing(self) -> Mapping[TransactionalId, Transaction]:
        """Live view of the ids that have an open transaction."""
        return self._values.ongoing

    def find(self, name: TransactionalId) -> Transaction:
        """Return the value of an id. Error: ``TransactionNotFound``."""
        self.owners.check(name)
        value = self._values.by_name.get(name)
        if value is None:
            raise TransactionNotFound(f"no transactional id {name.name[:80]!r}")
        return value

    def is_ending(self, name: TransactionalId) -> bool:
        """Return whether the end of a transaction is on its way to other nodes."""
        value = self._values.by_name.get(name)
        return value is not None and value.state.is_prepared

    def after_settled(self, name: TransactionalId, on_done: OnDone) -> None:
        """Call back when the value of an id is durable, maybe before this returns."""
        if self._values.is_settled(name):
            on_done(None)
        else:
            self._broker.after_pending(on_done)

    # --- requests of producers

    async def init(self, name: TransactionalId, request: InitRequest) -> Transaction:
        """Give a producer its id and epoch, which fence all others; abort what is open.

        Errors: those of ``initialise``; ``InvalidRequest`` for an id of more than ``ID_CHARS_MAX``
        characters; ``InvalidTransactionTimeout``; ``Overloaded``.
        """
        self.owners.check(name)
        if len(name.name) > ID_CHARS_MAX:
            raise InvalidRequest(f"a transactional id has at most {ID_CHARS_MAX} characters")
        if not 0 < request.timeout_ms <= self.config.timeout_ms_max:
            limit_ms = self.config.timeout_ms_max
            raise InvalidTransactionTimeout(f"{request.timeout_ms} ms, at most {limit_ms}")
        new_id = await self._new_id(name)
        self.owners.check(name)
        current = self._values.by_name.get(name)
        if current is None and len(self._values.by_name) >= self.config.ids_max:
            raise Overloaded(f"{self.config.ids_max} transactional ids are known")
        ending = None
        now_unix_ms = self._clock.unix_ms()
        if current is not None and current.state is State.ONGOING:
            check_init(current, request)
            ending = fence(current, now_unix_ms)
            if not self._values.is_whole(ending):
                await self._fence_first(name, ending, request)
            first = InitRequest(request.timeout_ms)
            value = initialise(ending.value, first, new_id, now_unix_ms)
            value = replace(value, last_epoch=request.epoch)
        else:
            value = initialise(current, request, new_id, now_unix_ms)
        await await_done(partial(self._values.keep, name, value, ending))
        return value

    async def _fence_first(
        self, name: TransactionalId, ending: Ending, request: InitRequest
    ) -> NoReturn:
        """Abort what is open; the producer asks again. Error: ``ConcurrentTransactions``."""
        value = replace(ending.value, last_epoch=request.epoch)
        ending = ending._replace(value=value)
        await await_done(partial(self._values.keep, name, value, ending))
        raise ConcurrentTransactions("an open transaction is being aborted in other nodes")

    def add(
        self,
        name: TransactionalId,
        producer_id: int,
        epoch: int,
        *,
        partitions: Iterable[PartitionRef] = (),
        groups: Iterable[GroupRef] = (),
        version: int = 1,
    ) -> None:
        """Add partitions and groups to a transaction, which the first of them begins.

        They are stored before what is appended later. Errors: those of ``add`` of the block.
        """
        self.owners.check(name)
        current = self._values.by_name.get(name)
        value = add(
            current,
            producer_id,
            epoch,
            now_unix_ms=self._clock.unix_ms(),
            partitions=partitions,
            groups=groups,
            version=version,
            members_max=self.config.partitions_max,
        )
        if value is not current:
            self._values.keep(name, value, None, _ignore)

    def check_producer(self, name: TransactionalId, producer_id: int, epoch: int) -> None:
        """Check that an id has a producer with an epoch. Errors: those of the block."""
        self.owners.check(name)
        check_producer(self._values.by_name.get(name), producer_id, epoch)

    def check_written(
        self, name: TransactionalId, producer_id: int, epoch: int, partition: PartitionRef
    ) -> None:
        """Check that a batch belongs to an open transaction that has its partition.

        Errors: those of ``check_written`` of the block.
        """
        self.owners.check(name)
        check_written(self._values.by_name.get(name), producer_id, epoch, partition)

    def check_group_added(
        self, name: TransactionalId, producer_id: int, epoch: int, group: GroupRef
    ) -> None:
        """Check that a group belongs to an open transaction.

        Errors: those of ``check_group`` of the block.
        """
        self.owners.check(name)
        check_group(self._values.by_name.get(name), producer_id, epoch, group)

    async def end(
        self,
        name: TransactionalId,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool,
        version: int,
    ) -> Transaction:
        """Commit or abort a transaction; the value has the epoch that the producer goes on with.

        Errors: those of ``end`` of the block.
        """
        self.owners.check(name)
        new_id = NO_PRODUCER_ID
        if name in self._values.by_name:
            new_id = await self._new_id(name)
            self.owners.check(name)
        current = self._values.by_name.get(name)
        now_unix_ms = self._clock.unix_ms()
        ending = end(
            current,
            producer_id,
            epoch,
            is_commit=is_commit,
            version=version,
            new_id=new_id,
            now_unix_ms=now_unix_ms,
        )
        if ending.is_new:
            await await_done(partial(self._values.keep, name, ending.value, ending))
        elif not self._values.is_settled(name):
            await await_done(self._broker.after_pending)
        return ending.value

    async def abort(self, name: TransactionalId) -> Transaction:
        """Abort what is open under an id, and fence its producer; for an operator.

        Error: ``TransactionNotFound``, also when nothing is open.
        """
        current = self.find(name)
        if current.state is not State.ONGOING:
            raise TransactionNotFound(f"{name.name[:80]!r} has no open transaction")
        ending = fence(current, self._clock.unix_ms())
        await await_done(partial(self._values.keep, name, ending.value, ending))
        return ending.value

    async def _new_id(self, name: TransactionalId) -> int:
        """Return a new producer id when the next change may need one."""
        if not needs_producer_id(self._values.by_name.get(name)):
            return NO_PRODUCER_ID
        return await self._producer_ids.next()


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result: an append that fails stops the node."""
