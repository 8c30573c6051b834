"""Target's side of transfers: the service that other nodes send their parts to."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

from features.transfer import Incoming, Verdict
from gateway.atomic_append import AtomicAppend
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import Coalescer, Part
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    NotLeader,
    Overloaded,
    StorageUnavailable,
    as_value,
)
from gateway.partition import Partition
from gateway.records.record_run import Run
from gateway.shards.model import (
    DONE,
    NOT_OWNER,
    Codec,
    OnReply,
    Room,
    Sink,
    StreamSource,
    refused,
)
from gateway.storage import OnDone
from gateway.streams import InternalStream, Item
from gateway.topics.manager import TopicManager
from gateway.transfer.payload import (
    Transfer,
    TransferCodec,
    decode_payload,
    to_runs,
    topic_uuid_of,
)
from gateway.transfer.waiting_for_memory import WaitingForMemory
from gateway.write_steps import Held, end_held

Waiting = dict[tuple[int, int], list[OnReply]]
Adopter = Callable[[int, Sequence[bytes]], Sequence[Held]]
"""Takes in the values of records for a partition of an internal topic, whose state it keeps.

Their ``part`` is appended, and ``done`` follows. Error: ``NotLeader`` when its shard is not open.
"""
Adopters = dict[UUID, Adopter]
Applier = Callable[[Sequence[bytes], AtomicAppend], None]
"""Adds what the values of records for a partition of an internal topic say to an append.

Error: ``NotLeader`` when a shard is not open.
"""
Appliers = dict[UUID, Applier]


class IncomingShard(Protocol):
    """Open shard, as far as its incoming transfers go."""

    stream: InternalStream
    incoming: Incoming
    waiting: Waiting


class AcceptedRuns(Coalescer):
    """Coalescer of records that another node has checked and an intent has promised.

    A bound that is reached, or lowered, in between does not keep them out: what follows them would
    wait for ever.
    """

    def check(self, partition: Partition, run: Run) -> None:
        """Check that the partition is there. Errors: ``TopicNotFound``, ``NotLeader``."""
        del run
        if partition.is_gone:
            partition.check_present()


class TransferService:
    """See ``gateway.shards.model.Service``."""

    codec: Codec = TransferCodec()

    def __init__(  # noqa: PLR0917 - the parts it joins
        self,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        find: Callable[[int], IncomingShard | None],
        adopters: Adopters,
        appliers: Appliers,
    ) -> None:
        """``find`` returns an open shard. ``adopters``, ``appliers``: by uuid of their topic."""
        self._broker = broker
        self._topics = topics
        self._clock = clock
        self._find = find
        self._adopters = adopters
        self._appliers = appliers
        self._coalescer = AcceptedRuns(broker)
        self.waiting = WaitingForMemory(broker, self._coalescer)
        """Applied records that wait for room in memory."""

    def call(self, room: Room, payload: object, on_reply: OnReply) -> None:
        """Apply a part once, and answer when it is durable.

        Errors: ``StorageUnavailable``, ``Overloaded`` for one that comes too early.
        """
        del room
        assert isinstance(payload, Transfer)
        shard = self._find(payload.target)
        if shard is None:  # it is being opened, or closed
            on_reply(NOT_OWNER)
            return
        source, number = payload.source, payload.number
        placement = self._broker.placement
        known = placement.epoch(source % placement.shard_count)
        verdict = shard.incoming.judge(source, payload.epoch, number, epoch_known=known)
        if verdict is Verdict.APPLIED:
            on_reply(DONE)
        elif verdict is Verdict.PENDING:
            shard.waiting[source, number].append(on_reply)
        elif verdict is Verdict.ZOMBIE:
            on_reply(NOT_OWNER)
        elif verdict is Verdict.EARLY:
            raise Overloaded(f"transfer {number} of shard {source} came before another")
        else:
            self._apply(shard, payload, on_reply)

    def open_stream(self, room: Room, payload: object, sink: Sink) -> StreamSource:
        """Refuse: there are no streams of transfers."""
        del room, payload, sink
        raise InvalidRequest("transfers have no streams")

    def _apply(self, shard: IncomingShard, transfer: Transfer, on_reply: OnReply) -> None:
        """Append the effects and the number as one. Errors: ``NotLeader``, ``TopicNotFound``."""
        held: list[Held] = []
        source, number = transfer.source, transfer.number
        shard.waiting[source, number] = [on_reply]
        items = shard.incoming.begin(source, number)
        shard.stream.flush()  # what is gathered lies before
        later: list[Part] = []
        on_done = partial(self._applied, shard, source, number, held, later)
        applier = self._appliers.get(topic_uuid_of(transfer.payload))
        try:
            if applier is not None:
                self._append(shard, items, applier, transfer.payload, on_done)
                return
            parts, waiting = self.waiting.split(self._parts(transfer, held))
            later += waiting
            shard.stream.put(
                items,
                on_done,
                beside=parts,
                coalescer=self._coalescer,
                as_is=True,
            )
        except GatewayError as error:
            end_held(held, as_value(error))
            del shard.waiting[source, number]
            shard.incoming.undo(source, number)
            raise
        self.waiting.put_off(later)
        self._coalescer.seal()

    def _append(
        self,
        shard: IncomingShard,
        items: list[Item],
        applier: Applier,
        payload: bytes,
        on_done: OnDone,
    ) -> None:
        """Append what an applier adds, and the number. Errors: as ``AtomicAppend.append``."""
        append = AtomicAppend(self._broker)
        try:
            for _, _, records in decode_payload(payload):
                applier([record.value or b"" for record in records], append)
            shard.stream.put(items, _ignore, coalescer=append)
        except GatewayError as error:
            append.undo(as_value(error))
            raise
        append.append(on_done)

    def _parts(self, transfer: Transfer, held: list[Held]) -> list[Part]:
        """Return the effects of a part; those of deleted topics have ended by that.

        ``held`` gets what adopters have taken in.
        """
        now_unix_ms = self._clock.unix_ms()
        parts: list[Part] = []
        for uuid, number, records in decode_payload(transfer.payload):
            topic = self._topics.by_uuid(uuid)
            if topic is None:
                continue
            adopt = self._adopters.get(uuid)
            if adopt is None and topic.is_internal:
                raise NotLeader(f"{topic.name.name} is being opened")
            if adopt is None:
                partition = self._broker.partition(topic, number)
                parts += [(partition, run) for run in to_runs(records, now_unix_ms)]
                continue
            adopted = adopt(number, [record.value or b"" for record in records])
            held += adopted
            parts += [one.part for one in adopted if one.part is not None]
        return parts

    def _applied(  # noqa: PLR0917 - what a part has begun
        self,
        shard: IncomingShard,
        source: int,
        number: int,
        held: Sequence[Held],
        later: Sequence[Part],
        error: StorageUnavailable | None,
    ) -> None:
        end_held(held, error)
        waiting = shard.waiting.pop((source, number))
        if error is None:
            shard.incoming.kept(source, number)
        else:
            shard.incoming.undo(source, number)
            self.waiting.undo(later)
        for on_reply in waiting:
            on_reply(DONE if error is None else refused(error))


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result: that of the whole append counts."""
