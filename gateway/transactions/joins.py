"""Partitions and groups that join transactions whose coordinator may be another node.

A batch of a transaction, or an offset that it commits, is kept only when the coordinator has its
partition or group, durably: else no end would come to it. The node that keeps it asks the
coordinator, and appends in the turn of the loop in which the answer is there, unless the end has
come meanwhile, or shards have moved (the verification guard of KIP-890).
"""

import asyncio
import struct
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol

from features.transactions import GroupRef, PartitionRef
from gateway.broker import Broker
from gateway.errors import (
    ConcurrentTransactions,
    GatewayError,
    InvalidRequest,
    NotLeader,
    StorageUnavailable,
    as_value,
)
from gateway.groups.fields import FieldReader, encode_text
from gateway.shards.model import DONE, Codec, OnReply, Room, Sink, StreamSource, refused
from gateway.storage import OnDone
from gateway.transactions.journal import TransactionalId
from gateway.transactions.owners import TransactionOwners
from gateway.transactions.refs import encode_refs, read_refs

SERVICE: Final = "transaction"
RETRY_S: Final = 0.02
TRIES_MAX: Final = 5
"""Tries while the end of the transaction before is on its way, as Kafka's leaders make them."""

_HEAD: Final = struct.Struct(">qhBB")


class Join(NamedTuple):
    """Partitions and groups, and a producer's transaction that they join.

    ``version``: that of the protocol. ``adds``: they are added to it; else they were added before,
    and it is checked.
    """

    name: TransactionalId
    producer_id: int
    epoch: int
    version: int
    partitions: tuple[PartitionRef, ...] = ()
    groups: tuple[GroupRef, ...] = ()
    adds: bool = False


class Coordinator(Protocol):
    """Part of ``TransactionCoordinator`` that joins call."""

    owners: TransactionOwners

    def add(  # noqa: D102 - as there
        self,
        name: TransactionalId,
        producer_id: int,
        epoch: int,
        *,
        partitions: Iterable[PartitionRef],
        groups: Iterable[GroupRef],
        version: int,
    ) -> None: ...

    def check_written(  # noqa: D102
        self, name: TransactionalId, producer_id: int, epoch: int, partition: PartitionRef
    ) -> None: ...

    def check_group_added(  # noqa: D102
        self, name: TransactionalId, producer_id: int, epoch: int, group: GroupRef
    ) -> None: ...

    def after_settled(self, name: TransactionalId, on_done: OnDone) -> None: ...  # noqa: D102


class _Guard:
    """Join that waits for its answer; ``is_broken`` when its transaction may have ended."""

    __slots__ = ("is_broken",)

    def __init__(self) -> None:
        self.is_broken = False


class TransactionJoins:
    """Both sides of joins: of this node's partitions and groups, and of its coordinator.

    Loop only. A service of shards, see ``gateway.shards.model.Service``.
    """

    def __init__(self, broker: Broker, coordinator: Coordinator) -> None:
        self.codec: Codec = JoinCodec()
        self._coordinator = coordinator
        self._calls = broker.shard_calls
        self._placement = broker.placement
        self._loop = asyncio.get_running_loop()
        self._guards: dict[int, set[_Guard]] = {}  # by producer id
        self._calls.register(SERVICE, self)
        self._placement.on_change.append(self._follow_owners)

    def close(self) -> None:
        """Serve no more."""
        self._calls.unregister(SERVICE)
        self._placement.on_change.remove(self._follow_owners)

    # --- the node of partitions and groups

    async def join(self, join: Join) -> None:
        """Return when the coordinator has what joins; the caller appends in the same turn.

        A coordinator of this node stores it before what the caller appends.
        Errors: those of the coordinator's ``add``, or ``check_written`` and ``check_group_added``;
        ``NotOwner`` and ``OutcomeUnknown`` while shards move; ``NotLeader`` when what joins would
        come too late: the client asks again.
        """
        if self._coordinator.owners.owns(join.name):
            with suppress(ConcurrentTransactions):  # the service waits for the end
                self._take(join)
                return
        guard = _Guard()
        self._guards.setdefault(join.producer_id, set()).add(guard)
        try:
            shard = self._coordinator.owners.shard(join.name)
            await self._calls.ask(shard, SERVICE, join)
        finally:
            waiting = self._guards.get(join.producer_id, set())
            waiting.discard(guard)
            if not waiting:
                self._guards.pop(join.producer_id, None)
        if guard.is_broken:
            raise NotLeader("the transaction has ended, or a shard has moved, meanwhile")

    def end(self, producer_id: int) -> None:
        """Break the joins of a producer: an end of its transaction has come."""
        for guard in self._guards.pop(producer_id, ()):
            guard.is_broken = True

    def _follow_owners(self, shards: Collection[int]) -> None:
        """Break all joins: an end may have come to the node that has had the shard meanwhile."""
        del shards
        for producer_id in list(self._guards):
            self.end(producer_id)

    # --- the coordinator's node

    def call(self, room: Room, payload: object, on_reply: OnReply) -> None:
        """Serve a join: reply when the coordinator has it, durably."""
        del room
        assert isinstance(payload, Join)
        self._try(payload, on_reply, 1)

    def _try(self, join: Join, on_reply: OnReply, tries: int) -> None:
        try:
            self._take(join)
        except ConcurrentTransactions as error:
            if tries >= TRIES_MAX:
                on_reply(refused(as_value(error)))
            else:
                self._loop.call_later(RETRY_S, self._try, join, on_reply, tries + 1)
        except GatewayError as error:
            on_reply(refused(as_value(error)))
        else:
            self._coordinator.after_settled(join.name, partial(_reply, on_reply))

    def _take(self, join: Join) -> None:
        producer = join.name, join.producer_id, join.epoch
        if join.adds:
            self._coordinator.add(
                *producer,
                partitions=join.partitions,
                groups=join.groups,
                version=join.version,
            )
            return
        for partition in join.partitions:
            self._coordinator.check_written(*producer, partition)
        for group in join.groups:
            self._coordinator.check_group_added(*producer, group)

    def open_stream(self, room: Room, payload: object, sink: Sink) -> StreamSource:
        """Refuse: there are no streams of joins."""
        del room, payload, sink
        raise InvalidRequest("transactions have no streams")


def _reply(on_reply: OnReply, error: StorageUnavailable | None) -> None:
    on_reply(DONE if error is None else refused(error))


class JoinCodec:
    """Bytes of a join; see ``gateway.shards.model.Codec``. A reply has no payload."""

    def encode_request(self, payload: object) -> bytes:
        """Return a join as bytes."""
        assert isinstance(payload, Join)
        head = _HEAD.pack(payload.producer_id, payload.epoch, payload.version, payload.adds)
        name = b"".join(map(encode_text, payload.name))
        return head + name + encode_refs(payload.partitions, payload.groups)

    def decode_request(self, data: bytes) -> object:
        """Return a join. Error: ``ValueError``."""
        reader = FieldReader(data)
        try:
            producer_id, epoch, version, adds = reader.unpack(_HEAD)
            name = TransactionalId(reader.text() or "", reader.text() or "")
            refs = read_refs(reader)
        except struct.error as error:
            raise ValueError(f"not a join: {error}") from None
        return Join(name, producer_id, epoch, version, *refs, adds=bool(adds))

    def encode_reply(self, payload: object) -> bytes:
        """Return nothing: the status says it all."""
        del payload
        return b""

    def decode_reply(self, data: bytes) -> object:
        """See ``encode_reply``."""
        return data or None
