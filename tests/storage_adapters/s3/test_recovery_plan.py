"""A recovery uses the content of the bucket alone, whatever was begun and not finished."""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.testing.storage import make_entry
from storage_adapters.formats.log_ranges import first_sequence
from storage_adapters.s3.recovery_plan import Decision, Missing
from storage_adapters.s3.state import StoredObject
from tests.storage_adapters.s3.merge_catalog import MergeCatalog
from tests.storage_adapters.s3.recovery_history import History, recover
from tests.support.examples import examples


def numbers(objects: Iterable[StoredObject]) -> list[int]:
    return [o.number for o in objects]


def live_of(decision: Decision) -> list[int]:
    return [one.stored.number for one in decision.live]


def test_a_chain_of_log_objects_counts_whole() -> None:
    world = MergeCatalog()
    for n in range(3):
        world.log([make_entry((1, n))])

    decision, facts = recover(world)

    assert [one.stored for one in decision.live] == [
        stored._replace(etag="") for stored in world.catalog.objects.values()
    ]
    assert [part.extent for one in decision.live for part in one.parts] == (
        world.catalog.partition(1).extents
    )
    assert (decision.ends, decision.missing, decision.unused) == ({0: 4}, [], [])
    assert facts.identities[1].topic.name == "t1"


def test_what_lies_behind_a_gap_was_never_committed() -> None:
    world = MergeCatalog()
    stored = [world.log([make_entry((1, n))]) for n in range(4)]
    del world.data[stored[2].number]

    decision, _ = recover(world)

    assert live_of(decision) == [1, 2]
    assert (numbers(decision.unproven), numbers(decision.unused)) == ([4], [4])
    assert decision.ends == {0: 3}


def test_a_gap_where_an_object_is_damaged_is_a_loss_and_no_end() -> None:
    world = MergeCatalog()
    stored = [world.log([make_entry((1, n))]) for n in range(4)]
    del world.data[stored[2].number]

    decision, _ = recover(world, damaged_epochs=[1])

    assert live_of(decision) == [1, 2, 4]
    assert decision.missing == [Missing(1, 2, 3)]
    assert decision.ends == {0: 5}


@pytest.mark.parametrize(("merged_by", "appended_by"), [(1, 2), (2, 1)])
def test_a_damaged_merged_object_is_no_end_of_what_other_owners_appended(
    merged_by: int, appended_by: int
) -> None:
    world = MergeCatalog()
    inputs = [world.log([make_entry((1, n))]) for n in range(3)]
    world.epoch = appended_by
    rest = [world.log([make_entry((1, n))]) for n in (3, 4)]
    world.epoch = merged_by
    for number in [*world.merge(inputs), *numbers(inputs)]:
        del world.data[number]

    decision, _ = recover(world, damaged_epochs=[merged_by])

    assert live_of(decision) == numbers(rest)
    assert (decision.unproven, decision.starts, decision.ends) == ([], {1: 3}, {0: 6})


def test_what_a_replaced_node_put_is_stale() -> None:
    world = MergeCatalog()
    world.log([make_entry((1, 0))])
    world.log([make_entry((1, 1)), make_entry((2, 0))])  # Never committed.
    world.epoch, world.next_sequence = 2, 2
    world.log([make_entry((1, 1))])

    decision, _ = recover(world)

    assert live_of(decision) == [1, 3]
    assert numbers(decision.unused) == [2]
    assert decision.unproven == []


def test_stale_objects_stay_so_when_their_betters_are_merged() -> None:
    world = MergeCatalog()
    world.log([make_entry((1, 0))])
    world.log([make_entry((1, 1)), make_entry((2, 0))])  # Never committed.
    del world.catalog.objects[2]
    world.catalog.partition(1).extents.pop()
    world.catalog.partition(2).extents.pop()
    world.epoch, world.next_sequence = 2, 2
    world.log([make_entry((1, 1))])
    world.log([make_entry((1, 2))])
    inputs = list(world.catalog.objects.values())
    world.merge(inputs)
    for stored in inputs:
        del world.data[stored.number]

    decision, _ = recover(world)

    assert live_of(decision) == [5]
    assert numbers(decision.unused) == [2]


def test_a_stale_object_behind_the_merged_ones_does_not_go_on_from_them() -> None:
    world = MergeCatalog()
    world.log([make_entry((1, 0))])
    world.next_sequence = 3
    world.log([make_entry((1, 2))])  # Never committed: what was before it was not put.
    del world.catalog.objects[2]
    world.catalog.partition(1).extents.pop()
    world.epoch, world.next_sequence = 2, 2
    world.log([make_entry((1, 1))])
    world.merge(list(world.catalog.objects.values()))  # Up to where the stale one begins.

    decision, _ = recover(world)

    assert live_of(decision) == [4]
    assert numbers(decision.unused) == [1, 2, 3]
    assert decision.ends == {0: 3}


def test_what_two_replaced_nodes_put_in_vain_is_no_chain() -> None:
    world = MergeCatalog()
    world.log([make_entry((1, 0))])
    world.log([make_entry((1, 1), 3)])  # Never committed.
    world.epoch, world.next_sequence = 2, 2
    lost = world.log([make_entry((1, 1))])
    del world.data[lost.number]
    world.log([make_entry((1, 2), 4)])  # Never committed, since the one before it was not put.

    decision, _ = recover(world)

    assert live_of(decision) == [1]
    assert numbers(decision.unused) == [2, 4]
    assert numbers(decision.unproven) == [4]
    assert (decision.missing, decision.starts, decision.ends) == ([], {}, {0: 2})


def test_a_stale_object_does_not_take_the_place_of_a_damaged_one() -> None:
    world = MergeCatalog()
    world.log([make_entry((1, 0))])
    world.log([make_entry((1, 1), 3)])  # Never committed.
    world.epoch, world.next_sequence = 2, 2
    damaged = world.log([make_entry((1, 1))])
    world.log([make_entry((1, 2))])
    del world.data[damaged.number]

    decision, _ = recover(world, damaged_epochs=[2])

    assert live_of(decision) == [1, 4]
    assert decision.missing == [Missing(1, 1, 2)]


def test_merged_objects_win_over_what_they_were_made_of() -> None:
    world = MergeCatalog()
    inputs = [
        world.log([make_entry((1, n), size_bytes=900), make_entry((2, n))]) for n in (0, 1)
    ]
    made = world.merge(inputs, own_bytes_min=1_000)

    decision, _ = recover(world)

    assert live_of(decision) == sorted(made)
    assert numbers(decision.unused) == [1, 2]


def test_a_round_of_which_the_shared_object_is_missing_counts_in_part() -> None:
    world = MergeCatalog()
    inputs = [
        world.log([make_entry((1, n), size_bytes=900), make_entry((2, n))]) for n in (0, 1)
    ]
    own, _ = world.build(inputs, own_bytes_min=1_000)
    world.data[own.stored.number] = b"".join(own.body)

    decision, _ = recover(world)

    ids = {one.stored.number: one.stored.partition_ids for one in decision.live}
    assert ids == {1: {2}, 2: {2}, own.stored.number: {1}}
    assert decision.missing == []


def test_log_starts_and_deletions_are_told_by_any_footer() -> None:
    world = MergeCatalog()
    world.log([make_entry((1, 0), 9), make_entry((2, 0)), make_entry((3, 0), 5)])
    world.catalog.partition(1).start = 4
    world.catalog.partition(2).is_deleted = True
    world.catalog.partition(3).start = 5
    world.log([make_entry((1, 9))], told=[1, 2, 3])

    decision, facts = recover(world)

    assert decision.starts == {1: 4, 3: 5}
    assert facts.deleted == {2}
    assert [one.stored.partition_ids for one in decision.live] == [{1}, {1}]


_OPS: list[Callable[[History, int], None]] = [
    History.append,
    History.append,
    History.append,
    History.crash,
    History.merge,
    History.merge,
    History.merge_in_vain,
    History.merge_when_replaced,
    History.merge_while_bounds_move,
    History.merge_own,
    History.compact,
    History.truncate,
    History.delete,
    History.note,
    History.sweep,
    History.sweep_some,
    History.sweep_in_vain,
    History.lose_index,
]


@settings(max_examples=examples(400, in_soak=20_000), deadline=None)
@example([(History.crash, 212), (History.append, 0), (History.append, 601), (History.merge, 3)])
@example(
    [
        (History.crash, 212),
        (History.append, 0),
        (History.append, 601),
        (History.merge, 3),
        (History.sweep, 2),
    ]
)
@example([(History.crash, 140), (History.crash, 89)])
@example([(History.crash, 2249), (History.crash, 89)])
@example([(History.append, 0)] * 4 + [(History.merge, n) for n in (1, 3, 1, 404)])
@example(
    [
        (History.append, 0),
        (History.append, 250),
        (History.append, 18),
        (History.merge_in_vain, 325),
        (History.merge_in_vain, 75),
    ]
)
@given(st.lists(st.tuples(st.sampled_from(_OPS), st.integers(0, 1 << 12)), max_size=40))
def test_whatever_happened_what_was_acknowledged_is_found(
    history: list[tuple[Callable[[History, int], None], int]],
) -> None:
    work = History()
    for act, choice in history:
        act(work, choice)

    work.check()


# --- Many logs


def second_log(world: MergeCatalog) -> MergeCatalog:
    """Return another writer of the same bucket."""
    other = MergeCatalog(epoch=world.epoch + 1)
    other.catalog, other.data = world.catalog, world.data
    other.next_number, other.next_sequence = 100, first_sequence(1)
    return other


def test_a_gap_in_a_log_is_the_end_of_that_log_alone() -> None:
    world = MergeCatalog()
    other = second_log(world)
    lost = [world.log([make_entry((1, n))]) for n in range(3)][1]
    rest = [other.log([make_entry((2, n))]) for n in range(3)]
    del world.data[lost.number]

    decision, _ = recover(world)

    assert live_of(decision) == [1, *numbers(rest)]
    assert numbers(decision.unproven) == [3]
    assert decision.ends == {0: 2, 1: first_sequence(1) + 3}


def test_a_damaged_object_is_no_loss_in_another_log() -> None:
    world = MergeCatalog()
    other = second_log(world)
    lost = [world.log([make_entry((1, n))]) for n in range(3)][1]
    broken = [other.log([make_entry((2, n))]) for n in range(3)][1]
    for stored in (lost, broken):
        del world.data[stored.number]

    decision, _ = recover(world, damaged_epochs=[other.epoch])

    assert numbers(decision.unproven) == [3]
    assert live_of(decision) == [1, 100, 102]
    assert decision.missing == [Missing(2, 1, 2)]


def test_behind_the_end_of_a_log_nothing_counts_and_the_other_log_goes_on() -> None:
    world = MergeCatalog()
    other = second_log(world)
    world.log([make_entry((1, 0))])
    world.log([make_entry((1, 1)), make_entry((1, 2))])  # Never committed.
    world.epoch, world.next_sequence = 5, 2
    world.log([])
    rest = other.log([make_entry((1, 1))])

    decision, _ = recover(world)

    assert live_of(decision) == [1, 3, rest.number]
    assert numbers(decision.stale) == [2]
    assert (decision.missing, decision.uncovered) == ([], [])
    assert decision.ends == {0: 2, 1: first_sequence(1) + 1}


def test_merges_of_one_log_replace_nothing_of_another() -> None:
    world = MergeCatalog()
    other = second_log(world)
    inputs = [world.log([make_entry((1, n))]) for n in range(3)]
    rest = [other.log([make_entry((1, n))]) for n in range(3, 5)]
    made = world.merge(inputs)
    for stored in inputs:
        del world.data[stored.number]

    decision, _ = recover(world)

    assert live_of(decision) == [*made, *numbers(rest)]
    assert decision.ends == {0: 4, 1: first_sequence(1) + 2}
