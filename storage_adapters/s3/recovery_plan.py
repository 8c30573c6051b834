"""Decision which objects of a bucket are live after a loss of the index. Pure.

The bucket alone is enough, because of the order in which objects are put:

- Log objects are committed in the order of their sequences, so the live ones are a chain.
  One after a gap was never committed. One whose sequences overlap those of a later epoch was
  put by a node that had been replaced. So was one whose sequences end after the later epoch
  began: an object's header says where its owner took over, also when the first ones are missing.
- A shared object replaces all log objects within its sequences: their batches are in it, in own
  objects that were put before it, in newer objects, or recorded as deleted or below a log start.
- Of merged objects the newest (by epoch, then number) wins where two cover the same offsets:
  it was made of the objects live then. That holds for one that was put and never committed, too:
  it has the same content. Merged objects win over log objects.
- Log starts only move up: the highest in any footer is right. Deleted partitions stay deleted.
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
    """An object of the bucket by its header and footer, with its parts in order of partition."""

    stored: StoredObject
    parts: list[ObjectPart]


class FooterFacts:
    """Records of all footers about partitions, and of all headers about owners.

    ``began``: by epoch the sequence at which its owner took over, or a higher one.
    """

    __slots__ = ("began", "deleted", "identities", "starts")

    def __init__(self) -> None:
        self.began: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.deleted: set[int] = set()
        self.identities: dict[int, PartitionIdentity] = {}

    def note(self, partition_id: int, start: int) -> None:
        """Note a log start."""
        self.starts[partition_id] = max(start, self.starts.get(partition_id, 0))

    def note_owner(self, epoch: int, began_sequence: int) -> None:
        """Note where an owner took over, as one of its objects says it."""
        self.began[epoch] = min(began_sequence, self.began.get(epoch, began_sequence))


class Missing(NamedTuple):
    """Offsets [``first``, ``end``) of a partition that no object covers."""

    partition_id: int
    first: int
    end: int


class Decision(NamedTuple):
    """Decision. ``live``: objects and their live parts, lowest number first. ``unused``: others.

    ``unproven``: the unused ones after a gap. ``missing``: damage or loss.
    """

    live: list[SeenObject]
    unused: list[StoredObject]
    unproven: list[StoredObject]
    missing: list[Missing]
    starts: dict[int, int]
    next_sequence: int


def decide(
    seen: Sequence[SeenObject], facts: FooterFacts, damaged_epochs: Collection[int] = ()
) -> Decision:
    """Decide which of ``seen`` are live. ``damaged_epochs``: those of unreadable objects.

    A gap in an epoch with a damaged object is taken for that object's place.
    """
    merged = [one for one in seen if one.stored.kind != KIND_LOG]
    shared = _newest_shared([one.stored for one in merged if is_shared(one.stored)])
    logs = [one for one in seen if one.stored.kind == KIND_LOG]
    chain, unproven, next_sequence = _chain(
        [one.stored for one in logs], shared, facts.began, damaged_epochs
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
    """Return the shared objects that no newer ones replace, in order of sequence."""
    chosen: list[StoredObject] = []
    for stored in sorted(shared, key=attrgetter("epoch", "number"), reverse=True):
        if not any(_overlap(stored, other) for other in chosen):
            chosen.append(stored)
    return sorted(chosen, key=attrgetter("first_sequence", "next_sequence"))


def _overlap(one: StoredObject, other: StoredObject) -> bool:
    """Return whether two ranges of sequences overlap; an empty range overlaps one around it."""
    return one.first_sequence < other.next_sequence and other.first_sequence < one.next_sequence


def _chain(
    logs: Sequence[StoredObject],
    shared: Sequence[StoredObject],
    began: Mapping[int, int],
    damaged_epochs: Collection[int],
) -> tuple[list[StoredObject], list[StoredObject], int]:
    """Return the committed log objects, those after a gap, and the next sequence."""
    covering = [one for one in shared if one.first_sequence < one.next_sequence]
    # Merged ones still show which objects beside them were stale.
    rest = [
        one
        for one in _not_stale(logs, began)
        if not any(_overlap(one, cover) for cover in covering)
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


def _not_stale(
    logs: Sequence[StoredObject], began: Mapping[int, int]
) -> Iterator[StoredObject]:
    """Yield the log objects that end before a later epoch begins."""
    by_epoch: dict[int, list[StoredObject]] = defaultdict(list)
    for stored in logs:
        by_epoch[stored.epoch].append(stored)
    ceiling = _NO_SEQUENCE
    for epoch in sorted(by_epoch, reverse=True):
        kept = [stored for stored in by_epoch[epoch] if stored.next_sequence <= ceiling]
        yield from kept
        if kept:
            ceiling = min(ceiling, began[epoch])


def _choose(ranked: Iterable[SeenObject], facts: FooterFacts) -> dict[int, list[ObjectPart]]:
    """Return the live parts by object; earlier objects of ``ranked`` win."""
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
    """Return whether no chosen extent covers any of the extent's offsets; ``taken`` is sorted."""
    index = bisect_left(taken, extent.first, key=attrgetter("first"))
    if index and taken[index - 1].end > extent.first:
        return False
    return index == len(taken) or taken[index].first >= extent.end


def _look(
    live: Iterable[SeenObject], facts: FooterFacts
) -> tuple[list[Missing], dict[int, int]]:
    """Return the holes between extents, and the log starts by the extents."""
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
