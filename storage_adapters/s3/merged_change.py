"""Execution of merges: put the objects, commit one change, then publish all of it at once.

A partition can change in between (its log start moves, it is deleted). That is checked twice: for
the change, which carries the same bounds, and again when the catalog is updated.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, TypeVarTuple

from gateway.model import Buffer
from storage_adapters.formats.object_index import pack_rows
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.change import BoundsRow, Change, NewObject, ObjectPart
from storage_adapters.s3.committer import Committer
from storage_adapters.s3.merged_object import PACE_BYTES, MergedObject
from storage_adapters.s3.queries import rows_below
from storage_adapters.s3.rows import RowsCache
from storage_adapters.s3.state import (
    Catalog,
    Extent,
    PartitionState,
    StoredObject,
    object_key,
)

THREADS: Final = 3  # for inputs and outputs; the processor's part of it is one at a time
READ_BYTES: Final = 8 * 1_048_576  # of an input in one request
WHOLE_BYTES: Final = 2 * READ_BYTES  # read in one request: log objects are slightly larger

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")


class Replacement:
    """New objects, live objects that die (``gone``), and those that lose partitions (``lost``)."""

    __slots__ = ("_new", "_rows", "gone", "lost", "made")

    def __init__(
        self,
        made: Sequence[MergedObject],
        gone: Iterable[int] = (),
        lost: Mapping[int, frozenset[int]] | None = None,
    ) -> None:
        self.made = made
        self.gone = frozenset(gone)
        self.lost = lost or {}
        self._rows = {one.stored.number: one.rows for one in made}
        self._new: dict[int, list[Extent]] = {}
        for one in made:
            for partition_id, extent in one.parts:
                self._new.setdefault(partition_id, []).append(extent)

    @property
    def new_ids(self) -> Iterable[int]:
        """Partitions in the new objects."""
        return self._new.keys()

    def extents_of(self, state: PartitionState) -> list[Extent]:
        """Return a partition's live extents, with the new ones in the place of the old."""
        if state.is_deleted:
            return []
        partition_id = state.partition_id
        loses = {number for number, ids in self.lost.items() if partition_id in ids}
        kept = [
            extent
            for extent in state.extents
            if extent.number not in self.gone
            and extent.number not in loses
            and extent.number not in self._rows
        ]
        new = self._new.get(partition_id, ())
        return sorted([extent for extent in [*kept, *new] if extent.end > state.start])

    def below_bytes(self, state: PartitionState, extents: Sequence[Extent]) -> int:
        """Return the size of the first extent's batches that end at or before the start."""
        if not extents:
            return 0
        rows = self._rows.get(extents[0].number)
        if rows is not None:
            return rows_below(rows, extents[0], state.start)
        # The stored value belongs to the extent that was the first one then.
        return state.below_bytes if extents[0] == state.extents[0] else 0


class Changer:
    """Executor of merges. Loop only; threads wait for the bucket. ``forget`` drops dead objects.

    ``tail`` returns a recently written object that is in memory; in any thread.
    """

    def __init__(  # noqa: PLR0913  # What a change touches.
        self,
        catalog: Catalog,
        bucket: Bucket,
        committer: Committer,
        rows: RowsCache,
        *,
        prefix: str,
        forget: Callable[[int], None],
        tail: Callable[[int], Buffer | None] | None = None,
    ) -> None:
        self._catalog = catalog
        self._bucket = bucket
        self._committer = committer
        self._rows = rows
        self._prefix = prefix
        self._forget = forget
        self._tail = tail
        self._executor = ThreadPoolExecutor(THREADS, "headgate-merge")
        self._begun: set[int] = set()

    @property
    def epoch(self) -> int:
        """Epoch of new objects."""
        return self._committer.epoch

    async def take_number(self) -> int:
        """Return a number for a new object. Errors: ``StorageUnavailable``."""
        number = await self._committer.take_number()
        self._begun.add(number)
        return number

    def give_up(self) -> None:
        """Abandon an unfinished object, which will be swept."""
        for number in self._begun:
            self._committer.give_up(number)
        self._begun.clear()

    async def in_thread(self, work: Callable[[*_Args], _T], *args: *_Args) -> _T:
        """Run ``work`` in one of the threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, work, *args)

    def read_object(self, stored: StoredObject, pace: Callable[[], None]) -> Buffer:
        """Return a whole object. In a thread. Errors: ``StorageUnavailable``, those of ``pace``."""
        kept = None if self._tail is None else self._tail(stored.number)
        if kept is not None:
            return kept
        if stored.size_bytes <= WHOLE_BYTES:
            return self._read_paced(stored, 0, stored.size_bytes, pace)
        data = bytearray(stored.size_bytes)
        for at in range(0, stored.size_bytes, READ_BYTES):
            end = min(at + READ_BYTES, stored.size_bytes)
            data[at:end] = self._read_paced(stored, at, end, pace)
        return data

    def _read_paced(
        self, stored: StoredObject, start: int, end: int, pace: Callable[[], None]
    ) -> bytes:
        """Read a range at the merge's pace, with as many waits as its pieces allow."""
        for _ in range(start, end, PACE_BYTES):
            pace()
        return self.read_range(stored, start, end)

    def read_range(self, stored: StoredObject, start: int, end: int) -> bytes:
        """Return a range of bytes. In a thread. Errors: ``StorageUnavailable``."""
        key = object_key(self._prefix, stored.number, stored.epoch)
        return self._bucket.get(key, start, end)

    def put_object(self, made: MergedObject) -> MergedObject:
        """Put an object; return it with its ETag. In a thread."""
        key = object_key(self._prefix, made.stored.number, made.stored.epoch)
        etag = self._bucket.put(key, made.body)
        # The data is in the bucket: the inputs are not needed for it any more.
        return made._replace(body=[], stored=made.stored._replace(etag=etag))

    async def commit(self, replacement: Replacement) -> list[StoredObject]:
        """Commit a replacement; return the new live objects. Errors: ``StorageUnavailable``.

        New objects without live extents by now are left to be swept, except shared ones.
        """
        touched = self._touched(replacement)
        made, change = await self._change(replacement, touched)
        await self._committer.commit(change)
        self._apply(replacement, made, touched)
        self._begun.difference_update(one.stored.number for one in made)
        moved = [row for row in self._bounds(replacement, touched) if row not in change.bounds]
        if moved:
            # A start that moved during the commit was stored by the old objects' rows.
            await self._committer.commit(Change(bounds=tuple(moved)))
        return [self._catalog.objects[one.stored.number] for one in made]

    def stop(self) -> None:
        """Start no more work in the threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _touched(self, replacement: Replacement) -> list[int]:
        """Return the partitions with extents in any of the objects, before or after."""
        held = [self._catalog.objects[number].partition_ids for number in replacement.gone]
        return sorted(set(replacement.new_ids).union(*held, *replacement.lost.values()))

    async def _change(
        self, replacement: Replacement, touched: Iterable[int]
    ) -> tuple[list[MergedObject], Change]:
        packed = [
            await self.in_thread(pack_rows, one.rows) if one.parts else pack_rows(one.rows)
            for one in replacement.made
        ]
        made: list[MergedObject] = []
        added: list[NewObject] = []
        # No await from here on: the change describes the current state.
        for one, rows in zip(replacement.made, packed, strict=True):
            parts = [part for part in one.parts if self._counts(part)]
            if parts or not one.parts or one.stored.next_sequence > one.stored.first_sequence:
                ids = frozenset([part.partition_id for part in parts])
                stored = one.stored._replace(partition_ids=ids)
                made.append(one._replace(stored=stored))
                added.append(NewObject(stored, parts, rows))
        change = Change(
            added=tuple(added),
            gone=tuple(sorted(replacement.gone)),
            shrunk=tuple(sorted(replacement.lost.items())),
            bounds=tuple(self._bounds(replacement, touched)),
        )
        return made, change

    def _counts(self, part: ObjectPart) -> bool:
        state = self._catalog.partition(part.partition_id)
        return not state.is_deleted and part.extent.end > state.start

    def _bounds(self, replacement: Replacement, touched: Iterable[int]) -> list[BoundsRow]:
        """Return the bounds of partitions from which a change may drop data."""
        rows = []
        for partition_id in touched:
            state = self._catalog.partition(partition_id)
            if state.start or state.is_deleted:
                below = replacement.below_bytes(state, replacement.extents_of(state))
                rows.append(BoundsRow(partition_id, state.start, below, state.is_deleted))
        return rows

    def _apply(
        self, replacement: Replacement, made: Sequence[MergedObject], touched: Iterable[int]
    ) -> None:
        """Update the catalog in one step: a read sees the state before or after."""
        objects = self._catalog.objects
        for partition_id in touched:
            state = self._catalog.partition(partition_id)
            extents = replacement.extents_of(state)
            state.below_bytes = replacement.below_bytes(state, extents)
            state.extents = extents
        for one in made:
            objects[one.stored.number] = one.stored
        for number, ids in replacement.lost.items():
            stored = objects[number]
            objects[number] = stored._replace(partition_ids=stored.partition_ids - ids)
        for number in replacement.gone:
            del objects[number]
            self._rows.drop(number)
            self._forget(number)
