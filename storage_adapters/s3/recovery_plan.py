"""Decision which objects of a bucket are live after a loss of the index. Pure.

The bucket alone is enough, because of the order in which objects are put:

- A bucket has a log for each writer, in a range of sequences of its own (``log_ranges``). What
  follows is so in each log; objects of different logs never cover the same offsets.
- Log objects are committed in the order of their sequences, so the live ones are a chain.
  One after a gap was never committed. One whose sequences overlap those of a later epoch was
  put by a node that had been replaced. So was one whose sequences end after the later epoch
  began: an object's header says where its owner took over, also when the first ones are missing.
  A log whose partitions have got another owner ends with an object of a later epoch that is empty.
- Of merged objects the newest (by epoch, then number) wins where two cover the same offsets:
  it was made of the objects live then. That holds for one that was put and never committed, too:
  it has the same content. Merged objects win over log objects.
- A shared object replaces the log objects and the shared ones within its sequences: their batches
  are in it, in own objects that were put before it, in newer objects, or recorded as deleted or
  below a log start. If it was committed. If it was not, newer objects of another round that was not
  committed either may win over its parts, or over an own object of its round, and cover less. Such
  a shared object is left out, and what it was made of counts: all of that is in the bucket.
- Log starts only move up: the highest in any footer is right. Deleted partitions stay deleted.

An extent is live as a whole or not at all. The extents that are live by the index show that this
loses nothing, since all of them are in the bucket. A newer object that overlaps one of them was
never committed, and was made while it was live, so it covers all of it. Taken from the newest
object down, each is then covered as a whole or free as a whole. What objects carry and the decision
does not cover is checked nevertheless, since objects may be damaged or lost (``uncovered``).
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from gateway.model import PartitionIdentity
from storage_adapters.s3.change import ObjectPart
from storage_adapters.s3.merge_plan import is_shared
from storage_adapters.s3.recovery_chains import (
    Chain,
    SeenObject,
    by_log,
    chains,
    first_sequence_of,
    not_stale,
    overlap,
)
from storage_adapters.s3.state import KIND_LOG, Extent, StoredObject


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


class Uncovered(NamedTuple):
    """Offsets [``first``, ``end``) of a partition within ``stored``, and in no live object."""

    stored: StoredObject
    partition_id: int
    first: int
    end: int


class Decision(NamedTuple):
    """Decision. ``live``: objects and their live parts, lowest number first. ``unused``: others.

    Of the unused ones ``stale`` were put by a replaced node, ``unproven`` are after a gap.
    ``missing``, ``uncovered``: damage or loss. ``ends``: the next sequence of each log.
    """

    live: list[SeenObject]
    unused: list[StoredObject]
    stale: list[StoredObject]
    unproven: list[StoredObject]
    missing: list[Missing]
    uncovered: list[Uncovered]
    starts: dict[int, int]
    ends: dict[int, int]


class _Choice(NamedTuple):
    """Objects that stand for sequences, and the live parts by object.

    ``extents``: those of the parts, by partition and in order.
    """

    shared: list[SeenObject]
    chain: Chain
    parts: dict[int, list[ObjectPart]]
    extents: dict[int, list[Extent]]

    @property
    def standing(self) -> frozenset[int]:
        """Numbers of the objects that stand for sequences."""
        return _numbers([*self.shared, *self.chain.logs])


def decide(
    seen: Sequence[SeenObject], facts: FooterFacts, damaged_epochs: Collection[int] = ()
) -> Decision:
    """Decide which of ``seen`` are live. ``damaged_epochs``: those of unreadable objects.

    A gap in which a damaged object may have been is taken for that object's place.
    """
    merged = [one for one in seen if one.stored.kind != KIND_LOG]
    own = [one for one in merged if not is_shared(one.stored)]
    shared = [one for one in merged if is_shared(one.stored)]
    all_logs = [one for one in seen if one.stored.kind == KIND_LOG]
    logs = list(not_stale(all_logs, facts.began))
    damaged = by_log(seen, damaged_epochs)
    while True:
        standing = _newest_shared(shared)
        chain = chains(logs, standing, facts.began, damaged)
        ranked = [*sorted([*own, *standing], key=_rank, reverse=True), *chain.logs]
        choice = _Choice(standing, chain, *_choose(ranked, facts))
        torn = [one for one in merged if any(_uncovered(one, choice.extents, facts))]
        in_vain = _never_committed(standing, torn, [*shared, *logs])
        if not in_vain:
            break
        shared = [one for one in shared if one.stored.number not in in_vain]
    kept = choice.standing.union(choice.parts)
    live = [
        SeenObject(one.stored._replace(partition_ids=_ids(parts)), parts)
        for one in sorted(seen, key=_number)
        if one.stored.number in kept
        for parts in [choice.parts.get(one.stored.number, [])]
    ]
    missing, starts = _look(live, facts)
    after_gap, current = _numbers(chain.unproven), _numbers(logs)
    carriers = [one for one in [*merged, *logs] if one.stored.number not in after_gap]
    return Decision(
        live,
        [one.stored for one in sorted(seen, key=_number) if one.stored.number not in kept],
        [one.stored for one in all_logs if one.stored.number not in current],
        [one.stored for one in chain.unproven],
        missing,
        [lost for one in carriers for lost in _uncovered(one, choice.extents, facts)],
        starts,
        chain.ends,
    )


def _number(one: SeenObject) -> int:
    return one.stored.number


def _rank(one: SeenObject) -> tuple[int, int]:
    return one.stored.epoch, one.stored.number


def _ids(parts: Iterable[ObjectPart]) -> frozenset[int]:
    return frozenset([part.partition_id for part in parts])


def _numbers(objects: Iterable[SeenObject]) -> frozenset[int]:
    return frozenset([one.stored.number for one in objects])


def _newest_shared(shared: Iterable[SeenObject]) -> list[SeenObject]:
    """Return the shared objects that no newer ones replace."""
    chosen: list[SeenObject] = []
    for one in sorted(shared, key=_rank, reverse=True):
        if not any(overlap(one, other) for other in chosen):
            chosen.append(one)
    return chosen


def _choose(
    ranked: Iterable[SeenObject], facts: FooterFacts
) -> tuple[dict[int, list[ObjectPart]], dict[int, list[Extent]]]:
    """Return the live parts by object, and extents by partition; earlier ones of ``ranked`` win."""
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
    return chosen, taken


def _never_committed(
    standing: Iterable[SeenObject], torn: Sequence[SeenObject], candidates: Sequence[SeenObject]
) -> frozenset[int]:
    """Return the numbers of shared objects whose round was never committed and is needed no more.

    ``torn`` are merged objects with offsets that nothing chosen covers, as none of a committed
    round are. ``candidates``: all objects that can stand for sequences.
    """
    return _numbers(
        shared
        for shared in standing
        if any(_is_of_round(one, shared) for one in torn)
        and _is_replaceable(shared, candidates)
    )


def _is_of_round(one: SeenObject, shared: SeenObject) -> bool:
    """Return whether a merged object is of the round of a shared one, or is replaced by it."""
    if is_shared(one.stored):
        return one is shared or overlap(one, shared)
    return one.stored.epoch == shared.stored.epoch and (
        one.stored.next_sequence == shared.stored.next_sequence
    )


def _is_replaceable(shared: SeenObject, candidates: Iterable[SeenObject]) -> bool:
    """Return whether other objects within a shared one's sequences have all of these."""
    stored = shared.stored
    at = stored.first_sequence
    for one in sorted(candidates, key=first_sequence_of):
        first, end = one.stored.first_sequence, one.stored.next_sequence
        if one is not shared and first <= at < end <= stored.next_sequence:
            at = end
    return at >= stored.next_sequence


def _uncovered(
    one: SeenObject, extents: Mapping[int, Sequence[Extent]], facts: FooterFacts
) -> Iterator[Uncovered]:
    """Yield the offsets of an object's partitions that ``extents`` do not cover."""
    for partition_id, extent in one.parts:
        if partition_id in facts.deleted:
            continue
        at = max(extent.first, facts.starts.get(partition_id, 0))
        covering = extents.get(partition_id, ())
        index = bisect_right(covering, at, key=attrgetter("end"))
        while at < extent.end:
            is_last = index == len(covering) or covering[index].first >= extent.end
            first = extent.end if is_last else covering[index].first
            if at < first:
                yield Uncovered(one.stored, partition_id, at, first)
            at = extent.end if is_last else covering[index].end
            index += 1


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
