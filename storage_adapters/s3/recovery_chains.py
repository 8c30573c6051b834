"""Chains of log objects, as a recovery finds them in a bucket (``recovery_plan``). Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from storage_adapters.formats.log_ranges import first_sequence
from storage_adapters.s3.change import ObjectPart
from storage_adapters.s3.state import KIND_LOG, StoredObject

_NO_SEQUENCE: Final = 1 << 63


class SeenObject(NamedTuple):
    """An object of the bucket by its header and footer, with its parts in order of partition."""

    stored: StoredObject
    parts: list[ObjectPart]


class Chain(NamedTuple):
    """Committed log objects, those after a gap, and the next sequence of each log."""

    logs: list[SeenObject]
    unproven: list[SeenObject]
    ends: dict[int, int]


def first_sequence_of(one: SeenObject) -> int:
    """Return an object's first sequence, as a key to sort by."""
    return one.stored.first_sequence


def _sequences(one: SeenObject) -> tuple[int, int]:
    return one.stored.first_sequence, one.stored.next_sequence


def overlap(one: SeenObject, other: SeenObject) -> bool:
    """Return whether two ranges of sequences overlap; an empty range overlaps one around it."""
    return (
        one.stored.first_sequence < other.stored.next_sequence
        and other.stored.first_sequence < one.stored.next_sequence
    )


def by_log(seen: Iterable[SeenObject], damaged_epochs: Collection[int]) -> dict[int, list[int]]:
    """Return for each log the epochs of damaged objects that may be of it."""
    known = {one.stored.epoch: one.stored.log for one in seen}
    return {
        log: [epoch for epoch in damaged_epochs if known.get(epoch, log) == log]
        for log in {0, *known.values()}
    }


def chains(
    logs: Sequence[SeenObject],
    shared: Sequence[SeenObject],
    began: Mapping[int, int],
    damaged: Mapping[int, Collection[int]],
) -> Chain:
    """Return the log objects that count beside the shared ones; ``logs`` are not stale.

    ``damaged``: by log, the epochs of unreadable objects.
    """
    whole = Chain([], [], {})
    for log in sorted(damaged):
        found, after_gap, end = _chain(
            log,
            [one for one in logs if one.stored.log == log],
            [one for one in shared if one.stored.log == log],
            began,
            damaged[log],
        )
        whole.logs.extend(found)
        whole.unproven.extend(after_gap)
        whole.ends[log] = end
    return whole


def _chain(
    log: int,
    logs: Iterable[SeenObject],
    shared: Iterable[SeenObject],
    began: Mapping[int, int],
    damaged_epochs: Collection[int],
) -> tuple[list[SeenObject], list[SeenObject], int]:
    """Return a log's objects up to a gap, those after it, and the next sequence."""
    covering = [one for one in shared if one.stored.first_sequence < one.stored.next_sequence]
    rest = [one for one in logs if not any(overlap(one, cover) for cover in covering)]
    ordered = sorted([*rest, *covering], key=_sequences)
    last_cover = max([cover.stored.next_sequence for cover in covering], default=0)
    chain: list[SeenObject] = []
    end = first_sequence(log)
    for index, one in enumerate(ordered):
        stored = one.stored
        is_gap = stored.first_sequence != end
        is_loss = _may_be_damaged(stored.epoch, end, began, damaged_epochs)
        if is_gap and end >= last_cover and not is_loss:
            return chain, ordered[index:], end
        end = stored.next_sequence
        if stored.kind == KIND_LOG:
            chain.append(one)
    return chain, [], end


def _may_be_damaged(
    epoch: int, end: int, began: Mapping[int, int], damaged_epochs: Collection[int]
) -> bool:
    """Return whether a damaged object may be in the gap from ``end`` to an object of ``epoch``.

    It can be one of its owner, or a merged one of a later owner. One of an earlier owner cannot be
    after the sequence at which this owner took over.
    """
    highest = max(damaged_epochs, default=-1)
    return highest >= epoch or (highest >= 0 and end < began.get(epoch, 0))


def not_stale(logs: Sequence[SeenObject], began: Mapping[int, int]) -> Iterator[SeenObject]:
    """Yield the log objects that end before a later epoch begins.

    Merged ones still show which objects beside them were stale.
    """
    by_epoch: dict[tuple[int, int], list[SeenObject]] = defaultdict(list)
    for one in logs:
        by_epoch[one.stored.log, one.stored.epoch].append(one)
    ceilings: dict[int, int] = {}
    for log, epoch in sorted(by_epoch, reverse=True):
        ceiling = ceilings.get(log, _NO_SEQUENCE)
        kept = [one for one in by_epoch[log, epoch] if one.stored.next_sequence <= ceiling]
        yield from kept
        if kept:
            ceilings[log] = min(ceiling, began[epoch])
