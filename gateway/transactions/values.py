"""Values of transactional ids: loaded by shard, and changed in one append each.

What is appended for the end of a transaction are the markers of its partitions, the positions that
it commits, the value of its transactional id, and transfers for what lies in other logs; after a
crash all of it is there, or none. Values change at once, and callbacks run when the change is
durable.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import structlog

from features.transactions import Ending, State, Transaction, complete, prepare
from gateway.atomic_append import AtomicAppend
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.errors import GatewayError, NotLeader, StorageUnavailable, as_value
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from gateway.sharded_stream import ShardedStream
from gateway.slots import shard_of_transactional_id
from gateway.storage import OnDone
from gateway.topics.manager import TopicManager
from gateway.transactions.ends import End, EndAppends, encode_end
from gateway.transactions.journal import (
    TransactionalId,
    changed_items,
    decode_items,
    id_of_key,
)
from gateway.transactions.owners import TransactionOwners
from gateway.transfer.payload import Addressed
from gateway.transfer.transfers import Transfers

TRANSACTIONS_TOPIC: Final = "__transactions"
OUTCOMES: Final = ("commit", "abort", "timeout")
LOADED_PER_TURN_MAX: Final = 500
"""Ids of a shard that comes, decoded in a turn of the loop: about 5 ms."""
COMPLETED_PER_TURN_MAX: Final = 50
RETRY_S: Final = 1.0
"""Time after which the end of a prepared transaction that was refused is tried again."""

_log = structlog.get_logger()

OnChanged = Callable[[TransactionalId, Transaction | None], None]


class TransactionValues:
    """Values of the node's shards. Loop only. A ``ShardState`` of ``gateway.shard_lifecycle``."""

    def __init__(
        self,
        stream: ShardedStream,
        broker: Broker,
        clock: Clock,
        transfers: Transfers,
        ends: EndAppends,
    ) -> None:
        self.stream = stream
        self.owners = TransactionOwners(broker)
        self._broker = broker
        self._clock = clock
        self._transfers = transfers
        self._ends = ends
        self._loop = asyncio.get_running_loop()
        self.by_name: dict[TransactionalId, Transaction] = {}
        self.ongoing: dict[TransactionalId, Transaction] = {}
        """Values with an open transaction."""
        self._by_shard: dict[int, set[TransactionalId]] = {}
        self._unsettled: Counter[TransactionalId] = Counter()
        self.on_changed: list[OnChanged] = []
        """Called with each value that is set, None for an id that is removed or has left."""
        self.ended = Counter(dict.fromkeys(OUTCOMES, 0))
        """Transactions that have ended since the start, by outcome."""

    @classmethod
    async def open(
        cls,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        transfers: Transfers,
        ends: EndAppends,
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
        transfers.appliers[stream.topic.uuid] = ends.receive
        return cls(stream, broker, clock, transfers, ends)

    # --- the life cycle of shards

    @property
    def open_shards(self) -> Collection[int]:
        """See ``ShardState``."""
        return self.stream.open_shards

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: open transactions have their timeouts again.

        Prepared ones are complete when what is open of their shard's transfers is applied.
        """
        await self.stream.load_shards(shards)
        prepared: dict[int, list[TransactionalId]] = {}
        for number, (name, value) in enumerate(decode_items(self.stream.items_of(shards))):
            if number % LOADED_PER_TURN_MAX == LOADED_PER_TURN_MAX - 1:
                await asyncio.sleep(0)
            self._set(name, value)
            if value.state.is_prepared:
                prepared.setdefault(self.owners.shard(name), []).append(name)
        for shard, names in prepared.items():
            self._transfers.after_open(shard, partial(self._complete_all, names))

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: each change is appended at once."""

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        for shard in shards:
            for name in tuple(self._by_shard.get(shard, ())):
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

        What the end does in other logs follows by transfers; the value is a prepared one until all
        of them have it. ``outcome`` is that of the metrics; by default that of ``ending``.

        Errors, with nothing changed: those of ``AtomicAppend.append``; ``NotLeader``.
        """
        before = self.by_name.get(name)
        append = AtomicAppend(self._broker)
        try:
            if ending is not None:
                here, away = self._ends.split(ending, self.owners.epoch(name))
                self._ends.add(here, append)
                if away:
                    assert before is not None
                    value = prepare(before, ending)
                    self._send(name, away, append)
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

    def is_whole(self, ending: Ending) -> bool:
        """Return whether all that an end does is in this node's log."""
        return not self._ends.split(ending, 0)[1]

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
        names = self._by_shard.setdefault(self.owners.shard(name), set())
        if value is None:
            self.by_name.pop(name, None)
            names.discard(name)
        else:
            self.by_name[name] = value
            names.add(name)
        if value is not None and value.state is State.ONGOING:
            self.ongoing[name] = value
        else:
            self.ongoing.pop(name, None)
        for follow in self.on_changed:
            follow(name, value)

    def _send(self, name: TransactionalId, away: dict[int, End], append: AtomicAppend) -> None:
        """Add parts of an end for other logs to an append. Errors: as ``Transfers.begin``."""
        topic, now_unix_ms = self.stream.topic, self._clock.unix_ms()
        parts = {}
        for shard, end in away.items():
            run = RecordRun(None, (encode_end(end),), NO_HEADERS, now_unix_ms)
            parts[shard] = [Addressed(topic, shard, run)]
        shard = self.owners.shard(name)
        self._transfers.begin(shard, parts, append, partial(self._complete, name))

    def _complete_all(self, names: list[TransactionalId]) -> None:
        """Complete some now, and the others in later turns of the loop."""
        for name in names[-COMPLETED_PER_TURN_MAX:]:
            self._complete(name)
        del names[-COMPLETED_PER_TURN_MAX:]
        if names:
            self._loop.call_soon(self._complete_all, names)

    def _complete(self, name: TransactionalId) -> None:
        """Complete a transaction whose end all other logs have."""
        value = self.by_name.get(name)
        is_here = self.owners.shard(name) in self.open_shards
        if value is None or not value.state.is_prepared or not is_here:
            return
        try:
            self.keep(name, complete(value, self._clock.unix_ms()), None, _ignore)
        except NotLeader:
            return  # its next owner does it
        except GatewayError as error:
            _log.warning("transaction not completed", id=name.name, error=str(error))
            self._loop.call_later(RETRY_S, self._complete, name)


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result: an append that fails stops the node."""
