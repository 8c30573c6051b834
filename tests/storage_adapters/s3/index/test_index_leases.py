"""Unused objects are deleted later, and never while a reader outside may still need them."""

from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from gateway.clock import ManualClock
from storage_adapters.s3.change import Change
from storage_adapters.s3.index import Index, Ownership
from tests.storage_adapters.s3.index.changes import OpenIndex, added, live, new_object

TTL_MS = 10_000


@pytest.fixture
def owned(index: Index) -> Ownership:
    return index.take_over(1, reserve=3)


def kill(index: Index, owned: Ownership, number: int) -> None:
    index.commit(owned.epoch, added(number))
    index.commit(owned.epoch, Change(gone=(number,)))


def deletable(index: Index, clock: ManualClock, *, limit: int = 100) -> list[int]:
    clock.advance(1)  # "before" leaves this very millisecond out
    return [number for number, _ in index.dead(before_unix_ms=clock.unix_ms(), limit=limit)]


# --- Leases


def test_a_lease_keeps_what_dies_after_it(
    index: Index, owned: Ownership, open_index: OpenIndex, clock: ManualClock
) -> None:
    before, after, _ = owned.reserved
    kill(index, owned, before)
    reader = open_index(create=False)
    reader.take_lease("spark", ttl_ms=TTL_MS)
    kill(index, owned, after)

    assert deletable(index, clock) == [before]
    assert reader.rows(after) is not None


def test_what_a_lease_keeps_does_not_depend_on_clocks(
    index: Index, owned: Ownership, url: str
) -> None:
    """A reader whose clock runs ahead takes its lease "later" than the object dies."""
    clock_ahead = ManualClock(ManualClock().unix_ms() + TTL_MS)
    reader = Index(url, clock=clock_ahead)
    reader.open(create=False)
    reader.take_lease("spark", ttl_ms=TTL_MS)
    reader.close()

    kill(index, owned, 1)

    assert index.dead(before_unix_ms=1 << 60, limit=9) == []


def test_a_lease_lasts_by_clocks_as_they_are(
    index: Index, owned: Ownership, url: str, clock: ManualClock
) -> None:
    """The owner's clock was an hour ahead, and was set right; a reader's always was."""
    reader_clock = ManualClock(clock.unix_ms())
    clock.step_unix(3_600_000)
    clock.unix_ms()
    clock.step_unix(-3_600_000)
    reader = Index(url, clock=reader_clock)
    reader.open(create=False)
    lease = reader.take_lease("spark", ttl_ms=TTL_MS)
    kill(index, owned, 1)

    index.take_lease("another", ttl_ms=1)  # removes those that are over

    clock.advance(TTL_MS - 1)
    assert index.dead(before_unix_ms=1 << 60, limit=9) == []
    assert index.extend_lease(lease, ttl_ms=TTL_MS)
    reader.close()


def test_a_lease_ends_by_itself(index: Index, owned: Ownership, clock: ManualClock) -> None:
    index.take_lease("spark", ttl_ms=TTL_MS)
    kill(index, owned, 1)
    clock.advance(TTL_MS - 2)
    assert deletable(index, clock) == []

    assert deletable(index, clock) == [1]


def test_a_lease_that_is_given_back_keeps_nothing(
    index: Index, owned: Ownership, clock: ManualClock
) -> None:
    first = index.take_lease("spark", ttl_ms=TTL_MS)
    second = index.take_lease("spark", ttl_ms=TTL_MS)
    kill(index, owned, 1)

    index.end_lease(first)
    assert deletable(index, clock) == []
    index.end_lease(second)
    index.end_lease(second)

    assert deletable(index, clock) == [1]


def test_a_lease_is_extended_while_it_is_not_over(
    index: Index, owned: Ownership, clock: ManualClock
) -> None:
    lease = index.take_lease("spark", ttl_ms=TTL_MS)
    kill(index, owned, 1)
    clock.advance(TTL_MS - 1)
    assert index.extend_lease(lease, ttl_ms=TTL_MS)
    clock.advance(TTL_MS - 2)
    assert deletable(index, clock) == []
    clock.advance(1)

    assert not index.extend_lease(lease, ttl_ms=TTL_MS)
    assert not index.extend_lease("unknown", ttl_ms=TTL_MS)
    assert deletable(index, clock) == [1]


def test_leases_that_are_over_are_removed_with_the_next_one(
    index: Index, url: str, clock: ManualClock
) -> None:
    index.take_lease("spark", ttl_ms=TTL_MS)
    clock.advance(TTL_MS)

    last = index.take_lease("a name of any length" * 100, ttl_ms=TTL_MS)

    engine = create_engine(url)
    with engine.begin() as connection:
        assert list(connection.scalars(text("SELECT id FROM s3_leases"))) == [last]
    engine.dispose()


def test_the_oldest_lease_counts(index: Index, owned: Ownership, clock: ManualClock) -> None:
    for number in owned.reserved:
        index.take_lease("spark", ttl_ms=TTL_MS * number)
        kill(index, owned, number)

    clock.advance(TTL_MS)
    assert deletable(index, clock) == [1]
    clock.advance(TTL_MS)
    assert deletable(index, clock) == [1, 2]


def test_a_lease_outlives_a_restore(index: Index, owned: Ownership, clock: ManualClock) -> None:
    kill(index, owned, 1)
    index.take_lease("spark", ttl_ms=TTL_MS)
    index.restore(
        [new_object(2)],
        [],
        data_uuid=uuid4(),
        bucket="bucket",
        prefix="",
        ends={0: 1},
        next_number=3,
        epoch=1,
    )
    owner = index.take_over(1, reserve=0)

    index.commit(owner.epoch, Change(gone=(2,)))

    assert deletable(index, clock) == []
    clock.advance(TTL_MS)
    assert deletable(index, clock) == [2]


# --- The dead


def test_the_dead_stay_for_a_while(index: Index, owned: Ownership, clock: ManualClock) -> None:
    died_ms = clock.unix_ms()
    kill(index, owned, 1)

    assert index.dead(before_unix_ms=died_ms, limit=9) == []
    assert index.dead(before_unix_ms=died_ms + 1, limit=9) == [(1, owned.epoch)]


def test_what_was_live_waits_for_what_a_replaced_node_never_committed(
    index: Index, owned: Ownership, clock: ManualClock
) -> None:
    later = index.take_over(2, reserve=2)
    kill(index, later, 4)
    assert deletable(index, clock) == []  # 1 to 3 may be in the bucket, and stale by 4 alone

    index.sweep_pending(
        later.epoch, before_unix_ms=clock.unix_ms() + 1, keep=frozenset(later.reserved)
    )
    assert deletable(index, clock) == owned.reserved == [1, 2, 3]

    index.forget([1, 2, 3])
    assert deletable(index, clock) == [4]


def test_the_dead_come_a_few_at_a_time(
    index: Index, owned: Ownership, clock: ManualClock
) -> None:
    for number in reversed(owned.reserved):
        kill(index, owned, number)

    assert deletable(index, clock, limit=2) == [1, 2]
    index.forget([1, 2])
    assert deletable(index, clock, limit=2) == [3]
    assert index.rows(2) is None


def test_only_the_dead_are_forgotten(index: Index, owned: Ownership) -> None:
    index.commit(owned.epoch, added(1))

    index.forget([1, 2, 3, 99])

    assert live(index) == [1]
    index.commit(owned.epoch, added(2, 3))
    assert live(index) == [1, 2, 3]


# --- Pending rows


def test_rows_that_the_owner_means_to_use_are_never_swept(
    index: Index, owned: Ownership, clock: ManualClock
) -> None:
    clock.advance(1_000_000)

    swept = index.sweep_pending(
        owned.epoch, before_unix_ms=clock.unix_ms(), keep=frozenset(owned.reserved)
    )

    assert swept == 0
    index.commit(owned.epoch, added(*owned.reserved))


def test_rows_of_older_owners_are_swept_after_the_delay(
    index: Index, owned: Ownership, clock: ManualClock
) -> None:
    reserved_ms = clock.unix_ms()
    clock.advance(500)
    owner = index.take_over(2, reserve=1)
    keep = frozenset(owner.reserved)

    early = index.sweep_pending(owner.epoch, before_unix_ms=reserved_ms, keep=keep)
    late = index.sweep_pending(owner.epoch, before_unix_ms=reserved_ms + 1, keep=keep)

    assert (early, late) == (0, 3)
    assert index.dead(before_unix_ms=clock.unix_ms(), limit=9) == []  # they died just now
    clock.advance(1)
    dead = index.dead(before_unix_ms=clock.unix_ms(), limit=9)
    assert dead == [(number, owned.epoch) for number in owned.reserved]


def test_a_lease_does_not_keep_what_was_never_live(
    index: Index, owned: Ownership, clock: ManualClock
) -> None:
    index.take_lease("spark", ttl_ms=TTL_MS)
    clock.advance(1)

    index.sweep_pending(owned.epoch, before_unix_ms=clock.unix_ms(), keep=frozenset())

    assert deletable(index, clock) == owned.reserved


def test_live_objects_are_not_swept(index: Index, owned: Ownership) -> None:
    index.commit(owned.epoch, added(*owned.reserved))

    swept = index.sweep_pending(owned.epoch, before_unix_ms=1 << 60, keep=frozenset())

    assert swept == 0
    assert live(index) == owned.reserved
