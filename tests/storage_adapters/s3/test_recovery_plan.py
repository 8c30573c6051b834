"""A recovery uses the content of the bucket alone, whatever was begun and not finished."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.testing.storage import make_entry
from storage_adapters.formats.footer import LOW_32, ROW_STRIDE
from storage_adapters.formats.segment import decode_segment_header
from storage_adapters.s3.bucket import ObjectStat
from storage_adapters.s3.merge_plan import PartRun, is_shared
from storage_adapters.s3.merge_round import PlannedObject
from storage_adapters.s3.recovery_footers import add_facts, evaluate
from storage_adapters.s3.recovery_plan import Decision, FooterFacts, Missing, decide
from storage_adapters.s3.state import KIND_LOG, Extent, StoredObject
from tests.storage_adapters.s3.merge_catalog import MergeCatalog, footer_of
from tests.support.examples import examples

PARTITIONS = range(1, 5)


def recover(
    world: MergeCatalog, damaged_epochs: Iterable[int] = ()
) -> tuple[Decision, FooterFacts]:
    """Return what the objects in the dictionary say."""
    facts, seen = FooterFacts(), []
    for data in world.data.values():
        found = evaluate(
            decode_segment_header(data), footer_of(data), ObjectStat("", len(data), "")
        )
        add_facts(facts, found)
        seen.append(found.seen)
    return decide(seen, facts, frozenset(damaged_epochs)), facts


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
    assert (decision.next_sequence, decision.missing, decision.unused) == (4, [], [])
    assert facts.identities[1].topic.name == "t1"


def test_what_lies_behind_a_gap_was_never_committed() -> None:
    world = MergeCatalog()
    stored = [world.log([make_entry((1, n))]) for n in range(4)]
    del world.data[stored[2].number]

    decision, _ = recover(world)

    assert live_of(decision) == [1, 2]
    assert (numbers(decision.unproven), numbers(decision.unused)) == ([4], [4])
    assert decision.next_sequence == 3


def test_a_gap_where_an_object_is_damaged_is_a_loss_and_no_end() -> None:
    world = MergeCatalog()
    stored = [world.log([make_entry((1, n))]) for n in range(4)]
    del world.data[stored[2].number]

    decision, _ = recover(world, damaged_epochs=[1])

    assert live_of(decision) == [1, 2, 4]
    assert decision.missing == [Missing(1, 2, 3)]
    assert decision.next_sequence == 5


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
    assert decision.next_sequence == 3


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
    assert (decision.missing, decision.starts, decision.next_sequence) == ([], {}, 2)


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


class History:
    """Random work of nodes on one bucket, with crashes, beside what a client was answered."""

    def __init__(self) -> None:
        self.world = MergeCatalog()
        self.untold: set[int] = set()
        self.dead: set[int] = set()
        self.never_committed: set[int] = set()

    # Each takes a number to decide by.

    def append(self, choice: int) -> None:
        world = self.world
        self.world.log(self._entries(choice), told=self.untold)
        self.untold = set()
        assert world.next_sequence

    def _entries(self, choice: int) -> list[Any]:
        ends = {i: self.world.catalog.partition(i).end for i in PARTITIONS}
        alive = [i for i in PARTITIONS if not self.world.catalog.partition(i).is_deleted]
        entries = []
        for step in range(1 + choice % 3):
            ids = [i for i in alive if (choice >> (2 + i + step)) & 1] or alive[:1]
            if ids:
                entries.append(
                    make_entry([(i, ends[i]) for i in ids], 1 + step, size_bytes=150)
                )
                for i in ids:
                    ends[i] += 1 + step
        return entries

    def crash(self, choice: int) -> None:
        """Put objects that are never committed, some with a gap before, and start a new node."""
        world = self.world
        before = {i: (s.end, list(s.extents)) for i, s in world.catalog.partitions.items()}
        sequence = world.next_sequence
        for step in range(choice % 3):
            entries = self._entries(choice >> step)
            if entries:
                stored = world.log(entries)
                del world.catalog.objects[stored.number]
                self.never_committed.add(stored.number)
                if (choice >> (4 + step)) & 1:
                    del world.data[stored.number]
        for i, (end, extents) in before.items():
            state = world.catalog.partition(i)
            state.end, state.extents = end, extents
        for i in world.catalog.partitions.keys() - before.keys():
            world.catalog.partition(i).extents = []
            world.catalog.partition(i).end = 0
        world.next_sequence = sequence
        world.epoch += 1

    def merge(self, choice: int, *, commit: bool = True) -> None:
        world = self.world
        kind = KIND_LOG if choice & 1 else None
        chain = sorted(
            (
                o
                for o in world.catalog.objects.values()
                if (o.kind == kind if kind else is_shared(o))
            ),
            key=lambda o: (o.first_sequence, o.next_sequence, o.number),
        )
        if kind is None:
            chain = chain[(choice >> 5) % 3 :]
        inputs = chain[: 1 + (choice >> 1) % 4]
        for index, (one, other) in enumerate(pairwise(inputs), 1):
            if one.next_sequence != other.first_sequence:
                inputs = inputs[:index]
                break
        if not inputs or inputs[-1].next_sequence == inputs[0].first_sequence:
            return
        own_bytes_min = 200 + choice % 500
        if commit:
            self.dead.update(numbers(inputs))
            world.merge(inputs, own_bytes_min)
            return
        made = world.build(inputs, own_bytes_min)
        for new in made[: choice % (len(made) + 1)]:
            world.data[new.stored.number] = b"".join(new.body)
            self.dead.add(new.stored.number)

    def merge_in_vain(self, choice: int) -> None:
        self.merge(choice, commit=False)

    def rewrite(self, choice: int) -> None:
        """Merge a partition's merged objects that are neighbours into one."""
        world, partition_id = self.world, 1 + choice % 4
        state = world.catalog.partition(partition_id)
        run: list[Extent] = []
        for extent in state.extents[(choice >> 2) % 3 :]:
            stored = world.catalog.objects[extent.number]
            if stored.kind == KIND_LOG or (run and run[-1].end != extent.first):
                break
            run.append(extent)
        run = run[: 1 + (choice >> 4) % 3]
        if not run or state.is_deleted or run[-1].end <= state.start:
            return
        run = [extent for extent in run if extent.end > state.start]
        inputs = [world.catalog.objects[extent.number] for extent in run]
        upto = max(o.next_sequence for o in inputs)
        planned = PlannedObject(
            [PartRun(partition_id, tuple(run))], {partition_id}, (upto, upto)
        )
        told = {partition_id: world.told(partition_id)}
        made = world.make(planned, world.sources(inputs), told)
        if choice & 64:
            world.data[made.stored.number] = b"".join(made.body)
            self.dead.add(made.stored.number)
            return
        shared = [o for o in inputs if is_shared(o) or len(o.partition_ids) > 1]
        own = [o for o in inputs if o not in shared]
        world.replace(own, [made], {o.number: frozenset([partition_id]) for o in shared})
        self.dead.update(numbers(own))

    def truncate(self, choice: int) -> None:
        state = self.world.catalog.partition(1 + choice % 4)
        if not state.is_deleted and state.end:
            state.start = max(state.start, (choice >> 2) % (state.end + 1))
            state.extents = [extent for extent in state.extents if extent.end > state.start]
            self.untold.add(state.partition_id)

    def delete(self, choice: int) -> None:
        if choice % 3 == 0:
            state = self.world.catalog.partition(1 + (choice >> 2) % 4)
            state.is_deleted, state.extents = True, []
            self.untold.add(state.partition_id)

    def note(self, _: int) -> None:
        """Let own objects go that nobody needs; a note in the bucket says what they said."""
        self.dead.update(numbers(self.world.note()))

    def sweep(self, choice: int) -> None:
        """Delete dead objects from the highest number down, and stop somewhere.

        What was live waits for what never was and has a lower number.
        """
        first = min(self.never_committed, default=self.world.next_number)
        allowed = {number for number in self.dead if number < first} | self.never_committed
        dead = sorted(allowed, reverse=True)
        for number in dead[: choice % (len(dead) + 1)]:
            self.world.data.pop(number, None)
            self.dead.discard(number)
            self.never_committed.discard(number)


_OPS: list[Callable[[History, int], None]] = [
    History.append,
    History.append,
    History.append,
    History.crash,
    History.merge,
    History.merge,
    History.merge_in_vain,
    History.rewrite,
    History.truncate,
    History.delete,
    History.note,
    History.sweep,
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
@given(st.lists(st.tuples(st.sampled_from(_OPS), st.integers(0, 1 << 12)), max_size=40))
def test_whatever_happened_what_was_acknowledged_is_found(
    history: list[tuple[Callable[[History, int], None], int]],
) -> None:
    work = History()
    for act, choice in history:
        act(work, choice)
    world = work.world

    decision, facts = recover(world)

    found = MergeCatalog()
    for stored, parts in decision.live:
        found.catalog.objects[stored.number] = stored
        for partition_id, extent in parts:
            found.catalog.partition(partition_id).extents.append(extent)
    for state in world.catalog.partitions.values():
        i = state.partition_id
        if state.is_deleted:
            assert i in facts.deleted or i in work.untold
            continue
        again = found.catalog.partition(i)
        again.extents.sort()
        expected = [row for row in _rows(world, world, i) if row[1] > state.start]
        assert i not in facts.deleted
        rows = [row for row in _rows(world, found, i) if row[1] > state.start]
        assert rows[: len(expected)] == expected
        # What was put and never committed may be there, but then it is the log's whole end.
        assert len(rows) == len(expected) or decision.next_sequence > world.next_sequence
        start = decision.starts.get(i, 0)
        assert start == state.start or (start < state.start and i in work.untold)
        assert max(start, again.committed_end) >= max(state.start, state.committed_end)
    assert not [m for m in decision.missing if m.partition_id not in work.untold]
    assert decision.next_sequence >= world.next_sequence


def _rows(
    data: MergeCatalog, catalog: MergeCatalog, partition_id: int
) -> list[tuple[int, int]]:
    """Return offsets of a partition's batches, whose bytes are in their objects."""
    found = []
    for extent in catalog.catalog.partition(partition_id).extents:
        rows = footer_of(data.data[extent.number]).rows
        for row in range(extent.first_row, extent.first_row + extent.row_count):
            base_offset, span = rows[row * ROW_STRIDE], rows[row * ROW_STRIDE + 3]
            found.append((base_offset, base_offset + (span & LOW_32)))
    return found
