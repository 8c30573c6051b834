"""Choice of objects to merge: order, bounds, and how often a byte is written again."""

from math import log
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_adapters.s3.merge_plan import (
    EXTENTS_MAX,
    GROWTH,
    PartRun,
    dead_own,
    group_inputs,
    group_runs,
    half_dead,
    is_shared,
    log_round,
    next_age_ms,
    own_round,
    part_runs,
    shared_round,
)
from storage_adapters.s3.state import KIND_SETTLED, Catalog, StoredObject
from tests.storage_adapters.s3.merge_catalog import CONFIG, make_extent, make_stored
from tests.support.examples import examples

ALL = 1 << 40


def _logs(count: int, **changes: Any) -> list[StoredObject]:
    return [make_stored(n, (n, n + 1))._replace(**changes) for n in range(1, count + 1)]


def _round(logs: list[StoredObject], **options: Any) -> list[StoredObject]:
    catalog = Catalog()
    catalog.objects.update({o.number: o for o in logs})
    options = {"released": ALL, "now_unix_ms": 0, **options}
    return log_round(catalog, CONFIG, **options)


def _numbers(objects: list[StoredObject]) -> list[int]:
    return [o.number for o in objects]


def test_enough_objects_are_merged_oldest_first() -> None:
    logs = _logs(4)
    assert _numbers(_round(logs[::-1])) == [1, 2, 3, 4]
    assert _round(logs[:3], released=ALL, now_unix_ms=0) == []


def test_what_a_scan_may_ask_for_stays() -> None:
    logs = _logs(5)
    assert _round(logs, released=4, now_unix_ms=0) == []
    assert _numbers(_round(logs, released=5, now_unix_ms=0)) == [1, 2, 3, 4]


def test_enough_bytes_are_merged_at_once() -> None:
    assert len(_round(_logs(2, size_bytes=500_000), released=ALL, now_unix_ms=0)) == 2
    assert _round(_logs(2, size_bytes=499_999), released=ALL, now_unix_ms=0) == []


def test_two_that_are_old_are_merged() -> None:
    logs = _logs(2, changed_unix_ms=1_000)
    assert _round(logs, released=ALL, now_unix_ms=60_999) == []
    assert len(_round(logs, released=ALL, now_unix_ms=61_000)) == 2
    assert next_age_ms(logs, CONFIG, released=ALL, now_unix_ms=60_999) == 1
    assert _round(logs[:1], released=ALL, now_unix_ms=61_000) == []
    assert next_age_ms(logs[:1], CONFIG, released=ALL, now_unix_ms=0) is None


def test_a_round_is_bounded() -> None:
    logs = _logs(5, size_bytes=800_000)
    assert _numbers(_round(logs, released=ALL, now_unix_ms=0)) == [1, 2]
    huge = _logs(2, size_bytes=3_000_000)
    assert _numbers(_round(huge, released=ALL, now_unix_ms=0)) == [1]


def test_a_round_replaces_a_bounded_number_of_extents() -> None:
    ids = frozenset(range(EXTENTS_MAX // 4))
    assert _numbers(_round(_logs(9, partition_ids=ids))) == [1, 2, 3, 4]
    many = frozenset(range(EXTENTS_MAX))
    assert _numbers(_round(_logs(9, partition_ids=many))) == [1, 2]  # one alone gains nothing


def test_a_round_never_goes_over_a_gap_or_a_damaged_object() -> None:
    logs = _logs(9)
    assert _numbers(_round(logs, released=ALL, now_unix_ms=0, skip={3})) == [*range(4, 10)]
    without = [*logs[:3], *logs[4:]]
    assert _numbers(_round(without, released=ALL, now_unix_ms=0)) == [*range(5, 10)]


def _shared(sizes: list[int]) -> list[StoredObject]:
    return [
        make_stored(n, (n, n + 1), kind=KIND_SETTLED, size_bytes=size)
        for n, size in enumerate(sizes)
    ]


def test_shared_neighbours_alike_in_size_are_merged() -> None:
    assert len(shared_round(_shared([1_000] * 4), CONFIG)) == 4
    assert shared_round(_shared([1_000] * 3), CONFIG) == []
    # One that is most of the run is left as it is; those behind it have their turn.
    assert _numbers(shared_round(_shared([90_000] + [1_000] * 4), CONFIG)) == [1, 2, 3, 4]
    assert shared_round(_shared([1_900_000] + [90_000] * 3), CONFIG) == []


def test_own_objects_are_no_neighbours_of_shared_ones() -> None:
    own = make_stored(9, (2, 2), kind=KIND_SETTLED, size_bytes=1_000)
    note = make_stored(8, (2, 2), kind=KIND_SETTLED, size_bytes=200, partition_ids=())
    assert (is_shared(own), is_shared(note)) == (False, True)
    found = shared_round([*_shared([300] * 4), own, note], CONFIG)
    assert _numbers(found) == [0, 1, 8, 2, 3]


@settings(max_examples=examples(30, in_soak=20_000), deadline=None)
@given(st.lists(st.integers(200, 60_000), min_size=20, max_size=300))
def test_each_byte_is_rewritten_a_bounded_number_of_times(sizes: list[int]) -> None:
    live: list[StoredObject] = []
    rewritten: dict[
        int, list[tuple[int, int]]
    ] = {}  # number -> (first size, times) of what is in
    number = 0
    for sequence, size in enumerate(sizes):
        number += 1
        live.append(
            make_stored(number, (sequence, sequence + 1), kind=KIND_SETTLED, size_bytes=size)
        )
        rewritten[number] = [(size, 0)]
        while run := shared_round(live, CONFIG):
            number += 1
            total = sum(o.size_bytes for o in run)
            sequences = run[0].first_sequence, run[-1].next_sequence
            live = [o for o in live if o not in run]
            live.append(make_stored(number, sequences, kind=KIND_SETTLED, size_bytes=total))
            rewritten[number] = [(s, t + 1) for o in run for s, t in rewritten.pop(o.number)]
    for found in rewritten.values():
        for size, times in found:
            assert times <= log(CONFIG.merge_bytes_max / size, GROWTH)
    assert all(o.size_bytes <= CONFIG.merge_bytes_max for o in live)


def _catalog(*pieces: tuple[int, int, int, StoredObject]) -> Catalog:
    catalog = Catalog()
    for partition_id, first, end, stored in pieces:
        catalog.objects[stored.number] = stored
        catalog.partition(partition_id).extents.append(make_extent(first, end, stored.number))
    return catalog


def _own(number: int, size_bytes: int = 1_000) -> StoredObject:
    return make_stored(number, (5, 5), kind=KIND_SETTLED, size_bytes=size_bytes)


def test_small_own_objects_of_a_partition_are_merged() -> None:
    catalog = _catalog(*[(1, n, n + 1, _own(n)) for n in range(4)])
    assert _numbers(own_round(catalog, catalog.partition(1), CONFIG)) == [0, 1, 2, 3]
    catalog = _catalog(*[(1, n, n + 1, _own(n)) for n in range(3)])
    assert own_round(catalog, catalog.partition(1), CONFIG) == []


@pytest.mark.parametrize("between", [_own(2, 4_096), make_stored(2, (5, 6), kind=KIND_SETTLED)])
def test_small_own_objects_are_not_merged_past_others(between: StoredObject) -> None:
    objects = [_own(n) for n in range(5)]
    objects[2] = between
    catalog = _catalog(*[(1, n, n + 1, o) for n, o in enumerate(objects)])
    assert own_round(catalog, catalog.partition(1), CONFIG) == []


def test_what_is_below_the_log_start_or_deleted_is_left_out() -> None:
    logs = _logs(2)
    catalog = _catalog((1, 0, 5, logs[0]), (1, 5, 9, logs[1]), (2, 0, 3, logs[1]))
    logs = [o._replace(partition_ids=frozenset({1, 2})) for o in logs]
    catalog.partition(1).start = 5
    catalog.partition(2).is_deleted = True

    runs = part_runs(catalog, logs)

    assert runs == [PartRun(1, (make_extent(5, 9, 2),))]


def test_pieces_with_others_between_are_apart() -> None:
    first, between, last = _own(1), _own(2), _own(3)
    catalog = _catalog((1, 0, 5, first), (1, 5, 9, between), (1, 9, 12, last))

    runs = part_runs(catalog, [first, last])

    assert [(run.extents[0].first, run.extents[-1].end) for run in runs] == [(0, 5), (9, 12)]
    grouping = group_runs(runs, 1_000)
    assert (grouping.shared, grouping.own) == ([runs[0]], [[runs[1]]])


def test_large_partitions_have_objects_of_their_own() -> None:
    runs = [PartRun(i, (make_extent(0, 5, 1, size),)) for i, size in enumerate([99, 100, 101])]
    grouping = group_runs(runs, 100)
    assert (grouping.shared, grouping.own) == (runs[:1], [[run] for run in runs[1:]])


def test_a_shared_object_that_would_be_too_large_is_split() -> None:
    runs = [PartRun(i, (make_extent(0, 5, 1, 40),)) for i in range(5)]
    grouping = group_runs(runs, 100, 100)
    assert (grouping.own, grouping.shared) == ([runs[:2], runs[2:4]], runs[4:])


def test_a_batch_for_many_partitions_counts_once() -> None:
    logs = _logs(4, size_bytes=10_000)
    logs = [o._replace(partition_ids=frozenset(range(9))) for o in logs]
    catalog = Catalog()
    catalog.objects.update({o.number: o for o in logs})
    for stored in logs:
        for partition_id in range(9):
            extent = make_extent(stored.number, stored.number + 1, stored.number, 100_000)
            catalog.partition(partition_id).extents.append(extent)
    found = log_round(catalog, CONFIG, released=ALL, now_unix_ms=0)
    assert _numbers(found) == [1, 2, 3, 4]
    grouping = group_inputs(catalog, found, 1_000)
    assert (len(grouping.shared), grouping.own) == (9, [])


def test_half_dead_objects_and_dead_own_ones_are_found() -> None:
    shared = make_stored(1, (0, 5), kind=KIND_SETTLED, size_bytes=250, partition_ids=(1, 2))
    catalog = _catalog((1, 0, 5, shared), (2, 0, 5, shared), (3, 0, 5, _own(2)))
    assert (half_dead(catalog), dead_own(catalog)) == ([], [])

    catalog.partition(2).start = 5
    catalog.partition(3).is_deleted = True

    assert (_numbers(half_dead(catalog)), _numbers(dead_own(catalog))) == ([1], [2])
    assert half_dead(catalog, skip={1}) == []
