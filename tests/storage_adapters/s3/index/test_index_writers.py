"""Many writers share an index: each commits to a log of its own, and is fenced by itself."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from gateway.clock import ManualClock
from storage_adapters.formats.log_ranges import first_sequence
from storage_adapters.s3.change import BoundsRow, Change
from storage_adapters.s3.index import Fenced, Index, Ownership
from storage_adapters.s3.index_owners import LogOwner
from tests.storage_adapters.s3.index.changes import OpenIndex, added, live, new_object, part

WITHIN_S = 60


def commit_one(index: Index, owned: Ownership, at: int = 0) -> int:
    """Commit an object of a writer's next number; return it."""
    number = owned.reserved[at]
    index.commit(owned.epoch, added(number, epoch=owned.epoch))
    return number


# --- Logs


def test_each_node_has_a_log_and_none_fences_another(index: Index) -> None:
    first, second = index.join(1, reserve=1), index.join(2, reserve=1)

    numbers = [commit_one(index, first), commit_one(index, second)]

    assert live(index) == sorted(numbers)
    assert [first.next_sequence, second.next_sequence] == [1, first_sequence(1)]
    assert len(set(numbers)) == 2


def test_a_node_that_starts_again_goes_on_with_its_log_and_fences_its_earlier_start(
    index: Index,
) -> None:
    index.join(1, reserve=0)
    earlier, other = index.join(2, reserve=2), index.join(3, reserve=1)
    index.commit(earlier.epoch, Change(next_sequence=earlier.next_sequence + 5))

    later = index.join(2, reserve=1)

    assert later.next_sequence == earlier.next_sequence + 5
    with pytest.raises(Fenced):
        commit_one(index, earlier)
    commit_one(index, other)
    commit_one(index, later)


def test_the_data_of_a_single_node_become_its_log(index: Index) -> None:
    alone = index.take_over(7, reserve=0)
    index.commit(alone.epoch, Change(next_sequence=9))

    assert index.join(7, reserve=0).next_sequence == 9
    assert index.join(8, reserve=0).next_sequence == first_sequence(1)


def test_a_fenced_writer_commits_nothing_and_the_others_go_on(index: Index) -> None:
    dead, alive = index.join(1, reserve=2), index.join(2, reserve=1)
    commit_one(index, dead)
    index.commit(dead.epoch, Change(next_sequence=2))

    ended = index.fence(0)

    assert ended.next_sequence == 2
    with pytest.raises(Fenced):
        commit_one(index, dead, 1)
    with pytest.raises(Fenced):
        index.sweep_pending(dead.epoch, before_unix_ms=1 << 60, keep=frozenset())
    commit_one(index, alive)


def test_a_log_that_was_left_is_the_next_new_nodes(index: Index) -> None:
    index.join(1, reserve=0)
    index.join(2, reserve=0)
    index.leave(index.fence(0).epoch)

    owned = index.join(3, reserve=0)

    assert index.writers() == [
        LogOwner(0, 3, owned.epoch, 1),
        LogOwner(1, 2, 2, first_sequence(1)),
    ]


def test_a_take_over_fences_all(index: Index) -> None:
    writers = [index.join(node_id, reserve=1) for node_id in (1, 2, 3)]

    sole = index.take_over(4, reserve=1)

    for writer in writers:
        with pytest.raises(Fenced, match="has taken over"):
            commit_one(index, writer)
    assert commit_one(index, sole) == 4
    epochs = [row.epoch for row in index.writers()]
    assert len(set(epochs)) == 3
    assert sole.epoch == epochs[0] == max(epochs)


def test_a_restored_index_has_the_end_of_each_log_and_fences_all(index: Index) -> None:
    writers = [index.join(node_id, reserve=1) for node_id in (1, 2)]

    index.restore(
        [],
        [],
        data_uuid=uuid4(),
        bucket="bucket",
        prefix="",
        ends={0: 5, 2: first_sequence(2) + 7},
        next_number=9,
        epoch=12,
    )

    for writer in writers:
        with pytest.raises(Fenced):
            commit_one(index, writer)
    assert [index.join(node_id, reserve=1) for node_id in (8, 9)] == [
        (15, 5, [9]),
        (16, first_sequence(2) + 7, [10]),
    ]


# --- What writers share


def test_only_own_and_fenced_writers_pending_rows_are_swept(
    index: Index, clock: ManualClock
) -> None:
    idle, dead, sweeper = [index.join(node_id, reserve=2) for node_id in (1, 2, 3)]
    index.fence(1)
    clock.advance(1)

    swept = index.sweep_pending(
        sweeper.epoch,
        before_unix_ms=clock.unix_ms(),
        keep=frozenset(sweeper.reserved[:1]),
    )

    assert swept == len(dead.reserved) + 1
    commit_one(index, idle)
    commit_one(index, sweeper)


def test_what_was_live_waits_for_what_any_fenced_writer_never_committed(
    index: Index, clock: ManualClock
) -> None:
    dead, alive = index.join(1, reserve=1), index.join(2, reserve=1)
    number = commit_one(index, alive)
    index.commit(alive.epoch, Change(gone=(number,)))
    index.fence(0)
    clock.advance(1)

    assert index.dead(before_unix_ms=clock.unix_ms(), limit=9) == []

    index.sweep_pending(alive.epoch, before_unix_ms=clock.unix_ms(), keep=frozenset())
    clock.advance(1)
    found = index.dead(before_unix_ms=clock.unix_ms(), limit=9)
    assert [one for one, _ in found] == dead.reserved


def test_a_log_start_never_goes_back_nor_does_a_deletion(index: Index) -> None:
    owner, merger = index.join(1, reserve=0), index.join(2, reserve=0)
    newer = (BoundsRow(1, 9, 50, is_deleted=False), BoundsRow(2, 3, 0, is_deleted=True))
    index.commit(owner.epoch, Change(bounds=newer))

    older = (BoundsRow(1, 4, 70, is_deleted=False), BoundsRow(2, 3, 0, is_deleted=False))
    index.commit(merger.epoch, Change(bounds=older))

    assert index.load().bounds == list(newer)


def test_parts_are_taken_out_of_what_the_index_has(index: Index) -> None:
    owned = index.join(1, reserve=1)
    [number] = owned.reserved
    parts = [part(number, partition_id) for partition_id in (7, 8, 9)]
    index.commit(owned.epoch, Change((new_object(number, *parts),)))

    index.commit(owned.epoch, Change(shrunk=((number, frozenset([7])),)))
    index.commit(owned.epoch, Change(shrunk=((number, frozenset([9, 7])),)))

    [(stored, left)] = index.load().objects
    assert (stored.partition_ids, left) == (frozenset([8]), [parts[1]])


def test_other_nodes_see_what_has_changed(index: Index) -> None:
    owned = index.join(1, reserve=4)
    one, two, three, four = owned.reserved
    index.commit(owned.epoch, added(one, two))
    index.commit(owned.epoch, Change((new_object(three, part(three, 7), part(three, 8)),)))
    known = dict.fromkeys((one, two, three), 0)

    whole = added(four)._replace(gone=(one,), shrunk=((three, frozenset([7])),))
    index.commit(owned.epoch, whole._replace(bounds=(BoundsRow(8, 3, 0, is_deleted=False),)))

    assert index.changes(0, {}).objects == []  # its own log
    changes = index.changes(1, known)
    assert {stored.number: parts for stored, parts in changes.objects} == {
        three: [part(three, 8)],
        four: [part(four)],
    }
    assert list(changes.gone) == [one]
    assert index.changes(1, {two: 0, **changes.deaths}).objects == []
    assert changes.bounds == [BoundsRow(8, 3, 0, is_deleted=False)]


@pytest.mark.postgres
def test_writers_do_not_wait_for_each_other(
    empty_postgres_url: str, clock: ManualClock
) -> None:
    index = Index(empty_postgres_url, clock=clock)
    index.open()
    index.join(1, reserve=0)
    other = index.join(2, reserve=2)
    engine = create_engine(empty_postgres_url)
    with engine.begin() as first, ThreadPoolExecutor(1) as thread:
        first.execute(text("UPDATE s3_owners SET next_sequence = 9 WHERE slot = 0"))
        assert thread.submit(commit_one, index, other).result(WITHIN_S) == other.reserved[0]
    engine.dispose()
    index.close()


def test_writers_that_commit_at_once_lose_nothing(index: Index, open_index: OpenIndex) -> None:
    def work(node_id: int) -> list[int]:
        own = open_index()
        owned = own.join(node_id, reserve=2)
        numbers = owned.reserved
        done: list[int] = []
        for count in range(1, 16):
            number = numbers.pop(0)
            change = added(number, epoch=owned.epoch, reserve=1)
            more = Change(gone=(done[-1],) if count % 5 == 0 else ())
            moved = (BoundsRow(1, node_id * count, 0, is_deleted=False),)
            whole = change._replace(gone=more.gone, bounds=moved)
            numbers += own.commit(owned.epoch, whole)
            if more.gone:
                done.pop()
            done.append(number)
        return done

    with ThreadPoolExecutor(4) as threads:
        done = [number for some in threads.map(work, range(1, 5)) for number in some]

    assert live(index) == sorted(done)
    assert index.load().bounds[0].start == 60


# --- An index of one writer


def test_an_index_of_format_2_goes_on(index: Index, url: str, open_index: OpenIndex) -> None:
    """Its one row has the counters, too; a reader outside takes leases as before."""
    owned = index.take_over(1, reserve=2)
    index.commit(owned.epoch, added(*owned.reserved)._replace(next_sequence=23))
    index.commit(owned.epoch, Change(gone=(1,)))
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in (
            "UPDATE s3_owners SET next_number = 3, deaths = 1 WHERE slot = 0",
            "DELETE FROM s3_owners WHERE slot = -1",
            "UPDATE s3_index SET format = 2",
        ):
            connection.execute(text(statement))
    reader = open_index(create=False)
    reader.take_lease("spark", ttl_ms=10_000)

    again = open_index().take_over(1, reserve=1)

    assert again == (2, 23, [3])
    index.commit(again.epoch, Change(gone=(2,)))
    dead = [number for number, _ in index.dead(before_unix_ms=1 << 60, limit=9)]
    assert dead == [1]  # the lease keeps what died after it
    with engine.begin() as connection:
        assert connection.scalar(text("SELECT format FROM s3_index")) == 3
    engine.dispose()
