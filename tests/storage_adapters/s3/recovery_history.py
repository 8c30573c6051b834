"""Random work of nodes on one bucket, beside what clients were answered."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any, Final, NamedTuple

from gateway.testing.storage import make_entry
from storage_adapters.formats.footer import LOW_32, ROW_STRIDE
from storage_adapters.formats.segment import decode_segment_header
from storage_adapters.s3.bucket import ObjectStat
from storage_adapters.s3.merge_plan import PartRun, is_shared
from storage_adapters.s3.merge_round import PlannedObject
from storage_adapters.s3.merged_object import Builder, MergedObject, open_source, read_batch
from storage_adapters.s3.objects import ObjectHeader
from storage_adapters.s3.recovery_footers import add_facts, evaluate
from storage_adapters.s3.recovery_plan import Decision, FooterFacts, decide
from storage_adapters.s3.state import KIND_LOG, Catalog, Extent, PartitionState, StoredObject
from tests.storage_adapters.s3.merge_catalog import DATA_UUID, MergeCatalog, footer_of

PARTITIONS: Final = range(1, 5)
RESERVED: Final = 6  # numbers that a replaced node still has


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


def rows_of(world: MergeCatalog, state: PartitionState) -> list[tuple[int, int]]:
    """Return offsets of a partition's batches at or after its log start, by their objects."""
    found = []
    for extent in state.extents:
        rows = footer_of(world.data[extent.number]).rows
        for row in range(extent.first_row, extent.first_row + extent.row_count):
            base_offset, span = rows[row * ROW_STRIDE], rows[row * ROW_STRIDE + 3]
            if base_offset + (span & LOW_32) > state.start:
                found.append((base_offset, base_offset + (span & LOW_32)))
    return found


class ReplacedNode(NamedTuple):
    """Catalog of a replaced node, and one past the last of its numbers."""

    world: MergeCatalog
    numbers_end: int


class History:
    """Random work of nodes on one bucket, with crashes, beside what a client was answered.

    ``dead``: objects that were live once; ``never_committed``: appends that a crash left;
    ``in_vain``: merged objects without a commit, by round. ``dropped``: batches (partition, offset)
    that a compaction without a commit left out, which a recovery may keep or drop.
    """

    def __init__(self) -> None:
        self.world = MergeCatalog()
        self.replaced: list[ReplacedNode] = []
        self.untold: set[int] = set()
        self.dead: set[int] = set()
        self.never_committed: set[int] = set()
        self.in_vain: list[list[int]] = []
        self.dropped: set[tuple[int, int]] = set()

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
        self._replace_node()

    def _replace_node(self) -> None:
        """Start a new node. The old one may go on, but commits nothing."""
        world = self.world
        old = MergeCatalog(world.epoch)
        old.catalog, old.data = deepcopy(world.catalog), world.data
        old.next_number = world.next_number
        world.next_number += RESERVED
        self.replaced.append(ReplacedNode(old, world.next_number))
        world.epoch += 1

    def merge(self, choice: int) -> None:
        if inputs := self._inputs(self.world, choice):
            self.dead.update(o.number for o in inputs)
            self.world.merge(inputs, _own_bytes_min(choice))

    def merge_in_vain(self, choice: int) -> None:
        """Put some objects of a round, and commit nothing."""
        if inputs := self._inputs(self.world, choice):
            made = self.world.build(inputs, _own_bytes_min(choice))
            self._put_in_vain(made[: choice % (len(made) + 1)])

    def merge_when_replaced(self, choice: int) -> None:
        """Put some objects of a round as a replaced node, which knows no newer ones."""
        if not self.replaced:
            return
        old, numbers_end = self.replaced[choice % len(self.replaced)]
        inputs = self._inputs(old, choice >> 1)
        if not inputs or any(o.number not in old.data for o in inputs):
            return
        made = old.build(inputs, _own_bytes_min(choice))
        if any(one.stored.number >= numbers_end for one in made):
            return
        self._put_in_vain(made[: choice % (len(made) + 1)])

    def merge_while_bounds_move(self, choice: int) -> None:
        """Merge; before the commit a log start moves, or a partition is deleted."""
        world = self.world
        inputs = self._inputs(world, choice)
        if not inputs:
            return
        made = world.build(inputs, _own_bytes_min(choice))
        self.truncate(choice >> 2)
        self.delete(choice >> 3)
        committed = []
        for one in made:
            parts = [
                part for part in one.parts if _counts(world, part.partition_id, part.extent)
            ]
            if parts or not one.parts or one.stored.next_sequence > one.stored.first_sequence:
                ids = frozenset([part.partition_id for part in parts])
                committed.append(one._replace(stored=one.stored._replace(partition_ids=ids)))
            else:
                self._put_in_vain([one])
        world.replace(inputs, committed)
        self.dead.update(o.number for o in inputs)

    def _put_in_vain(self, made: Iterable[MergedObject]) -> None:
        numbers = []
        for one in made:
            self.world.data[one.stored.number] = b"".join(one.body)
            numbers.append(one.stored.number)
        self.in_vain.append(sorted(numbers))

    @staticmethod
    def _inputs(world: MergeCatalog, choice: int) -> list[StoredObject]:
        """Return log objects, or shared ones, that are neighbours."""
        is_log = bool(choice & 1)
        chain = sorted(
            (
                o
                for o in world.catalog.objects.values()
                if (o.kind == KIND_LOG if is_log else is_shared(o))
            ),
            key=lambda o: (o.first_sequence, o.next_sequence, o.number),
        )
        # Of the log the first is passed over only if it is damaged.
        chain = chain[(choice >> 9 if is_log else choice >> 5) % 3 :]
        inputs = chain[: 1 + (choice >> 1) % 4]
        for index, (one, other) in enumerate(pairwise(inputs), 1):
            if one.next_sequence != other.first_sequence:
                inputs = inputs[:index]
                break
        if not inputs or inputs[-1].next_sequence == inputs[0].first_sequence:
            return []
        return inputs

    def merge_own(self, choice: int) -> None:
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
        self._replace_parts(partition_id, inputs, made, in_vain=bool(choice & 64))

    def compact(self, choice: int) -> None:
        """Rewrite a partition's part of a merged object without some batches."""
        world, partition_id = self.world, 1 + choice % 4
        state = world.catalog.partition(partition_id)
        settled: list[Extent] = []
        for extent in state.extents:
            if world.catalog.objects[extent.number].kind == KIND_LOG:
                break
            settled.append(extent)
        settled = [extent for extent in settled if extent.end > state.start]
        if state.is_deleted or not settled:
            return
        extent = settled[(choice >> 2) % len(settled)]
        stored = world.catalog.objects[extent.number]
        made, dropped = self._compacted(partition_id, extent, stored, choice >> 5)
        if choice & 16:
            self.dropped.update((partition_id, base_offset) for base_offset in dropped)
        self._replace_parts(partition_id, [stored], made, in_vain=bool(choice & 16))

    def _compacted(
        self, partition_id: int, extent: Extent, stored: StoredObject, drops: int
    ) -> tuple[MergedObject, list[int]]:
        """Return an object as ``Rewriter`` makes it, and the offsets that are not in it."""
        world = self.world
        told = world.told(partition_id)
        source = open_source(stored, world.data[stored.number])
        place = ObjectHeader(DATA_UUID, world.take_number(), world.epoch, 1_000)
        builder = Builder(place, (stored.next_sequence, stored.next_sequence))
        alive, dropped = [], []
        for row in range(extent.first_row, extent.first_row + extent.row_count):
            base_offset, _, at, span = source.footer.rows[row * ROW_STRIDE :][:ROW_STRIDE]
            if base_offset + (span & LOW_32) <= told.start:
                continue
            alive.append(base_offset)
            if (drops >> len(alive)) & 1:
                dropped.append(base_offset)
            else:
                builder.add(read_batch(source, base_offset, at, span))
        first = extent.first
        if len(alive) < extent.row_count:
            first = max(first, min([told.start, *alive[:1]]))
        bounds = (min(first, extent.end), extent.end)
        builder.end_part(partition_id, bounds, told, None)
        return builder.finish(), dropped

    def _replace_parts(
        self,
        partition_id: int,
        inputs: Sequence[StoredObject],
        made: MergedObject,
        *,
        in_vain: bool,
    ) -> None:
        """Put an object in the place of a partition's parts of others."""
        if in_vain:
            self._put_in_vain([made])
            return
        shared = [o for o in inputs if is_shared(o) or len(o.partition_ids) > 1]
        own = [o for o in inputs if o not in shared]
        lost = {o.number: frozenset([partition_id]) for o in shared}
        self.world.replace(own, [made], lost)
        self.dead.update(o.number for o in own)

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
        self.dead.update(o.number for o in self.world.note())

    def sweep(self, choice: int) -> None:
        """Delete dead objects from the highest number down, and stop somewhere.

        What was live waits for what never was and has a lower number.
        """
        first = min(self.never_committed, default=self.world.next_number)
        allowed = {number for number in self.dead if number < first} | self.never_committed
        dead = sorted(allowed, reverse=True)
        for number in dead[: choice % (len(dead) + 1)]:
            self._remove(number)

    def sweep_some(self, choice: int) -> None:
        """Delete dead objects in any order: they died at different times, and readers hold some."""
        first = min(self.never_committed, default=self.world.next_number)
        allowed = {number for number in self.dead if number < first} | self.never_committed
        for index, number in enumerate(sorted(allowed)):
            if (choice >> index % 12) & 1:
                self._remove(number)

    def sweep_in_vain(self, choice: int) -> None:
        """Delete merged objects without a commit, of each round the lowest number first.

        Bounds that moved before are told by then.
        """
        self.dead.update(o.number for o in self.world.note(self.untold))
        self.untold = set()
        for index, numbers in enumerate(self.in_vain):
            for number in numbers[: (choice >> 2 * (index % 6)) & 3]:
                self._remove(number)
        self.in_vain = [
            [number for number in numbers if number in self.world.data]
            for numbers in self.in_vain
        ]

    def _remove(self, number: int) -> None:
        self.world.data.pop(number, None)
        self.dead.discard(number)
        self.never_committed.discard(number)

    def lose_index(self, _: int) -> None:
        """Recover the index from the bucket, and go on with it."""
        decision, facts = self.check()
        world = self.world
        world.catalog = catalog_of(decision, facts)
        world.next_sequence = decision.ends[0]
        self.replaced = []  # They may know of deletions that the bucket does not.
        self._replace_node()
        self.never_committed = {o.number for o in [*decision.stale, *decision.unproven]}
        self.dead = {o.number for o in decision.unused} - self.never_committed
        self.in_vain = []
        # A node that starts tells all of them again.
        states = world.catalog.partitions.values()
        self.untold = {s.partition_id for s in states if s.start or s.is_deleted}

    def check(self) -> tuple[Decision, FooterFacts]:
        """See that a recovery finds what was acknowledged."""
        world = self.world
        decision, facts = recover(world)
        found = catalog_of(decision, facts)
        for state in world.catalog.partitions.values():
            if state.is_deleted:
                assert state.partition_id in facts.deleted | self.untold
            else:
                self._check_partition(state, found.partition(state.partition_id), decision)
        assert not [m for m in decision.missing if m.partition_id not in self.untold]
        assert not [lost for lost in decision.uncovered if lost.partition_id not in self.untold]
        assert decision.ends[0] >= world.next_sequence
        ranges = sorted(
            (one.stored.first_sequence, one.stored.next_sequence)
            for one in decision.live
            if one.stored.kind == KIND_LOG or is_shared(one.stored)
        )
        assert all(one[1] <= other[0] for one, other in pairwise(ranges))
        return decision, facts

    def _check_partition(
        self, state: PartitionState, again: PartitionState, decision: Decision
    ) -> None:
        assert not again.is_deleted
        start = again.start
        assert start == state.start or (
            start < state.start and state.partition_id in self.untold
        )
        again.start = state.start
        expected, rows = [
            [
                row
                for row in rows_of(self.world, one)
                if (one.partition_id, row[0]) not in self.dropped
            ]
            for one in (state, again)
        ]
        assert rows[: len(expected)] == expected
        # What was put and never committed may be there, but then it is the log's whole end.
        assert len(rows) == len(expected) or decision.ends[0] > self.world.next_sequence
        again.start = start
        assert max(start, again.committed_end) >= max(state.start, state.committed_end)


def catalog_of(decision: Decision, facts: FooterFacts) -> Catalog:
    """Return what a node knows that starts after a recovery."""
    catalog = Catalog()
    for stored, parts in decision.live:
        catalog.objects[stored.number] = stored
        for partition_id, extent in parts:
            catalog.partition(partition_id).extents.append(extent)
    for partition_id in facts.deleted:
        catalog.partition(partition_id).is_deleted = True
    for partition_id, start in decision.starts.items():
        catalog.partition(partition_id).start = start
    for state in catalog.partitions.values():
        state.extents.sort()
        state.end = max(state.start, state.committed_end)
    return catalog


def _own_bytes_min(choice: int) -> int:
    return 200 + choice % 500


def _counts(world: MergeCatalog, partition_id: int, extent: Extent) -> bool:
    state = world.catalog.partition(partition_id)
    return not state.is_deleted and extent.end > state.start
