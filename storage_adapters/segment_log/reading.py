"""Reads: plan the bytes that a read needs, and read them into one buffer."""

import asyncio
import errno
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from crc32c import crc32c

from gateway.descriptors import NoDescriptors
from gateway.errors import StorageUnavailable
from gateway.model import (
    ATTRIBUTES_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    Buffer,
)
from storage_adapters.formats.footer import HIGH_SHIFT, LOW_32, ROW_STRIDE, Rows
from storage_adapters.formats.row_search import find_offset
from storage_adapters.segment_log.catalog import Catalog, PartitionState
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.page_cache import PageCache, Span
from storage_adapters.segment_log.segments import Segment

# Batches of one partition that lie this close are read in one call, with what lies between
# them.
GAP_BYTES_MAX: Final = 4_096
# Of a batch: base offset, length, leader epoch, magic, and the last offset's delta.
_FRONT: Final = struct.Struct(">qiib6xi")
_BASE_OFFSET: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")

_Result = TypeVar("_Result")


class Pick(NamedTuple):
    """One batch to be read: its position, and its base offset in this partition.

    ``span``: its offset count + leader epoch << 32, as in its row.
    """

    position: int
    size_bytes: int
    base_offset: int
    span: int


class SegmentPicks(NamedTuple):
    """Batches of one segment, in order of position. The partition's part ends at ``part_end``.

    ``part_end`` is 0 in a live segment, where it is not used.
    """

    segment: Segment
    picks: list[Pick]
    part_end: int = 0


class WouldWait(Exception):
    """The bytes are not in the page cache."""


class Reader:
    """Reader of batches: plans on the loop, waits for the disk in a few threads."""

    def __init__(self, catalog: Catalog, config: SegmentLogConfig) -> None:
        self._catalog = catalog
        self._executor = ThreadPoolExecutor(config.read_threads, "headgate-read")
        self.page_cache = PageCache(catalog.handles, self._executor, config.read_ahead_bytes)
        self._nowait = os.RWF_NOWAIT

    def plan(
        self, state: PartitionState, start: int, end: int, bytes_max: int
    ) -> list[SegmentPicks]:
        """Return the batches of a read, as ``StorageAdapter.read_cached`` defines it."""
        start = max(start, state.start)
        if state.is_deleted or start >= end:
            return []
        live = state.part
        if live is not None and live.rows and start >= live.rows[0]:
            # The tail, where most readers are: no other segment matters.
            last = len(live.rows) // ROW_STRIDE
            row = find_offset(live.rows, 0, last, start)
            picks, _ = pick(live.rows, row, last, end, bytes_max, is_first=True)
            assert state.segment is not None
            return [SegmentPicks(state.segment, picks, 0)] if picks else []
        plan: list[SegmentPicks] = []
        for segment, part, rows in self._catalog.places(state, start):
            first, last = part.first_row, part.first_row + part.row_count
            row = find_offset(rows, first, last, start)
            if row == last:
                continue  # A settled segment covers offsets that were compacted away.
            picks, bytes_max = pick(rows, row, last, end, bytes_max, is_first=not plan)
            if not picks:
                break
            place = rows[last * ROW_STRIDE - 2]
            plan.append(SegmentPicks(segment, picks, (place & LOW_32) + (place >> 32)))
            if bytes_max <= 0 or row + len(picks) < last:
                break
        return plan

    def note(self, state: PartitionState, plan: list[SegmentPicks], *, is_cold: bool) -> None:
        """Note the reads of settled segments for the page cache."""
        for segment, picks, part_end in plan:
            if segment.record is not None:
                last = picks[-1]
                end = last.position + last.size_bytes
                span = Span(segment, picks[0].position, end, part_end)
                self.page_cache.note(state, span, is_cold=is_cold)

    def read_cached(self, plan: list[SegmentPicks]) -> list[Buffer] | None:
        """Read the planned batches, or return None when that would wait for the disk."""
        batches: list[Buffer] = []
        for segment, picks, _ in plan:
            flags = self._nowait
            if not flags and segment.live is None:
                return None  # Cannot be known; live segments were written just now, and are cached.
            fd = self._catalog.handles.acquire(segment)
            try:
                batches += read_picks(fd, picks, flags)
            except WouldWait:
                return None
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise StorageUnavailable(f"{segment.path}: {error}") from error
                self._nowait = 0  # The file system does not support the flag: tmpfs, NFS.
                return self.read_cached(plan)
            finally:
                self._catalog.handles.release(segment)
        return batches

    async def read(self, plan: list[SegmentPicks]) -> list[Buffer]:
        """Read the planned batches, waiting for the disk in a thread."""
        held = [segment for segment, _, _ in plan]
        try:
            # All at once: planned segments may be settled, and their files removed, meanwhile.
            for segment in held:
                self._catalog.handles.acquire(segment)
        except (OSError, NoDescriptors) as error:
            for other in held[: held.index(segment)]:
                self._catalog.handles.release(other)
            raise StorageUnavailable(f"{segment.path}: {error}") from error
        batches: list[Buffer] = []
        try:
            for segment, picks, _ in plan:
                batches += await self.in_thread(
                    segment,
                    lambda fd, picks=picks: read_picks(fd, picks, 0),  # type: ignore[misc]
                )
        finally:
            for segment in held:
                self._catalog.handles.release(segment)
        return batches

    async def in_thread(self, segment: Segment, work: Callable[[int], _Result]) -> _Result:
        """Run ``work(descriptor)`` in a thread while the segment is held."""
        loop = asyncio.get_running_loop()
        fd = self._catalog.handles.acquire(segment)
        work_done = loop.run_in_executor(self._executor, work, fd)
        # A cancelled reader must not release a descriptor that a thread still uses.
        work_done.add_done_callback(lambda _: self._catalog.handles.release(segment))
        try:
            return await asyncio.shield(work_done)
        except OSError as error:
            raise StorageUnavailable(f"{segment.path}: {error}") from error

    def stop(self) -> None:
        """End the threads once their reads are done."""
        self._executor.shutdown(wait=True)


def pick(  # A search, called once per segment and read.
    rows: Rows, row: int, last: int, end: int, bytes_max: int, *, is_first: bool
) -> tuple[list[Pick], int]:
    """Return the batches of rows [row, last) below ``end``, and the rest of the byte budget.

    ``is_first``: at least one batch is returned, even above ``bytes_max``.
    """
    picks: list[Pick] = []
    at, stop = row * ROW_STRIDE, last * ROW_STRIDE
    while at < stop:
        base_offset = rows[at]
        if base_offset >= end:
            break
        place = rows[at + 2]
        size_bytes = place >> 32
        if size_bytes > bytes_max and not is_first:
            break
        is_first = False
        bytes_max -= size_bytes
        picks.append(Pick(place & LOW_32, size_bytes, base_offset, rows[at + 3]))
        at += ROW_STRIDE
    return picks, bytes_max


def read_picks(fd: int, picks: list[Pick], flags: int) -> list[Buffer]:
    """Return the batches, base offsets filled in, as views of one buffer.

    The header's fields that a row repeats are restored from it: so a reader finds the next batch
    after a damaged one. Errors: ``WouldWait`` with RWF_NOWAIT, ``OSError``,
    ``StorageUnavailable`` when the file is too short.
    """
    spans = _join(picks)
    buffer = bytearray(sum([end - start for start, end in spans]))
    view = memoryview(buffer)
    starts = []
    at = 0
    for start, end in spans:
        try:
            if os.preadv(fd, [view[at : at + end - start]], start, flags) != end - start:
                raise WouldWait if flags else _missing(start, end)
        except BlockingIOError as error:
            raise WouldWait from error
        starts.append(at - start)
        at += end - start
    return _cut(view, picks, spans, starts)


def _missing(start: int, end: int) -> StorageUnavailable:
    return StorageUnavailable(f"a segment ends before position {end}, read from {start} on")


def _join(picks: list[Pick]) -> list[tuple[int, int]]:
    """Return the position ranges that hold all of ``picks``, near ones joined."""
    spans: list[tuple[int, int]] = []
    start, end = picks[0].position, picks[0].position
    for position, size_bytes, _, _ in picks:
        if position - end > GAP_BYTES_MAX:
            spans.append((start, end))
            start = position
        end = position + size_bytes
    spans.append((start, end))
    return spans


def _cut(
    view: memoryview, picks: list[Pick], spans: list[tuple[int, int]], shifts: list[int]
) -> list[Buffer]:
    """Return the batches as slices of ``view``; ``shifts``: position to index, per span."""
    batches: list[Buffer] = []
    span = 0
    for position, size_bytes, base_offset, row_span in picks:
        while position >= spans[span][1]:
            span += 1
        at = position + shifts[span]
        stored_offset, length, epoch, magic, delta = _FRONT.unpack_from(view, at)
        if (
            length + LENGTH_OVERHEAD_BYTES != size_bytes
            or magic != MAGIC
            or delta + 1 + (epoch << HIGH_SHIFT) != row_span
        ):
            _mend(view[at : at + size_bytes], row_span)
        if stored_offset != base_offset:  # One of several targets; the buffer is ours alone.
            _BASE_OFFSET.pack_into(view, at, base_offset)
        batches.append(view[at : at + size_bytes])
    return batches


def _mend(batch: memoryview, row_span: int) -> None:
    """Restore the header's fields that the row repeats; the CRC covers the rest."""
    _INT32.pack_into(batch, LENGTH_AT, len(batch) - LENGTH_OVERHEAD_BYTES)
    _INT32.pack_into(batch, LEADER_EPOCH_AT, row_span >> HIGH_SHIFT)
    batch[MAGIC_AT] = MAGIC
    if crc32c(batch[ATTRIBUTES_AT:]) != _CRC.unpack_from(batch, CRC_AT)[0]:
        _INT32.pack_into(batch, LAST_OFFSET_DELTA_AT, (row_span & LOW_32) - 1)
