"""Compaction of settled files: a partition is rewritten file by file."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from gateway.errors import StorageUnavailable
from gateway.storage import Drops, Keep, Rewritten
from storage_adapters.formats.footer import Part
from storage_adapters.formats.manifest import SHARED
from storage_adapters.segment_log.catalog import Catalog
from storage_adapters.segment_log.copying import (
    DamagedBatch,
    Rewrite,
    Source,
    copy_rewritten,
)
from storage_adapters.segment_log.merging import neighbours
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.settled_files import NotCommitted
from storage_adapters.segment_log.settled_output import Output, Stopped
from storage_adapters.segment_log.settled_set import record_of

Make = Callable[[list[Source], Output], Segment | None]
ChangeFiles = Callable[
    [Sequence[Segment], Sequence[Segment], Make, Mapping[int, frozenset[int]]],
    Awaitable[list[Segment]],
]


class Rewriter:
    """Rewriter of partitions, between the settler's rounds under ``lock``. Loop only.

    ``change`` takes the inputs, the files to remove, the maker of new files, and the dead
    partitions of shared ones. Small neighbours are rewritten together up to ``bytes_max``.
    """

    def __init__(
        self,
        catalog: Catalog,
        lock: asyncio.Lock,
        change: ChangeFiles,
        wake: Callable[[], None],
        bytes_max: int,
    ) -> None:
        self._catalog = catalog
        self._lock = lock
        self._change = change
        self._wake = wake
        self._bytes_max = bytes_max
        self.is_halted = False

    def settled_offset(self, partition_id: int) -> int:
        """See ``StorageAdapter.settled_offset``."""
        catalog = self._catalog
        start, is_deleted = catalog.peek(partition_id)
        if is_deleted:
            return 0
        parts = catalog.settled.parts(catalog.footers, partition_id)
        return max([start, *(part.end for _, part in parts[-1:])])

    async def rewrite(
        self, partition_id: int, upto_offset: int, keep: Keep, drops: Drops | None
    ) -> Rewritten:
        """See ``StorageAdapter.rewrite``; other work runs between two files."""
        done = Rewritten(self._catalog.peek(partition_id)[0], 0, 0)
        while done.upto_offset < upto_offset:
            async with self._lock:
                if self.is_halted:
                    raise StorageUnavailable("the log is being closed")
                offsets = (done.upto_offset, upto_offset)
                parts = neighbours(self._catalog, partition_id, offsets, self._bytes_max)
                if not parts:
                    break
                rewrite = Rewrite(*offsets, keep, drops)
                after_bytes = await self._rewrite(partition_id, parts, rewrite)
            done = Rewritten(
                min(upto_offset, parts[-1][1].end),
                done.before_bytes + sum(part.size_bytes for _, part in parts),
                done.after_bytes + after_bytes,
            )
        self._wake()  # There may be files to merge.
        return done

    async def _rewrite(
        self, partition_id: int, parts: Sequence[tuple[Segment, Part]], rewrite: Rewrite
    ) -> int:
        """Replace a partition's batches in some files; return their size in the new ones."""
        catalog = self._catalog
        start, _ = catalog.peek(partition_id)
        segments = [segment for segment, _ in parts]
        goes = [s for s in segments if record_of(s).owner != SHARED]
        lost = frozenset([partition_id])
        dead = {s.number: lost for s in segments if record_of(s).owner == SHARED}

        def make(sources: list[Source], output: Output) -> None:
            copy_rewritten(partition_id, sources, {partition_id: start}, rewrite, output)

        try:
            made = await self._change(segments, goes, make, dead)
        except DamagedBatch as error:
            error.segment.damage_seen += 1
            raise
        except (NotCommitted, OSError, Stopped) as error:
            text = f"partition {partition_id} is rewritten up to {rewrite.from_offset} only"
            raise StorageUnavailable(f"{text}: {error}") from error
        found = [catalog.footers.get(segment).find(partition_id) for segment in made]
        return sum(part.size_bytes for part in found if part is not None)
