"""Stored identifiers of inbound QoS 2 messages, by shard: the stream ``__mqtt_inbound``.

An identifier lies in the shard of its message's partition, so that both are one append. The
session lies in its client's shard, which another node may own by the time of PUBREL. So the two are
checked against each other when they are on one node again.

    key      client identifier, 0x00, packet identifier u16, [shard u16]
    value    [epoch i64, count u64]: the time of the message, see ``Stamp``

Integers are big-endian. In a directory with one shard there is neither shard nor epoch.

A session that leaves its node has the list of its open identifiers in its state, and the time up to
which the list is complete. A stored identifier of that time or before counts if the list has it;
of a later one, the session knows while it stays on the node, and after a crash all count. PUBREL of
an identifier that is stored with another node renews the list before PUBCOMP.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from adapters.mqtt.inflight.open_identifiers import NO_SHARD, NO_STAMP, Stamp
from adapters.mqtt.ports import SessionPort
from gateway.errors import GatewayError, StorageUnavailable
from gateway.model import DEFAULT_NAMESPACE
from gateway.placement import Placement
from gateway.sharded_stream import ShardedStream
from gateway.slots import shard_of_client
from gateway.streams import Item

REMOVED_TOGETHER_MAX: Final = 1_000

_STAMP: Final = struct.Struct(">qQ")
_ID_BYTES: Final = 2

log = structlog.get_logger()


class _Stored(NamedTuple):
    """Stored identifier. ``shard`` is the key's."""

    key: bytes
    client_id: str
    packet_id: int
    shard: int
    stamp: Stamp


class SessionsPort(Iterable[SessionPort], Protocol):
    """Sessions of a node."""

    def find(self, client_id: str) -> SessionPort | None:
        """Return the session of a client identifier."""
        ...


class InboundIdentifiers:
    """See the module. A ``ShardState`` of ``gateway.shard_lifecycle``, opened after sessions."""

    def __init__(
        self,
        stream: ShardedStream,
        placement: Placement,
        sessions: Callable[[], SessionsPort],
    ) -> None:
        """``sessions`` returns the sessions of this node."""
        self.stream = stream
        self._placement = placement
        self._is_single = placement.shard_count == 1
        self._sessions = sessions
        self._count = 0

    # --- identifiers of messages

    def items(self, session: SessionPort, packet_ids: Sequence[int], shard: int) -> list[Item]:
        """Return what stores identifiers of a session whose messages go to a shard."""
        value = b"" if self._is_single else _STAMP.pack(*self.stamp(session.client_id))
        place = self.place(shard)
        return [(inbound_key(session.client_id, one, place), value) for one in packet_ids]

    def stamp(self, client_id: str) -> Stamp:
        """Return the time of a message that comes now; ``NO_STAMP`` where there is one shard."""
        if self._is_single:
            return NO_STAMP
        self._count += 1
        return self._epoch_of(client_id), self._count

    def list_all(self, session: SessionPort) -> None:
        """Let the session's state list what is open, as it or a shard of the list leaves."""
        session.inbound.list_all(self.stamp(session.client_id))

    def place(self, shard: int) -> int:
        """Return what a session notes of an identifier that is stored in a shard."""
        return NO_SHARD if self._is_single else shard

    def is_here(self, place: int) -> bool:
        """Return whether an identifier that is stored at a ``place`` is this node's to remove."""
        return self.stream.is_here(0 if place == NO_SHARD else place)

    def removals(self, client_id: str, places: Mapping[int, int]) -> list[Item]:
        """Return what removes identifiers by their places, as far as they are on this node."""
        here = set(filter(self.is_here, set(places.values())))
        keys = [
            inbound_key(client_id, packet_id, place)
            for packet_id, place in places.items()
            if place in here
        ]
        return [(key, None) for key in keys if self.stream.get(key) is not None]

    def _epoch_of(self, client_id: str) -> int:
        placement = self._placement
        shard = shard_of_client(DEFAULT_NAMESPACE, client_id, placement.shard_count)
        return placement.epoch(shard)

    # --- the life cycle of shards

    @property
    def open_shards(self) -> Collection[int]:
        """See ``ShardState``."""
        return self.stream.open_shards

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: the sessions that leave carry their lists."""

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        self.stream.close_shards(shards)

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: sessions get their open identifiers; others are removed."""
        await self.stream.load_shards(shards)
        came = frozenset(shards)
        gone = [one.key for one in self._stored(came) if not self._is_open(one)]
        for start in range(0, len(gone), REMOVED_TOGETHER_MAX):
            items: list[Item] = [(key, None) for key in gone[start:][:REMOVED_TOGETHER_MAX]]
            try:
                self.stream.put(items, _ignore)
            except GatewayError as error:  # they stay, and are looked at again
                log.info("identifiers of QoS 2 stay for now", error=str(error))
        for session in self._sessions():
            if session.inbound.listed:
                self._forget_unstored(session)

    def _stored(self, came: frozenset[int]) -> list[_Stored]:
        """Return the identifiers that came, or whose sessions did."""
        count = self._placement.shard_count
        return [
            one
            for stream in self.stream.partitions
            for one in map(_parsed, stream.values.items())
            if stream.number % count in came
            or shard_of_client(DEFAULT_NAMESPACE, one.client_id, count) in came
        ]

    def _is_open(self, one: _Stored) -> bool:
        """Return whether an identifier waits for PUBREL, or that is another node's to say."""
        session = self._sessions().find(one.client_id)
        if session is None:
            count = self._placement.shard_count
            home = shard_of_client(DEFAULT_NAMESPACE, one.client_id, count)
            return home not in self.open_shards
        found = session.inbound
        present = found.shards.get(one.packet_id)
        if present is not None and present == one.shard:
            return True
        is_since_list = found.listed_to < one.stamp
        is_earlier_owners = self._is_single or one.stamp[0] < self._epoch_of(one.client_id)
        if present is None and is_since_list and is_earlier_owners:
            found.shards[one.packet_id] = one.shard
            return True
        return False

    def _forget_unstored(self, session: SessionPort) -> None:
        """Forget what a state lists and the stream of an open shard has not: it was released."""
        found = session.inbound
        gone = [
            one
            for one in found.listed
            if found.shards[one] in self.open_shards
            and self.stream.get(inbound_key(session.client_id, one, found.shards[one])) is None
        ]
        if gone:
            found.release(gone)
            session.context.store.put_state(session)


def inbound_key(client_id: str, packet_id: int, shard: int = NO_SHARD) -> bytes:
    """Return the key of an inbound QoS 2 identifier."""
    key = client_id.encode() + b"\0" + packet_id.to_bytes(_ID_BYTES, "big")
    return key if shard == NO_SHARD else key + shard.to_bytes(_ID_BYTES, "big")


def _parsed(item: tuple[bytes, bytes]) -> _Stored:
    key, value = item
    client, _, rest = key.partition(b"\0")
    packet_id = int.from_bytes(rest[:_ID_BYTES], "big")
    shard = int.from_bytes(rest[_ID_BYTES:], "big") if rest[_ID_BYTES:] else NO_SHARD
    stamp = _STAMP.unpack(value) if value else (0, 0)
    return _Stored(key, client.decode(), packet_id, shard, stamp)


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore an error: an identifier that stays is looked at with the next load."""
