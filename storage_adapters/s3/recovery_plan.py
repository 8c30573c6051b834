"""Which objects of a bucket count, when the index that knew is lost. Pure.

What is there says enough, because of the order in which things are put:

- Objects of appends are committed in the order of their sequences, so those that count are a chain.
  One behind a gap was never committed. One whose sequences reach into those of a later epoch's was
  put by a node that had been replaced.
- A shared object stands for all log objects within its sequences: what they held is in it, in own
  objects that were put before it, in newer objects, or is told to be below a log start or deleted.
- Of merged objects the newest (by epoch, then number) wins where two answer for the same offsets:
  it was made of what was live then. That holds for one that was put and never committed, too: what
  it was made of is the same. Merged objects win over log objects.
- Log starts only move up: the highest that any footer tells is right, and what is deleted stays so.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from gateway.model import PartitionIdentity
from storage_adapters.s3.change import ObjectPart
from storage_adapters.s3.merge_plan import is_shared
from storage_adapters.s3.state import KIND_LOG, Extent, StoredObject

FIRST_SEQUENCE: Final = 1  # of the first append of all (``index_tables.make``)
_NO_SEQUENCE: Final = 1 << 62


class SeenObject(NamedTuple):
    """An object of the bucket, by its header and footer; its parts in order of partition."""

    stored: StoredObject
    parts: list[ObjectPart]


class Facts:
    """What all footers together say of partitions."""

    __slots__ = ("deleted", "identities", "starts")

    def __init__(self) -> None:
        self.starts: dict[int, int] = {}
        self.deleted: set[int] = set()
        self.identities: dict[int, PartitionIdentity] = {}

    def note(self, partition_id: int, start: int) -> None:
        """Note a log start."""
        self.starts[partition_id] = max(start, self.starts.get(partition_id, 0))


class Missing(NamedTuple):
    """Offsets ``first`` to before ``end`` of a partition that no object answers for."""

    partition_id: int
    first: int
    end: int


class Decision(NamedTuple):
    """``live``: with the parts that count, lowest number first. ``unused``: all others.

    ``unproven``: those of the unused that lie behind a gap. ``missing``: damage or loss.
    """

    live: list[SeenObject]
    unused: list[StoredObject]
    unproven: list[StoredObject]
    missing: list[Missing]
    starts: dict[int, int]
    next_sequence: int


def decide(
    seen: Sequence[SeenObject], facts: Facts, damaged_epochs: Collection[int] = ()
) -> Decision:
    """Say what counts of ``seen``. ``damaged_epochs``: of objects that cannot be read.

    A gap in an epoch of which an object is damaged is taken for that object's place.
    """
    merged = [one for one in seen if one.stored.kind != KIND_LOG]
    shared = _newest_shared([one.stored for one in merged if is_shared(one.stored)])
    logs = [one for one in seen if one.stored.kind == KIND_LOG]
    chain, unproven, next_sequence = _chain(
        [one.stored for one in logs], shared, damaged_epochs
    )
    in_chain = frozenset([stored.number for stored in chain])
    ranked = sorted(merged, key=_rank, reverse=True)
    ranked += [one for one in logs if one.stored.number in in_chain]
    chosen = _choose(ranked, facts)
    kept = in_chain.union(chosen, [stored.number for stored in shared])
    live = [
        SeenObject(one.stored._replace(partition_ids=_ids(parts)), parts)
        for one in sorted(seen, key=_number)
        if one.stored.number in kept
        for parts in [chosen.get(one.stored.number, [])]
    ]
    missing, starts = _look(live, facts)
    return Decision(
        live,
        [one.stored for one in sorted(seen, key=_number) if one.stored.number not in kept],
        unproven,
        missing,
        starts,
        next_sequence,
    )


def _number(one: SeenObject) -> int:
    return one.stored.number


def _rank(one: SeenObject) -> tuple[int, int]:
    return one.stored.epoch, one.stored.number


def _ids(parts: Iterable[ObjectPart]) -> frozenset[int]:
    return frozenset([part.partition_id for part in parts])


def _newest_shared(shared: Iterable[StoredObject]) -> list[StoredObject]:
    """Return the shared objects that no newer ones stand for, in order of sequence."""
    chosen: list[StoredObject] = []
    for stored in sorted(shared, key=attrgetter("epoch", "number"), reverse=True):
        if not any(_overlap(stored, other) for other in chosen):
            chosen.append(stored)
    return sorted(chosen, key=attrgetter("first_sequence", "next_sequence"))


def _overlap(one: StoredObject, other: StoredObject) -> bool:
    """Whether two ranges of sequences have one in common; an empty one lies within another."""
    return one.first_sequence < other.next_sequence and other.first_sequence < one.next_sequence


def _chain(
    logs: Sequence[StoredObject],
    shared: Sequence[StoredObject],
    damaged_epochs: Collection[int],
) -> tuple[list[StoredObject], list[StoredObject], int]:
    """Return the log objects that were committed, those behind a gap, and the next sequence."""
    covering = [one for one in shared if one.first_sequence < one.next_sequence]
    # Those that were merged still tell what was stale beside them.
    rest = [
        one for one in _not_stale(logs) if not any(_overlap(one, cover) for cover in covering)
    ]
    ordered = sorted([*rest, *covering], key=attrgetter("first_sequence"))
    last_cover = max([cover.next_sequence for cover in covering], default=0)
    chain: list[StoredObject] = []
    end = FIRST_SEQUENCE
    for index, stored in enumerate(ordered):
        is_gap = stored.first_sequence != end
        if is_gap and end >= last_cover and stored.epoch not in damaged_epochs:
            return chain, list(ordered[index:]), end
        end = stored.next_sequence
        if stored.kind == KIND_LOG:
            chain.append(stored)
    return chain, [], end


def _not_stale(logs: Sequence[StoredObject]) -> Iterator[StoredObject]:
    """Yield the log objects whose sequences do not reach into those of a later epoch."""
    by_epoch: dict[int, list[StoredObject]] = defaultdict(list)
    for stored in logs:
        by_epoch[stored.epoch].append(stored)
    ceiling = _NO_SEQUENCE
    for epoch in sorted(by_epoch, reverse=True):
        kept = [stored for stored in by_epoch[epoch] if stored.next_sequence <= ceiling]
        yield from kept
        ceiling = min([ceiling, *[stored.first_sequence for stored in kept]])


def _choose(ranked: Iterable[SeenObject], facts: Facts) -> dict[int, list[ObjectPart]]:
    """Return the parts that count by object; earlier objects of ``ranked`` win."""
    taken: dict[int, list[Extent]] = defaultdict(list)
    chosen: dict[int, list[ObjectPart]] = {}
    for stored, parts in ranked:
        for part in parts:
            partition_id, extent = part
            if partition_id in facts.deleted or extent.end <= facts.starts.get(partition_id, 0):
                continue
            if _is_free(taken[partition_id], extent):
                insort(taken[partition_id], extent)
                chosen.setdefault(stored.number, []).append(part)
    return chosen


def _is_free(taken: Sequence[Extent], extent: Extent) -> bool:
    """Whether nobody answers for any of the extent's offsets; ``taken`` are in order."""
    index = bisect_left(taken, extent.first, key=attrgetter("first"))
    if index and taken[index - 1].end > extent.first:
        return False
    return index == len(taken) or taken[index].first >= extent.end


def _look(live: Iterable[SeenObject], facts: Facts) -> tuple[list[Missing], dict[int, int]]:
    """Return holes between extents, and the log starts by what is there."""
    extents: dict[int, list[Extent]] = defaultdict(list)
    for _, parts in live:
        for partition_id, extent in parts:
            extents[partition_id].append(extent)
    missing: list[Missing] = []
    starts: Mapping[int, int] = {i: s for i, s in facts.starts.items() if s}
    lowest: dict[int, int] = {}
    for partition_id, found in sorted(extents.items()):
        found.sort()
        lowest[partition_id] = max(found[0].first, facts.starts.get(partition_id, 0))
        missing += [
            Missing(partition_id, one.end, other.first)
            for one, other in pairwise(found)
            if one.end < other.first
        ]
    return missing, {**starts, **{i: start for i, start in lowest.items() if start}}
