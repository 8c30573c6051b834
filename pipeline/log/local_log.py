"""Views of a node's data directory for readers outside the node: topics, partitions, extents.

Nothing is locked or written. The node continues meanwhile: it closes segments, and rewrites closed
ones into settled ones. So a view is taken again when one of its files was removed meanwhile, and a
split whose file is gone when it is read locates its offsets again (``relocate``): they are in
another file, or retention has removed them.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gateway.errors import StorageUnavailable
from gateway.model import PartitionIdentity
from pipeline.log.live_segment import LiveSegment, read_live
from pipeline.log.transactions import with_transactions
from pipeline.log.views import Extent, FileGone, PartitionView, found_again
from storage_adapters.formats.footer import LOW_32, ROW_STRIDE, Footer, Part, Rows
from storage_adapters.formats.manifest import Manifest
from storage_adapters.formats.row_search import find_offset
from storage_adapters.formats.segment import KIND_LOG, KIND_SETTLED
from storage_adapters.formats.synced import SyncedMark
from storage_adapters.segment_log.loading import Loaded, load_segment, mapped
from storage_adapters.segment_log.segments import (
    WAL_DIRECTORY,
    list_segments,
    map_footer,
    settled_path,
)
from storage_adapters.segment_log.settled_files import read_manifest
from storage_adapters.segment_log.synced import read_mark

_TRIES_MAX: Final = 20  # more failures have another cause


def read_view(data_dir: Path, *, with_unsynced: bool = False) -> dict[int, PartitionView]:
    """Return all partitions by id, as durable now.

    Records that are written but not synced are left out unless requested: after a loss of power
    other records may get their offsets. Errors: ``StorageUnavailable`` for a folder without a log
    or with files that cannot be read.
    """
    if not list_segments(data_dir):
        raise StorageUnavailable(f"{data_dir} holds no log: there is no segment in its `wal`")
    for _ in range(_TRIES_MAX):
        try:
            found = _View(data_dir, with_unsynced=with_unsynced).partitions()
            return with_transactions(found, lambda path, _: open_extents(path))
        except (FileNotFoundError, FileGone):
            continue  # the node has replaced a file since its list was read
    raise StorageUnavailable(f"{data_dir} changes faster than it can be looked at")


def relocate(data_dir: Path, extents: Sequence[Extent]) -> list[list[Extent]]:
    """Return the new places of extents. Error: ``OffsetOutOfRange`` when some were removed."""
    views = read_view(data_dir, with_unsynced=True)
    return [found_again(views, extent) for extent in extents]


@contextmanager
def open_extents(path: str) -> "Iterator[SegmentReader]":
    """Map a file of a view; a file removed meanwhile stays readable.

    Error: ``FileGone``.
    """
    try:
        with mapped(Path(path)) as data:
            yield SegmentReader(Path(path), data)
    except FileNotFoundError:
        raise FileGone(path) from None


class SegmentReader:
    """Reader of the batches of extents in one mapped file."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self._path = path
        self._data = data
        self._footer: Footer | None = None

    def batches(self, extent: Extent) -> Iterator[tuple[int, memoryview]]:
        """See ``ExtentReader``."""
        rows, first_row, end_row = self._rows_of(extent)
        row = find_offset(rows, first_row, end_row, extent.first)
        while row < end_row and rows[row * ROW_STRIDE] < extent.end:
            place = rows[row * ROW_STRIDE + 2]
            position = place & LOW_32
            yield rows[row * ROW_STRIDE], self._data[position : position + (place >> 32)]
            row += 1

    def _rows_of(self, extent: Extent) -> tuple[Rows, int, int]:
        if extent.rows is not None:
            rows = memoryview(extent.rows).cast("q")
            return rows, 0, len(rows) // ROW_STRIDE
        if self._footer is None:
            is_wal = self._path.parent.name == WAL_DIRECTORY
            self._footer = _footer_of(self._path, KIND_LOG if is_wal else KIND_SETTLED)
        part = self._footer.find(extent.partition_id)
        assert part is not None, "the view was made of this footer"
        return self._footer.rows, part.first_row, part.first_row + part.row_count


class _View:
    """One pass over the files of a data directory, oldest first."""

    def __init__(self, data_dir: Path, *, with_unsynced: bool) -> None:
        self._data_dir = data_dir
        self._with_unsynced = with_unsynced
        self._identities: dict[int, PartitionIdentity] = {}
        self._bounds: dict[int, tuple[int, int]] = {}
        self._extents: dict[int, list[Extent]] = {}
        self._deleted: set[int] = set()

    def partitions(self) -> dict[int, PartitionView]:
        """Return all partitions. Error: ``FileNotFoundError`` when files changed meanwhile."""
        mark = read_mark(self._data_dir)  # before the segments, which then hold all of it
        manifest = read_manifest(self._data_dir)
        upto = 0
        if manifest is not None:
            upto = manifest.wal_upto
            self._add_settled(manifest)
        wal = [
            load_segment(path, number)
            for number, path in list_segments(self._data_dir)
            if number > upto
        ]
        live = {
            loaded.path: read_live(loaded.path, loaded.header)
            for loaded in wal
            if loaded.segment is not None and loaded.segment.trailer is None
        }
        durable_sequences = _durable_sequences(wal, live, mark)
        for loaded, durable_sequence in zip(wal, durable_sequences, strict=True):
            if loaded.path in live:
                self._add_live(loaded.path, live[loaded.path], durable_sequence)
            elif loaded.segment is not None:
                self._add_closed(loaded.path)
        if manifest != read_manifest(self._data_dir):
            raise FileNotFoundError("the manifest was replaced meanwhile")
        return {
            partition_id: self._view(partition_id)
            for partition_id in self._identities
            if partition_id not in self._deleted
        }

    def _view(self, partition_id: int) -> PartitionView:
        start, end = self._bounds[partition_id]
        extents = [
            extent._replace(first=max(extent.first, start))
            for extent in self._extents.get(partition_id, ())
            if extent.end > start
        ]
        return PartitionView(self._identities[partition_id], start, end, extents)

    def _add_settled(self, manifest: Manifest) -> None:
        for record in manifest.files:
            path = settled_path(self._data_dir, record.number)
            footer = _footer_of(path, KIND_SETTLED)
            for part in footer:
                introduction = footer.introduction(part)
                if part.partition_id in record.dead or introduction is None:
                    continue
                if record.number == manifest.directory:
                    self._note(introduction.identity, part)
                else:  # here the bounds are the offsets that the file covers
                    self._put(path, part, part.start, part.end)
        for extents in self._extents.values():
            extents.sort(key=lambda extent: extent.first)

    def _add_closed(self, path: Path) -> None:
        footer = _footer_of(path, KIND_LOG)
        for part in footer:
            introduction = footer.introduction(part)
            self._note(None if introduction is None else introduction.identity, part)
            if part.row_count:
                self._put(path, part, part.first_offset, part.end)

    def _add_live(self, path: Path, live: LiveSegment, durable_sequence: int) -> None:
        """Add a segment without a footer, up to the durable sequence."""
        upto = None if self._with_unsynced else durable_sequence
        for found in live.parts(upto_sequence=upto):
            part = found.to_part()
            self._note(found.identity, part)
            if part.row_count:
                self._put(path, part, part.first_offset, part.end, found.rows.tobytes())

    def _note(self, identity: PartitionIdentity | None, part: Part) -> None:
        if part.is_deleted:
            self._deleted.add(part.partition_id)
        elif identity is not None:
            self._identities[part.partition_id] = identity
            self._bounds[part.partition_id] = (part.start, part.end)

    def _put(
        self, path: Path, part: Part, first: int, end: int, rows: bytes | None = None
    ) -> None:
        extent = Extent(
            str(path),
            part.partition_id,
            first,
            end,
            part.size_bytes,
            rows,
            max_timestamp_unix_ms=part.max_timestamp_unix_ms,
        )
        self._extents.setdefault(part.partition_id, []).append(extent)


def _durable_sequences(
    wal: Sequence[Loaded], live: Mapping[Path, LiveSegment], mark: SyncedMark | None
) -> list[int]:
    """Return the durable sequence of each log segment, by its and later segments' entries.

    The mark counts, too, if there is one. A segment is synced before it gets its footer.
    """
    found: list[int] = []
    is_ours = mark is not None and any(one.header.data_uuid == mark.data_uuid for one in wal)
    durable = mark.sequence if mark is not None and is_ours else -1
    for loaded in reversed(wal):
        if loaded.path in live:
            durable = max(durable, live[loaded.path].durable_sequence)
        elif loaded.segment is not None and loaded.segment.trailer is not None:
            durable = max(durable, loaded.segment.trailer.next_sequence - 1)
        found.append(durable)
    return found[::-1]


def _footer_of(path: Path, kind: int) -> Footer:
    """Map the footer of a closed segment. Errors: ``FileNotFoundError``, ``StorageUnavailable``."""
    loaded = load_segment(path, int(path.stem), kind)
    if loaded.segment is None or loaded.segment.trailer is None:
        raise StorageUnavailable(
            f"{path}: its footer is damaged. `headgate log verify` says what else is, and a "
            "restart of the node rebuilds the footer of a segment of `wal`"
        )
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return map_footer(fd, loaded.segment.trailer)
    finally:
        os.close(fd)
