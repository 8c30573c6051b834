"""Bounds of the positions that open transactions are to commit."""

from uuid import UUID

import pytest

from gateway.config.settings import GroupsConfig
from gateway.errors import Overloaded
from gateway.groups.cursor_keys import CURSOR_KEY, encode_where, group_key
from gateway.groups.model import GroupName
from gateway.groups.pending_offsets import SUPERSEDED, PendingOffsets, pending_key

MIB = 1_048_576
GROUP = GroupName("default", "g")
PLACES = [
    CURSOR_KEY + group_key(GROUP) + encode_where(UUID(int=7), number) for number in range(5)
]


def pending_of(**bounds: int) -> PendingOffsets:
    return PendingOffsets(GroupsConfig(**bounds))


def add(pending: PendingOffsets, producer_id: int, place: bytes, value: bytes = b"v") -> None:
    """Add a position as a commit does: checked, then applied."""
    pending.check_room(producer_id, [(place, value)])
    pending.apply([(pending_key(place, producer_id), value)])


def end(pending: PendingOffsets, producer_id: int) -> None:
    pending.apply(pending.ended(producer_id, [GROUP], is_commit=True).items)


def test_positions_of_one_transaction_are_bounded() -> None:
    pending = pending_of(transaction_offsets_max=2)
    add(pending, 1, PLACES[0])
    add(pending, 1, PLACES[1])

    with pytest.raises(Overloaded, match="at most 2"):
        add(pending, 1, PLACES[2])
    add(pending, 2, PLACES[2])


def test_positions_of_all_transactions_are_bounded() -> None:
    pending = pending_of(pending_offsets_max=3)
    for producer_id in (1, 2, 3):
        add(pending, producer_id, PLACES[0])

    with pytest.raises(Overloaded, match="3 positions"):
        add(pending, 4, PLACES[1])
    add(pending, 3, PLACES[0], b"again")
    end(pending, 2)
    add(pending, 4, PLACES[1])
    assert pending.count == 3


def test_bytes_of_all_transactions_are_bounded() -> None:
    pending = pending_of(pending_offsets_bytes_max=MIB)
    large = b"x" * (MIB // 2 - 100)
    add(pending, 1, PLACES[0], large)
    add(pending, 2, PLACES[0], large)

    with pytest.raises(Overloaded, match="bytes"):
        add(pending, 3, PLACES[0], large)
    add(pending, 2, PLACES[0], large)
    end(pending, 1)
    add(pending, 3, PLACES[0], large)
    assert pending.size_bytes == 2 * (len(PLACES[0]) + len(large))


def test_positions_that_were_loaded_are_kept_above_the_bound() -> None:
    pending = pending_of(pending_offsets_max=1)
    pending.apply([(pending_key(place, 1), b"v") for place in PLACES])

    add(pending, 1, PLACES[0], b"w")
    with pytest.raises(Overloaded):
        add(pending, 2, PLACES[0])


def test_nothing_is_counted_when_all_has_gone() -> None:
    pending = pending_of()
    for place in PLACES:
        add(pending, 1, place, b"value")
    pending.apply(pending.superseded(PLACES[:2]))
    superseded = pending.size_bytes
    pending.apply(pending.removed(PLACES[:1]))
    pending.apply(pending.removed(PLACES[:1]))
    end(pending, 1)

    assert superseded == 5 * len(PLACES[0]) + 3 * len(b"value") + 2 * len(SUPERSEDED)
    assert (pending.count, pending.size_bytes) == (0, 0)
    assert not pending
