"""Key indexes of a log: files beside settled segments, memory for batches not settled yet.

An index lies beside its segment, ``<number>.kix``, and bears the segment's seed. It is made
from the segment after that is in use, so that settling does not wait for it; without one, or with
a damaged one, a search uses the index in memory (``live_keys``), or reads the segment.
Only the speed of searches depends on either.
"""

import asyncio
import mmap
import os
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple, Protocol

from gateway.errors import RequestError, StorageUnavailable
from gateway.model import Buffer, parse_batch_header
from gateway.storage import KeySpans, WantedKeys
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.footer import LOW_32, ROW_STRIDE, Part, Rows
from storage_adapters.formats.key_index import KeyIndex
from storage_adapters.formats.key_index_builder import KeysOf, build_key_index
from storage_adapters.formats.manifest import SHARED
from storage_adapters.segment_log.catalog import Catalog
from storage_adapters.segment_log.files import Files, write_all
from storage_adapters.segment_log.key_rows import Span, offset_of, rows_with_keys, spans_of_rows
from storage_adapters.segment_log.live_keys import STRETCH_BYTES, LiveKeys
from storage_adapters.segment_log.segments import SETTLED_DIRECTORY, Segment
from storage_adapters.segment_log.settled_output import Pace, Stopped

KEY_INDEX_SUFFIX: Final = ".kix"
MAPPED_MAX: Final = 64
READ_BYTES: Final = 1_048_576
PARTS_PER_TICK: Final = 1_000


class Read(Protocol):
    """``StorageAdapter.read``."""

    def __call__(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> Awaitable[list[Buffer]]:
        """Return batches."""
        ...


class _Wanted(NamedTuple):
    """A settled segment to be indexed, with the partitions whose topics require it."""

    segment: Segment
    parts: list[Part]
    rows: Rows


class KeyIndexes:
    """Key indexes of one log. ``catalog`` is used on the loop's thread only."""

    def __init__(  # The parts that it reads, writes and waits for.
        self,
        catalog: Catalog,
        *,
        files: Files,
        data_dir: Path,
        pace: Pace,
        read: Read,
        memory_bytes_max: int,
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._folder = data_dir / SETTLED_DIRECTORY
        self._pace = pace
        self._read = read
        self._live = LiveKeys(memory_bytes_max)
        self._lock = Lock()
        self._mapped: OrderedDict[Path, KeyIndex] = OrderedDict()
        self._done: dict[int, frozenset[int]] = {}  # by segment number: partitions examined
        self._asked = frozenset[int]()
        self._is_cleaned = False
        self.built_count = 0
        self.built_bytes = 0
        self.undecodable_count = 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory for the keys of batches not settled yet."""
        return self._live.used_bytes

    # Building.

    async def index(self, wanted: frozenset[int], keys_of: KeysOf) -> int:
        """Build the missing indexes of ``wanted`` partitions; return the number of files.

        Removes indexes whose segments are gone. Errors: ``OSError``, for lack of space too;
        indexes built until then stay.
        """
        if not wanted and not self._asked and self._is_cleaned:
            return 0
        loop = asyncio.get_running_loop()
        self._asked = wanted
        numbers = frozenset(self._catalog.settled.segments)
        await loop.run_in_executor(None, self._clean, numbers)
        self._is_cleaned = True
        self._done = {number: ids for number, ids in self._done.items() if number in numbers}
        count = 0
        for segment in list(self._catalog.settled.segments.values()):
            found = await self._wanted_of(segment, wanted)
            if found is None:
                continue
            with suppress(Stopped, FileNotFoundError):  # The segment was replaced meanwhile.
                count += await loop.run_in_executor(None, self._build, found, keys_of)
                ids = frozenset(part.partition_id for part in found.parts)
                self._done[segment.number] = ids
        self._live.keep_only(wanted)
        for partition_id in wanted:
            with suppress(
                Stopped, StorageUnavailable
            ):  # The segment is searched as a whole then.
                await self._note_live(partition_id, keys_of)
        return count

    async def _note_live(self, partition_id: int, keys_of: KeysOf) -> None:
        """Add the keys of batches appended since the last call; forget those indexed now."""
        state = self._catalog.states.get(partition_id)
        if state is None or state.is_deleted:
            return  # Nothing was appended since the start, or nothing is left.
        parts = self._catalog.settled.parts(self._catalog.footers, partition_id)
        settled_end = max([state.start, *(part.end for _, part in parts)])
        self._live.forget_before(partition_id, settled_end)
        offset = max(settled_end, self._live.end(partition_id))
        loop = asyncio.get_running_loop()
        while offset < state.end and not self._live.is_full:
            batches = await self._read(partition_id, offset, state.end, bytes_max=STRETCH_BYTES)
            if not batches:
                return
            hashes, is_whole = await loop.run_in_executor(None, self._hashes, batches, keys_of)
            end = parse_batch_header(batches[-1]).last_offset + 1
            size_bytes = sum(map(len, batches))
            self._live.add(partition_id, (offset, end), size_bytes, hashes, is_whole=is_whole)
            offset = end

    def _hashes(self, batches: Sequence[Buffer], keys_of: KeysOf) -> tuple[set[int], bool]:
        """Return a hash of each key, and whether all batches could be decoded. In a thread."""
        hashes: set[int] = set()
        is_whole = True
        for batch in batches:
            try:
                hashes.update(map(hash, keys_of(batch)))
            except RequestError:
                is_whole = False
        self._pace.spend(sum(map(len, batches)))
        return hashes, is_whole

    async def _wanted_of(self, segment: Segment, wanted: frozenset[int]) -> _Wanted | None:
        """Return the partitions of a segment to be indexed; None when there is nothing to do."""
        if segment.is_gone or segment.record is None:
            return None
        if segment.record.owner != SHARED and segment.record.owner not in wanted:
            return None
        footer = self._catalog.footers.get(segment)
        parts = []
        for index in range(len(footer)):
            part = footer.part(index)
            if part.row_count and part.partition_id in wanted:
                parts.append(part)
            if index % PARTS_PER_TICK == PARTS_PER_TICK - 1:
                await asyncio.sleep(0)
        ids = {part.partition_id for part in parts} - segment.record.dead
        if ids <= self._done.get(segment.number, frozenset()):
            return None
        return _Wanted(segment, parts, footer.rows)

    def _build(self, wanted: _Wanted, keys_of: KeysOf) -> bool:
        """Write a segment's index unless it exists. In a thread."""
        segment = wanted.segment
        path = segment.path.with_suffix(KEY_INDEX_SUFFIX)
        known = self._get(segment)
        if known is not None:
            listed = {row.partition_id for row in known.partitions()}
            if listed >= {part.partition_id for part in wanted.parts}:
                return False
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = build_key_index(
                self._batches(fd, wanted),
                keys_of,
                segment_number=segment.number,
                segment_seed=segment.header.seed,
            )
        finally:
            os.close(fd)
        self._write(path, data)
        self.built_count += 1
        self.built_bytes += len(data)
        self.undecodable_count += KeyIndex(memoryview(data)).header.undecodable_count
        return True

    def _batches(self, fd: int, wanted: _Wanted) -> Iterator[tuple[int, int, Buffer]]:
        for part in wanted.parts:
            places = wanted.rows[2 + part.first_row * ROW_STRIDE :: ROW_STRIDE]
            for first, last in _pieces(places, part.row_count):
                start = places[first] & LOW_32
                end = (places[last - 1] & LOW_32) + (places[last - 1] >> 32)
                piece = memoryview(os.pread(fd, end - start, start))
                for row in range(first, last):
                    at = (places[row] & LOW_32) - start
                    yield part.partition_id, row, piece[at : at + (places[row] >> 32)]
                self._pace.spend(end - start)

    def _write(self, path: Path, data: bytes) -> None:
        unfinished = path.with_suffix(f"{KEY_INDEX_SUFFIX}.new")
        if unfinished.exists():
            self._files.unlink(unfinished)
        fd = self._files.create(unfinished)
        try:
            write_all(self._files, fd, [data], 0)
            self._files.sync(fd)
        finally:
            os.close(fd)
        self._files.rename(unfinished, path)
        self._files.sync_directory(path.parent)
        with self._lock:
            self._mapped.pop(path, None)

    def _clean(self, numbers: frozenset[int]) -> None:
        """Remove the indexes of segments that are no longer in use. In a thread."""
        for path in self._folder.glob(f"*{KEY_INDEX_SUFFIX}*"):
            stem = path.name.partition(".")[0]
            if stem.isdecimal() and (int(stem) not in numbers or path.suffix == ".new"):
                with self._lock:
                    self._mapped.pop(path, None)
                self._files.unlink(path)

    # Searching.

    async def spans_with_keys(
        self, partition_id: int, keys: WantedKeys, start: int, end: int
    ) -> KeySpans:
        """See ``gateway.storage.IndexedStorage``. An answer covers one file at most."""
        state = self._catalog.state(partition_id)
        loop = asyncio.get_running_loop()
        for segment, part, rows in self._catalog.places(state, start):
            if part.first_offset >= end:
                break
            upto = min(part.end, end)
            found = await loop.run_in_executor(None, self._spans, segment, part, rows, keys)
            spans = [(max(low, start), min(high, upto)) for low, high in found]
            return KeySpans([span for span in spans if span[0] < span[1]], upto)
        return KeySpans([], end)

    def _spans(self, segment: Segment, part: Part, rows: Rows, keys: WantedKeys) -> list[Span]:
        """Return the offset ranges of a segment that may hold wanted keys. In a thread."""
        index = None if segment.record is None else self._get(segment)
        covered, spans = 0, list[Span]()
        if index is not None:
            with suppress(Damaged):
                listed = min(index.rows_covered(part.partition_id), part.row_count)
                found = rows_with_keys(index, part, keys, rows_max=listed // 2)
                if found is not None:
                    listed_rows = [row for row in found if row < listed]
                    spans = list(spans_of_rows(part, rows, listed_rows))
                elif listed:
                    spans = [(offset_of(part, rows, 0), offset_of(part, rows, listed))]
                covered = listed  # from here on nothing can fail
        if covered < part.row_count:
            spans += self._live_spans(part, keys, offset_of(part, rows, covered))
        return spans

    def _live_spans(self, part: Part, keys: WantedKeys, start: int) -> Iterable[Span]:
        if keys.prefixes:
            return [(start, part.end)]  # a hash does not tell the key's prefix
        hashes = frozenset(map(hash, keys.exact))
        return self._live.spans(part.partition_id, hashes, start, part.end)

    def _get(self, segment: Segment) -> KeyIndex | None:
        """Return a segment's index, or None without a usable one."""
        path = segment.path.with_suffix(KEY_INDEX_SUFFIX)
        with self._lock:
            index = self._mapped.get(path)
            if index is not None:
                self._mapped.move_to_end(path)
                return index
            try:
                index = _map(path)
                index.check()  # 1 ms for 5 MB; without it a damaged index could hide records
            except (FileNotFoundError, Damaged, TooNew, ValueError):
                return None
            header = index.header
            if (header.segment_number, header.segment_seed) != (
                segment.number,
                segment.header.seed,
            ):
                return None
            self._mapped[path] = index
            if len(self._mapped) > MAPPED_MAX:
                self._mapped.popitem(last=False)
            return index


def _map(path: Path) -> KeyIndex:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return KeyIndex(memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ)))
    finally:
        os.close(fd)


def _pieces(places: Sequence[int], row_count: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of at least one row whose batches lie within about ``READ_BYTES``.

    In a file with shared batches, those of other partitions may lie between.
    """
    first = 0
    for row in range(row_count):
        end = (places[row] & LOW_32) + (places[row] >> 32)
        if row > first and end - (places[first] & LOW_32) > READ_BYTES:
            yield first, row
            first = row
    if first < row_count:
        yield first, row_count
