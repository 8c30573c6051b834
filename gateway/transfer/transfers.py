"""Transfers of all shards of a node: appends that may have effects in other nodes' logs.

An append whose targets are all in this node's log is one append, as ever. Of any other the source
shard journals an intent in ``__transfers``, in one append with what is local; see
``features.transfer``. The operation is decided when this append is durable: then it is
acknowledged, and each other shard gets its effects, later, once, in order. They are decided
together, and not visible together.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import structlog

from features.transfer import Effect, Intent, intent_ids_of
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import AnyPart, Coalescer, Part
from gateway.errors import GatewayError, NotLeader, Overloaded, StorageUnavailable
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.placement import shard_of
from gateway.shards.model import Reply, Status
from gateway.storage import OnDone
from gateway.streams import REWRITE_ROOM_BYTES, VALUE_BYTES_MAX, InternalStream, RunSink
from gateway.topics.internal import internal_topic
from gateway.topics.manager import Topic, TopicManager
from gateway.transfer.payload import Addressed, Transfer, check_addressed, encode_payload
from gateway.transfer.receiving import Adopters, Appliers, TransferService
from gateway.transfer.transfer_shard import TransferShard
from gateway.transfer.waiting_for_memory import WaitingForMemory

TRANSFERS_TOPIC: Final = "__transfers"
SERVICE: Final = "transfer"
OPEN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Payload of the open transfers of one shard; above it operations with new ones are refused."""
IN_FLIGHT_MAX: Final = 64
"""Parts of one source and target that are sent and not answered."""
RETRY_S: Final = 0.2
RETRIES_MAX: Final = 5  # after which the pause grows no more: 6.4 s

_CONFIGS: Final = {"cleanup.policy": "compact", "max.message.bytes": str(VALUE_BYTES_MAX)}

_log = structlog.get_logger()


class Transfers:
    """See the module. Loop only. A ``ShardState`` of ``gateway.shard_lifecycle``."""

    def __init__(self, broker: Broker, topics: TopicManager, clock: Clock) -> None:
        self._broker = broker
        self._topics = topics
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._topic: Topic | None = None
        self._coalescer = Coalescer(broker, reserved=True)
        self._shards: dict[int, TransferShard] = {}
        self._is_closed = False
        self.open_shards: set[int] = set()
        self.in_one_log = True
        """Whether each append of now is one, because all shards are this node's."""
        self.adopters: Adopters = {}
        """Parts of the node that keep the state of an internal topic, by the topic's uuid."""
        self.appliers: Appliers = {}
        """Parts whose effects are more than records, likewise."""
        self.waiting: WaitingForMemory | None = None
        """Records from other nodes that wait for room in memory; None until it is open."""
        self.begun = 0
        self.applied = 0
        broker.placement.on_change.append(self._follow_owners)
        self._look()

    @classmethod
    async def start(
        cls, broker: Broker, topics: TopicManager, clock: Clock, stack: AsyncExitStack
    ) -> "Transfers":
        """Return the open transfers of a node, which ``stack`` closes. Errors: as ``open``."""
        transfers = cls(broker, topics, clock)
        await transfers.open()
        stack.callback(transfers.close)
        return transfers

    async def open(self) -> None:
        """Make the topic at the first start, and open the shards of this node.

        Errors: as ``load_shards``.
        """
        broker = self._broker
        name = TopicName(DEFAULT_NAMESPACE, TRANSFERS_TOPIC)
        count = broker.placement.shard_count
        self._topic = await internal_topic(self._topics, name, count, _CONFIGS)
        service = TransferService(
            broker, self._topics, self._clock, self._shards.get, self.adopters, self.appliers
        )
        broker.shard_calls.register(SERVICE, service)
        self.waiting = service.waiting
        await self.load_shards(broker.shards.owned())
        broker.shards.register(self)

    def close(self) -> None:
        """Stop to send; what is open goes on after the next start."""
        self._is_closed = True
        if self.waiting is not None:
            self.waiting.close()
        self._broker.shards.unregister(self)
        for shard in self._shards.values():
            shard.stop()

    # --- the life cycle of shards

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: open intents are sent again."""
        assert self._topic is not None
        placement = self._broker.placement
        count = placement.shard_count
        numbers = range(len(self._topic.partition_ids))
        for number in [one for one in numbers if one % count in shards]:
            stream = InternalStream(
                self._broker.partition(self._topic, number),
                self._broker,
                self._clock,
                coalescer=self._coalescer,
                rewrite_room_bytes=REWRITE_ROOM_BYTES // count,
            )
            await stream.load()
            self._shards[number] = shard = TransferShard(
                number, placement.epoch(number % count), stream
            )
            self._send_all(shard)
        self.open_shards.update(shards)
        self._look()

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: the ends of intents are in a coalescer, which appends them."""

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: the next owner sends what is open."""
        self.open_shards.difference_update(shards)
        count = self._broker.placement.shard_count
        for number in [one for one in self._shards if one % count in shards]:
            self._shards.pop(number).stop()
        self._look()

    def _follow_owners(self, shards: Collection[int]) -> None:
        placement = self._broker.placement
        for shard in self._shards.values():
            number = shard.number % placement.shard_count
            if placement.owns(number):
                shard.epoch = placement.epoch(number)
        self._look()
        moved = set(shards)
        for shard in list(self._shards.values()):
            for target in shard.outgoing.open_targets:
                if target % placement.shard_count in moved:
                    shard.refusals.pop(target, None)
                    self._send(shard, target)

    def _look(self) -> None:
        self.in_one_log = self._broker.placement.owns_all and not any(
            shard.outgoing.open_targets for shard in self._shards.values()
        )

    # --- the source

    def check(self, one: Addressed, coalescer: Coalescer) -> None:
        """Raise what ``append`` would raise for records. Errors: as ``Coalescer.check``."""
        if self._broker.owns(one.topic, one.number):
            coalescer.check(self._broker.partition(one.topic, one.number), one.run)
        else:
            check_addressed(one)

    def append(
        self,
        source: int,
        addressed: Sequence[Addressed],
        on_done: OnDone,
        *,
        beside: Sequence[Part] = (),
        coalescer: Coalescer,
    ) -> None:
        """Append records for any partitions, and what is ``beside`` in this log, as one decision.

        Neighbouring records with the same run are stored once in this log.
        ``source`` is the shard of ``beside``, and that the order of records is kept for. It is
        appended when this returns, and durable when ``on_done`` runs: other nodes have their
        records by then or get them later. Errors, with nothing changed: as
        ``Coalescer.add_many``; ``Overloaded`` when ``OPEN_BYTES_MAX`` is reached.
        """
        broker = self._broker
        if self.in_one_log:
            parts = [(broker.partition(topic, n), run) for topic, n, run in addressed]
            coalescer.add_many([*coalescer.join(parts), *beside], on_done, as_is=True)
            coalescer.seal()
            return
        shard = self._shards.get(source)
        if shard is None:
            raise NotLeader(f"shard {source} is another node's, or is being opened")
        local: list[Part] = []
        away: defaultdict[int, list[Addressed]] = defaultdict(list)
        for one in addressed:
            if self.is_direct(source, one.topic, one.number):
                local.append((broker.partition(one.topic, one.number), one.run))
            else:
                away[shard_of(one.topic, one.number, broker.placement)].append(one)
        here = [*beside, *coalescer.join(local)]
        if away:
            self._begin(shard, away, here, on_done, coalescer)
        else:
            coalescer.add_many(here, on_done, as_is=True)
        coalescer.seal()

    def is_direct(self, source: int, topic: Topic, number: int) -> bool:
        """Return whether records of a source for a partition are appended to this log at once.

        Otherwise the partition is another node's, or earlier records of the source wait for it.
        """
        if self.in_one_log:
            return True
        target = shard_of(topic, number, self._broker.placement)
        shard = self._shards.get(source)
        is_open = shard is not None and shard.outgoing.is_open(target)
        return self._broker.placement.owns(target) and not is_open

    def begin(
        self,
        source: int,
        away: Mapping[int, Sequence[Addressed]],
        sink: RunSink,
        on_applied: Callable[[], None],
    ) -> None:
        """Journal effects in other shards, by shard, in an append that is made up elsewhere.

        ``on_applied`` is called when all of them are applied, unless the source leaves the node
        before that; its next owner has ``after_open``. Errors: as ``append``.
        """
        shard = self._shards.get(source)
        if shard is None:
            raise NotLeader(f"shard {source} is another node's, or is being opened")
        intent = self._begin(shard, away, (), _ignore, sink)
        shard.follow([intent.intent_id], on_applied)

    def after_open(self, source: int, on_applied: Callable[[], None]) -> None:
        """Call back when all that is open now is applied, in a later turn of the loop."""
        shard = self._shards.get(source)
        intent_ids = () if shard is None else shard.outgoing.open_intents
        if shard is None or not intent_ids:
            self._loop.call_soon(on_applied)
        else:
            shard.follow(intent_ids, on_applied)

    def _begin(
        self,
        shard: TransferShard,
        away: Mapping[int, Sequence[Addressed]],
        beside: Sequence[AnyPart],
        on_done: OnDone,
        sink: RunSink,
    ) -> Intent:
        """Journal an intent beside the effects of this log."""
        if shard.outgoing.size_bytes >= OPEN_BYTES_MAX:
            raise Overloaded(f"{OPEN_BYTES_MAX} bytes wait for other nodes")
        effects = [Effect(target, encode_payload(some)) for target, some in away.items()]
        shard.stream.flush()  # what is gathered lies before
        intent, items = shard.outgoing.begin(effects)
        self.in_one_log = False
        try:
            shard.stream.put(
                items,
                partial(self._kept, shard, intent, on_done),
                beside=beside,
                coalescer=sink,
                as_is=True,
            )
        except GatewayError:
            shard.outgoing.undo(intent)
            self._look()
            raise
        return intent

    def _kept(
        self,
        shard: TransferShard,
        intent: Intent,
        on_done: OnDone,
        error: StorageUnavailable | None,
    ) -> None:
        if error is not None:
            shard.outgoing.undo(intent)
            shard.followers.pop(intent.intent_id, None)
            self._look()
            on_done(error)
            return
        self.begun += 1
        shard.outgoing.kept(intent)
        try:
            on_done(None)
        finally:
            for part in intent.parts:
                self._send(shard, part.target)

    def is_open(self, source: int, target: int) -> bool:
        """Return whether a transfer from a shard to another is not known to be applied."""
        shard = self._shards.get(source)
        return shard is not None and shard.outgoing.is_open(target)

    # --- sending

    def _send_all(self, shard: TransferShard) -> None:
        for target in shard.outgoing.open_targets:
            self._send(shard, target)

    def _send(self, shard: TransferShard, target: int) -> None:
        """Send the open parts for a target, in order, a bounded number at a time."""
        placement = self._broker.placement
        count = placement.shard_count
        if self._is_closed or self._shards.get(shard.number) is not shard:
            return
        if not placement.owns(shard.number % count):
            return  # it is about to be closed; the next owner sends
        in_flight = shard.in_flight[target]
        for part in shard.outgoing.to_send(target, count_max=IN_FLIGHT_MAX):
            if part.number not in in_flight:
                in_flight.add(part.number)
                transfer = Transfer(
                    shard.number, target, shard.epoch, part.number, part.payload
                )
                replied = partial(self._replied, shard, target, part.number)
                self._broker.shard_calls.call(target % count, SERVICE, transfer, replied)

    def _replied(self, shard: TransferShard, target: int, number: int, reply: Reply) -> None:
        shard.in_flight[target].discard(number)
        if self._is_closed or self._shards.get(shard.number) is not shard:
            return  # the next owner sends it again
        if reply.status is not Status.DONE:
            if target not in shard.retries:
                pause_s = RETRY_S * 2 ** min(shard.refusals[target], RETRIES_MAX)
                shard.refusals[target] += 1
                timer = self._loop.call_later(pause_s, self._retry, shard, target)
                shard.retries[target] = timer
            return
        shard.refusals.pop(target, None)
        self.applied += 1
        items = shard.outgoing.answered(target, number)
        if items:
            try:
                shard.stream.put(items, _ignore)
            except GatewayError as error:
                _log.warning("the end of a transfer is not written", error=str(error))
        for intent_id in intent_ids_of(items):
            for follower in shard.followers.pop(intent_id, ()):
                follower(intent_id)
        if shard.outgoing.is_open(target):
            self._send(shard, target)
        else:
            self._look()

    def _retry(self, shard: TransferShard, target: int) -> None:
        shard.retries.pop(target, None)
        self._send(shard, target)


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result: without the end, the next start sends the intent once more."""
