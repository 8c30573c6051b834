"""Planning of merges: the next inputs and their outputs. Pure: reads the catalog only.

A node merges objects of its own log only, which no other node changes.

Functions over all extents (``log_round``, ``part_runs``, ``group_inputs``, ``half_dead``,
``dead_own``) may run in a thread beside the loop, which meanwhile adds extents and moves log
starts. Objects are removed only under ``Merger.lock``, which the caller holds.

There are three kinds of merged objects:

- an **own** object holds one large partition; its sequences are (n, n), an empty range;
- a **shared** object holds the other partitions of a round, sorted. Each round over log objects
  makes one, if need be without batches: its sequences tell which log objects it replaces, its
    footer has their log starts and deletions (``recovery``);
- a **note** is a shared object without batches that replaces unneeded own objects.

A byte is rewritten once out of its log object, then each time its object is merged
with neighbours that together are at least ``GROWTH`` times as large, up to ``merge_bytes_max``. So
at most ``1 + log4(merge_bytes_max / size of its first merged object)`` times: 3.5 for 8 MiB and the
default of 256 MiB. An object that is half dead is copied once more for each half that dies.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from gateway.model import HEADER_BYTES
from storage_adapters.formats.object_index import ROWS_MAX
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.state import (
    KIND_LOG,
    KIND_SETTLED,
    Catalog,
    Extent,
    PartitionState,
    StoredObject,
)

GROWTH: Final = 4  # a merged object is at least so many times as large as any of its inputs
OBJECT_BYTES_MAX: Final = (
    HEADER_BYTES * ROWS_MAX
)  # so no object has more rows than may be packed
OBJECTS_MAX: Final = 4_096  # of a round, however small they are
EXTENTS_MAX: Final = 65_536  # of a round: they are replaced in one step on the loop


class PartRun(NamedTuple):
    """Consecutive extents that become one part of a new object."""

    partition_id: int
    extents: tuple[Extent, ...]

    @property
    def size_bytes(self) -> int:
        """Size of the batches, including those below the log start."""
        return sum([extent.size_bytes for extent in self.extents])


class Grouping(NamedTuple):
    """Assignment of runs to new objects, by partition id.

    ``own``: objects of their own, each with a run, or with several where the shared one would be
    too large (batches that were appended to very many partitions).
    """

    own: list[list[PartRun]]
    shared: list[PartRun]


def is_shared(stored: StoredObject) -> bool:
    """Return whether a merged object stands for a range of sequences, or is a note."""
    return stored.kind == KIND_SETTLED and (
        stored.next_sequence > stored.first_sequence or not stored.partition_ids
    )


def log_round(
    catalog: Catalog,
    config: S3Config,
    *,
    released: int,
    now_unix_ms: int,
    skip: Collection[int] = (),
) -> list[StoredObject]:
    """Return the log objects of the next round, oldest first; none when nothing is due.

    Only objects with all sequences below ``released`` are considered: merging loses the headers
    that a scan needs. Objects in ``skip`` are damaged; later ones are merged without them.
    """
    logs = sorted(
        [
            o
            for o in catalog.own_objects()
            if o.kind == KIND_LOG and o.next_sequence <= released
        ],
        key=_sequences,
    )
    while logs and logs[-1].next_sequence == logs[-1].first_sequence:
        logs.pop()  # it shows where the log ends (``log_ends``)
    bytes_max = _bytes_max(config)
    for run in _chains(logs, skip):
        if _is_due(run, config, now_unix_ms):
            taken = run[: _fitting([o.size_bytes for o in run], bytes_max)]
            held = [len(o.partition_ids) for o in taken]
            taken = taken[: max(_fitting(held, EXTENTS_MAX), 2)]
            if taken[-1].next_sequence > taken[0].first_sequence:
                return taken
    return []


def next_age_ms(
    objects: Iterable[StoredObject], config: S3Config, *, released: int, now_unix_ms: int
) -> int | None:
    """Return the ms until a round is due by age alone; None without objects that wait."""
    changed = sorted(
        [
            o.changed_unix_ms
            for o in objects
            if o.kind == KIND_LOG and o.next_sequence <= released
        ]
    )
    if len(changed) < 2:  # noqa: PLR2004  # One alone stays as it is.
        return None
    return max(1, changed[0] + config.merge_after_ms - now_unix_ms)


def shared_round(
    objects: Iterable[StoredObject], config: S3Config, *, skip: Collection[int] = ()
) -> list[StoredObject]:
    """Return shared objects that are worth merging, neighbours in sequence, or none."""
    shared = sorted([o for o in objects if is_shared(o)], key=_sequences)
    for chain in _chains(shared, skip):
        run = _growing_run(chain, config)
        if run:
            return run
    return []


def own_round(
    catalog: Catalog,
    state: PartitionState,
    config: S3Config,
    *,
    skip: Collection[int] = (),
) -> list[StoredObject]:
    """Return small own objects of a partition that are worth merging, neighbours, or none."""
    for chain in _small_chains(catalog, state, config, skip):
        run = _growing_run(chain, config)
        if run:
            return run
    return []


def half_dead(catalog: Catalog, skip: Collection[int] = ()) -> list[StoredObject]:
    """Return shared objects that are more than half dead and hold a wholly dead partition."""
    alive_bytes, alive_parts = _alive(catalog)
    return [
        o
        for o in catalog.own_objects()
        if is_shared(o)
        and o.number not in skip
        and 2 * alive_bytes[o.number] < o.size_bytes
        and alive_parts[o.number] < len(o.partition_ids)
    ]


def dead_own(catalog: Catalog) -> list[StoredObject]:
    """Return own objects without live batches: deleted, or below the log start."""
    _, alive_parts = _alive(catalog)
    return [
        o
        for o in catalog.own_objects()
        if o.kind == KIND_SETTLED and not is_shared(o) and not alive_parts[o.number]
    ]


def part_runs(catalog: Catalog, inputs: Iterable[StoredObject]) -> list[PartRun]:
    """Return the live runs of ``inputs``, by partition id and offset.

    Extents below a log start or of a deleted partition are left out. Runs of a partition are
    separate when other objects hold the offsets between them.
    """
    inputs = list(inputs)
    numbers = frozenset([o.number for o in inputs])
    runs: list[PartRun] = []
    for partition_id in sorted(_ids(inputs)):
        state = catalog.partitions.get(partition_id)
        if state is not None and not state.is_deleted:
            alive = _alive_runs(state, numbers)
            runs += [PartRun(partition_id, tuple(run)) for run in alive]
    return runs


def group_inputs(
    catalog: Catalog, inputs: Iterable[StoredObject], own_bytes_min: int
) -> Grouping:
    """Return the live runs of ``inputs``, grouped by new object.

    An object whose partitions have more bytes than the object itself has batches that several of
    them share. These partitions stay together: an object has each batch once.
    """
    inputs = list(inputs)
    runs = part_runs(catalog, inputs)
    held: Counter[int] = Counter()
    for run in runs:
        for extent in run.extents:
            held[extent.number] += extent.size_bytes
    sharing = frozenset([o.number for o in inputs if held[o.number] > o.size_bytes])
    return group_runs(runs, own_bytes_min, sharing=sharing)


def group_runs(
    runs: Iterable[PartRun],
    own_bytes_min: int,
    bytes_max: int = OBJECT_BYTES_MAX,
    *,
    sharing: Collection[int] = (),
) -> Grouping:
    """Group runs by new object; large runs, and further runs of a partition, get own objects.

    An object covers one range of offsets of a partition. Further runs can be small; there are
    never more of them than of the large objects between them. ``sharing``: objects in which
    partitions share batches; the runs out of them weigh by their rows.
    """
    grouping = Grouping([], [])
    size_bytes = 0
    for run in runs:
        is_further = bool(grouping.shared) and (
            grouping.shared[-1].partition_id == run.partition_id
        )
        shares = any(extent.number in sharing for extent in run.extents)
        run_bytes = (
            HEADER_BYTES * sum(extent.row_count for extent in run.extents)
            if shares
            else run.size_bytes
        )
        if is_further or (run_bytes >= own_bytes_min and not shares):
            grouping.own.append([run])
            continue
        size_bytes += run_bytes
        if size_bytes > bytes_max and grouping.shared:
            grouping.own.append(grouping.shared[:])
            grouping.shared.clear()
            size_bytes = run_bytes
        grouping.shared.append(run)
    return grouping


def _alive(catalog: Catalog) -> tuple[Counter[int], Counter[int]]:
    """Return live bytes, and the number of partitions with live bytes, by object."""
    alive_bytes: Counter[int] = Counter()
    alive_parts: Counter[int] = Counter()
    for state in list(catalog.partitions.values()):
        for extent in () if state.is_deleted else state.extents:
            if extent.end > state.start:
                alive_bytes[extent.number] += extent.size_bytes
                alive_parts[extent.number] += 1
    return alive_bytes, alive_parts


def _ids(objects: Iterable[StoredObject]) -> set[int]:
    """Return the partitions with extents in the objects.

    One object after the other: a single call for all would block other threads.
    """
    found: set[int] = set()
    for stored in objects:
        found |= stored.partition_ids
    return found


def _sequences(stored: StoredObject) -> tuple[int, int, int]:
    return stored.first_sequence, stored.next_sequence, stored.number


def _chains(
    ordered: Sequence[StoredObject], skip: Collection[int]
) -> Iterator[list[StoredObject]]:
    """Yield chains of objects with consecutive sequences, without those to be skipped."""
    chain: list[StoredObject] = []
    for stored in ordered:
        if chain and (
            stored.number in skip or stored.first_sequence != chain[-1].next_sequence
        ):
            yield chain
            chain = []
        if stored.number not in skip:
            chain.append(stored)
    if chain:
        yield chain


def _small_chains(
    catalog: Catalog, state: PartitionState, config: S3Config, skip: Collection[int]
) -> Iterator[list[StoredObject]]:
    chain: list[StoredObject] = []
    end = -1
    for extent in () if state.is_deleted else state.extents:
        stored = catalog.objects[extent.number]
        is_small = (
            stored.kind == KIND_SETTLED
            and stored.log == catalog.log
            and not is_shared(stored)
            and stored.number not in skip
            and stored.size_bytes < config.partition_object_bytes_min
        )
        if chain and (not is_small or extent.first != end):
            yield chain
            chain = []
        if is_small:
            chain.append(stored)
        end = extent.end
    if chain:
        yield chain


def _is_due(run: Sequence[StoredObject], config: S3Config, now_unix_ms: int) -> bool:
    if len(run) >= config.merge_objects_min:
        return True
    if sum([o.size_bytes for o in run]) >= config.merge_bytes_min:
        return True
    age_ms = now_unix_ms - min([o.changed_unix_ms for o in run])
    return len(run) > 1 and age_ms >= config.merge_after_ms


def _bytes_max(config: S3Config) -> int:
    return min(config.merge_bytes_max, OBJECT_BYTES_MAX)


def _fitting(sizes: Sequence[int], most: int) -> int:
    """Return the number of objects from the front that fit together, at least one."""
    total = sizes[0]
    for count, size in enumerate(sizes[1:OBJECTS_MAX], 1):
        total += size
        if total > most:
            return count
    return min(len(sizes), OBJECTS_MAX)


def _growing_run(chain: Sequence[StoredObject], config: S3Config) -> list[StoredObject]:
    """Return the first neighbours that fit one object without one dominating it."""
    for first in range(len(chain) - config.merge_objects_min + 1):
        sizes = [o.size_bytes for o in chain[first : first + OBJECTS_MAX]]
        found = largest = total = 0
        for count, size_bytes in enumerate(sizes[: _fitting(sizes, _bytes_max(config))], 1):
            total += size_bytes
            largest = max(largest, size_bytes)
            if count >= config.merge_objects_min and largest * GROWTH <= total:
                found = count
        if found:
            return list(chain[first : first + found])
    return []


def _alive_runs(state: PartitionState, numbers: Collection[int]) -> Iterator[list[Extent]]:
    """Yield runs of live extents in some objects, separate where other extents lie between.

    In one pass: finding an extent takes longer than examining it.
    """
    run: list[Extent] = []
    start, run_end = state.start, -1
    for extent in state.extents:
        end = extent.end
        if end > start and extent.number in numbers:
            if run and extent.first != run_end:
                yield run
                run = []
            run.append(extent)
            run_end = end
    if run:
        yield run
