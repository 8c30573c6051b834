"""Positions that open transactions are to commit (KIP-98, KIP-447).

They lie in the stream of the committed positions, in the shard of their group, until their
transaction ends: then they become the group's positions, or go. A request for stable positions is
answered with a retriable error for a partition that has pending ones.

    key    0x05, group, topic uuid (16 bytes), partition number u32, producer id i64
    value  that of a position; empty when the group has committed another one since

Of a position that is committed outside of the transaction and a pending one, the later counts.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from gateway.config.settings import GroupsConfig
from gateway.errors import Overloaded
from gateway.groups.cursor_keys import CURSOR_KEY, parse_group_key
from gateway.groups.model import GroupName
from gateway.streams import Item

PENDING_KEY: Final = b"\x05"
SUPERSEDED: Final = b""

_PRODUCER: Final = struct.Struct(">q")

Place = bytes
"""Key of a committed position: group, topic and partition."""


class EndedOffsets(NamedTuple):
    """Changes of the stream at the end of a transaction, and the positions that it commits."""

    items: list[Item]
    committed: list[tuple[Place, bytes]]


class PendingOffsets:
    """Pending positions of all groups of the node's shards.

    Bounded by their number and bytes, of one transaction and of all. Those of a shard that is
    loaded are kept in any case.
    """

    def __init__(self, config: GroupsConfig) -> None:
        self._config = config
        self.count = 0
        self.size_bytes = 0
        """Bytes of the keys and values of all."""
        self._by_producer: dict[int, dict[Place, bytes]] = {}
        self._by_place: dict[Place, set[int]] = {}
        self._by_group: dict[GroupName, set[Place]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_place)

    def check_room(self, producer_id: int, positions: Sequence[tuple[Place, bytes]]) -> None:
        """Check that a transaction's positions, with their values, may be added.

        Error: ``Overloaded``.
        """
        config = self._config
        known = self._by_producer.get(producer_id, {})
        added = dict(positions)
        count = len(added.keys() - known.keys())
        if len(known) + count > config.transaction_offsets_max:
            raise Overloaded(
                f"a transaction has at most {config.transaction_offsets_max} positions"
            )
        if count and self.count + count > config.pending_offsets_max:
            raise Overloaded(f"{self.count} positions of transactions are pending")
        size_bytes = self.size_bytes + sum(
            _size_bytes(place, value) - _size_bytes(place, known.get(place))
            for place, value in added.items()
        )
        if size_bytes > max(config.pending_offsets_bytes_max, self.size_bytes):
            raise Overloaded(f"{self.size_bytes} bytes of transactions' positions are pending")

    def is_unstable(self, place: Place) -> bool:
        """Return whether an open transaction may change a position."""
        return place in self._by_place

    def has_group(self, group: GroupName) -> bool:
        """Return whether an open transaction may change a position of a group."""
        return group in self._by_group

    def superseded(self, places: Iterable[Place]) -> list[Item]:
        """Return what is to be stored beside positions committed outside of transactions."""
        return [
            (pending_key(place, producer_id), SUPERSEDED)
            for place in places
            for producer_id in self._by_place.get(place, ())
        ]

    def removed(self, places: Iterable[Place]) -> list[Item]:
        """Return what is to be stored beside the removal of positions."""
        return [
            (pending_key(place, producer_id), None)
            for place in places
            for producer_id in self._by_place.get(place, ())
        ]

    def groups(self) -> Collection[GroupName]:
        """Return the groups that have pending positions."""
        return self._by_group.keys()

    def places_of(self, group: GroupName) -> list[Place]:
        """Return the places of a group that have pending positions."""
        return list(self._by_group.get(group, ()))

    def ended(
        self, producer_id: int, groups: Collection[GroupName], *, is_commit: bool
    ) -> EndedOffsets:
        """Return what the end of a producer's transaction does in some groups.

        Nothing has changed yet.
        """
        items: list[Item] = []
        committed = []
        for place, value in self._by_producer.get(producer_id, {}).items():
            if parse_group_key(place, len(CURSOR_KEY))[0] not in groups:
                continue
            items.append((pending_key(place, producer_id), None))
            if is_commit and value != SUPERSEDED:
                committed.append((place, value))
        return EndedOffsets([*committed, *items], committed)

    def apply(self, items: Sequence[Item]) -> None:
        """Follow items of the stream, set or undone; other keys are ignored."""
        for key, value in items:
            if not key.startswith(PENDING_KEY):
                continue
            place, producer_id = parse_pending_key(key)
            group, _ = parse_group_key(place, len(CURSOR_KEY))
            own = self._by_producer.get(producer_id, {})
            before = own.get(place)
            self.size_bytes += _size_bytes(place, value) - _size_bytes(place, before)
            self.count += (value is not None) - (before is not None)
            if value is not None:
                self._by_producer.setdefault(producer_id, own)[place] = value
                self._by_place.setdefault(place, set()).add(producer_id)
                self._by_group.setdefault(group, set()).add(place)
            else:
                self._forget(place, group, producer_id)

    def close_groups(self, is_left: Callable[[GroupName], bool]) -> None:
        """Forget the positions of groups in shards that have left."""
        for group in [one for one in self._by_group if is_left(one)]:
            self.apply(self.removed(self.places_of(group)))

    def _forget(self, place: Place, group: GroupName, producer_id: int) -> None:
        own = self._by_producer.get(producer_id, {})
        own.pop(place, None)
        if not own:
            self._by_producer.pop(producer_id, None)
        producers = self._by_place.get(place, set())
        producers.discard(producer_id)
        if producers:
            return
        self._by_place.pop(place, None)
        places = self._by_group.get(group, set())
        places.discard(place)
        if not places:
            self._by_group.pop(group, None)


def _size_bytes(place: Place, value: bytes | None) -> int:
    """Return the bytes that a pending position counts for; 0 without one."""
    return 0 if value is None else len(place) + len(value)


def pending_key(place: Place, producer_id: int) -> bytes:
    """Return the key of a producer's pending position."""
    return PENDING_KEY + place[1:] + _PRODUCER.pack(producer_id)


def parse_pending_key(key: bytes) -> tuple[bytes, int]:
    """Return the group, topic and partition of a key as in keys of positions, and the producer."""
    (producer_id,) = _PRODUCER.unpack(key[-_PRODUCER.size :])
    return CURSOR_KEY + key[1 : -_PRODUCER.size], producer_id
