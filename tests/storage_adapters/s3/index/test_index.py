"""A commit of the index is all there or not at all, and only its owner's."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import event

from gateway.clock import ManualClock
from gateway.sql.engines import FILE_NAME, engine_url
from storage_adapters.s3.change import Change
from storage_adapters.s3.index import Fenced, Index, PendingLost
from tests.storage_adapters.s3.index.changes import (
    OpenIndex,
    added,
    bounds,
    live,
    new_object,
    part,
)
from tests.support.waiting import wait_until

# --- Commits


def test_a_commit_is_there_after_a_restart(index: Index, open_index: OpenIndex) -> None:
    owned = index.take_over(1, reserve=2)
    first, second = owned.reserved
    change = Change(
        added=(new_object(first, part(first), part(first, 9, 400)), new_object(second)),
        bounds=(bounds(7), bounds(9, is_deleted=True)),
        next_sequence=23,
    )
    index.commit(owned.epoch, change)
    index.close()

    again = open_index()

    loaded = again.load()
    assert loaded.objects == [(new.stored, new.parts) for new in change.added]
    assert loaded.bounds == list(change.bounds)
    assert again.rows(first) == change.added[0].rows
    assert again.rows(999) is None
    assert again.take_over(1, reserve=0).next_sequence == 23


def test_numbers_are_never_reserved_twice(index: Index) -> None:
    owned = index.take_over(1, reserve=3)
    more = index.commit(owned.epoch, Change(reserve=2))
    later = index.take_over(2, reserve=1)
    even_more = index.commit(later.epoch, added(*later.reserved, epoch=2, reserve=1))

    assert [*owned.reserved, *more, *later.reserved, *even_more] == [1, 2, 3, 4, 5, 6, 7]


def test_the_sequence_stays_where_a_change_does_not_move_it(index: Index) -> None:
    owned = index.take_over(1, reserve=0)
    assert owned.next_sequence == 1
    index.commit(owned.epoch, Change(next_sequence=50))

    index.commit(owned.epoch, Change(bounds=(bounds(1),)))

    assert index.take_over(1, reserve=0).next_sequence == 50


def test_a_merge_replaces_its_inputs_in_one_commit(index: Index, clock: ManualClock) -> None:
    owned = index.take_over(1, reserve=4)
    one, two, three, merged = owned.reserved
    left = [part(three, 9, 700)]
    whole = new_object(three, part(three, 7), *left)
    index.commit(owned.epoch, Change(added=(*added(one, two).added, whole)))

    index.commit(
        owned.epoch,
        Change(
            added=(new_object(merged, part(merged, 7), part(merged, 8)),),
            gone=(one, two),
            shrunk=((three, frozenset([7])),),
        ),
    )

    loaded = {stored.number: parts for stored, parts in index.load().objects}
    assert loaded == {three: left, merged: [part(merged, 7), part(merged, 8)]}
    clock.advance(1)
    now_ms = clock.unix_ms()
    assert index.dead(before_unix_ms=now_ms, limit=9) == [(one, 1), (two, 1)]


def test_what_an_object_lost_is_not_among_its_partitions(index: Index) -> None:
    owned = index.take_over(1, reserve=1)
    [number] = owned.reserved
    whole = new_object(number, part(number, 7), part(number, 8))
    index.commit(owned.epoch, Change(added=(whole,)))

    index.commit(owned.epoch, Change(shrunk=((number, frozenset([7])),)))

    [(stored, _)] = index.load().objects
    assert stored.partition_ids == frozenset([8])


def test_bounds_are_replaced(index: Index) -> None:
    owned = index.take_over(1, reserve=0)
    index.commit(owned.epoch, Change(bounds=(bounds(5, 1), bounds(6, 2))))

    index.commit(owned.epoch, Change(bounds=(bounds(5, 3), bounds(5, 4, is_deleted=True))))

    assert index.load().bounds == [bounds(5, 4, is_deleted=True), bounds(6, 2)]


def test_only_bounds_of_deleted_partitions_are_forgotten(index: Index) -> None:
    owned = index.take_over(1, reserve=0)
    both = (bounds(5, is_deleted=True), bounds(6))
    index.commit(owned.epoch, Change(bounds=both))

    index.forget_bounds([5, 6, 7])

    assert index.load().bounds == [bounds(6)]


def test_as_many_statements_for_a_thousand_partitions_as_for_one(index: Index) -> None:
    owned = index.take_over(1, reserve=40)
    index.commit(owned.epoch, added(*owned.reserved[:20]))

    few = statements(index, owned.epoch, whole_change(owned.reserved, 1))
    many = statements(index, owned.epoch, whole_change(owned.reserved, 10))

    assert len(few) == len(many) <= 10


def statements(index: Index, epoch: int, change: Change) -> list[str]:
    executed: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        executed.append(statement)

    assert index._engine is not None
    event.listen(index._engine, "before_cursor_execute", note)
    index.commit(epoch, change)
    event.remove(index._engine, "before_cursor_execute", note)
    return executed


def whole_change(numbers: list[int], count: int) -> Change:
    old, new = numbers[:20], numbers[20:]
    first, end = (0, 1) if count == 1 else (1, 1 + count)
    return Change(
        added=tuple(
            new_object(number, *[part(number, 10 + at) for at in range(100 * count)])
            for number in new[first:end]
        ),
        gone=tuple(old[first:end]),
        shrunk=tuple((number, frozenset(range(8))) for number in old[-count:]),
        bounds=tuple(bounds(partition_id) for partition_id in range(100 * count)),
        next_sequence=count,
        reserve=count,
    )


def test_an_index_of_many_partitions_comes_back(index: Index) -> None:
    owned = index.take_over(1, reserve=1)
    [number] = owned.reserved
    parts = [part(number, at, at * 1_000) for at in range(2_000)]
    index.commit(owned.epoch, Change(added=(new_object(number, *parts),)))

    [(_, loaded)] = index.load().objects

    assert loaded == parts


# --- Fencing


def test_a_stale_owners_commit_changes_nothing(index: Index, open_index: OpenIndex) -> None:
    stale = index.take_over(1, reserve=2)
    index.commit(stale.epoch, added(stale.reserved[0]))
    other = open_index()
    owner = other.take_over(2, reserve=1)
    before = other.load()
    change = Change(
        added=(new_object(stale.reserved[1]),),
        gone=(stale.reserved[0],),
        shrunk=((stale.reserved[0], frozenset([7])),),
        bounds=(bounds(7),),
        next_sequence=99,
        reserve=5,
    )

    with pytest.raises(Fenced, match="node 2 has taken over"):
        index.commit(stale.epoch, change)
    with pytest.raises(Fenced):
        index.sweep_pending(stale.epoch, before_unix_ms=1 << 60, keep=frozenset())

    assert other.load() == before
    assert other.commit(owner.epoch, Change(reserve=1)) == [4]
    assert other.take_over(2, reserve=0).next_sequence == 1


def test_the_epoch_grows_with_every_start(index: Index) -> None:
    assert [index.take_over(1, reserve=0).epoch for _ in range(3)] == [1, 2, 3]


def test_an_object_of_another_epoch_is_not_turned_live(index: Index) -> None:
    old = index.take_over(1, reserve=1)
    new = index.take_over(1, reserve=0)

    with pytest.raises(PendingLost):
        index.commit(new.epoch, added(*old.reserved))

    assert live(index) == []


def test_take_overs_and_commits_come_one_behind_the_other(
    index: Index, open_index: OpenIndex
) -> None:
    """However they meet: what a take-over does not see is never committed after it."""
    rivals = [open_index() for _ in range(3)]

    def fight(at: int) -> int:
        done = 0
        for _ in range(10):
            owned = rivals[at].take_over(at, reserve=1)
            seen = set(live(rivals[at]))
            try:
                rivals[at].commit(owned.epoch, added(*owned.reserved, epoch=owned.epoch))
            except Fenced:
                assert owned.reserved[0] not in seen
                continue
            done += 1
        return done

    with ThreadPoolExecutor(3) as threads:
        done = sum(threads.map(fight, range(3)))

    assert len(live(index)) == done
    assert index.take_over(1, reserve=0).epoch == 31


def test_a_swept_objects_commit_is_refused_as_a_whole(index: Index, clock: ManualClock) -> None:
    owned = index.take_over(1, reserve=3)
    one, two, three = owned.reserved
    clock.advance(1)
    swept = index.sweep_pending(
        owned.epoch, before_unix_ms=clock.unix_ms(), keep=frozenset([one, three])
    )
    assert swept == 1

    with pytest.raises(PendingLost) as caught:
        index.commit(owned.epoch, added(one, two, three, reserve=1))

    assert caught.value.number == two
    assert live(index) == []
    assert index.commit(owned.epoch, Change(reserve=1)) == [4]


def test_doing_a_change_again_changes_nothing(index: Index, clock: ManualClock) -> None:
    owned = index.take_over(1, reserve=3)
    index.commit(owned.epoch, added(*owned.reserved[:2]))
    change = Change(
        added=(new_object(owned.reserved[2]),),
        gone=tuple(owned.reserved[:2]),
        bounds=(bounds(7),),
        next_sequence=8,
    )
    index.commit(owned.epoch, change)
    before = index.load()
    clock.advance(1_000)

    index.commit(owned.epoch, change)

    assert index.load() == before
    assert index.dead(before_unix_ms=clock.unix_ms(), limit=9) == [(1, 1), (2, 1)]


# --- Beside commits


def test_the_journal_of_a_nodes_index_is_copied_beside_its_commits(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.sql.checkpoints.PAUSE_S", 0.01)
    index = Index(engine_url("sqlite", tmp_path), clock=clock)
    index.open(commits_often=True)
    index.take_over(1, reserve=1)  # far from a journal that SQLite would copy by itself
    file = tmp_path / FILE_NAME
    wait_until(lambda: file.stat().st_size > 4_096, within_s=30, what="the tables in the file")
    index.close()
