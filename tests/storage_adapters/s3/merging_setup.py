"""Fixture for merges: a real bucket and a real index, without the rest of the adapter."""

import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from gateway.clock import ManualClock
from gateway.model import Buffer
from gateway.storage import Entry
from gateway.testing.storage import make_entry
from storage_adapters.formats.footer import LOW_32, ROW_STRIDE
from storage_adapters.formats.object_index import pack_rows
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.change import BoundsRow, Change, NewObject
from storage_adapters.s3.committer import Committer
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index import Index
from storage_adapters.s3.log_starts import UnwrittenStarts
from storage_adapters.s3.merged_change import Changer
from storage_adapters.s3.merging import Merger
from storage_adapters.s3.objects import Appends, ObjectHeader, Part, build_log_object
from storage_adapters.s3.opening import catalog_of
from storage_adapters.s3.rewriting import Rewriter
from storage_adapters.s3.rows import RowsCache
from storage_adapters.s3.state import KIND_LOG, Catalog, StoredObject, object_key
from storage_adapters.s3.sweeper import Sweeper
from tests.storage_adapters.s3.merge_catalog import DATA_UUID, footer_of, introduction
from tests.support.s3_servers import S3Server

Contents = dict[int, list[bytes]]


class MergingSetup:
    """A node's storage but for appends and reads, which are done here, one object at a time."""

    def __init__(self, server: S3Server, folder: Path, prefix: str, **settings: object) -> None:
        self.config = S3Config(
            bucket=server.bucket,
            prefix=prefix,
            endpoint_url=server.endpoint_url,
            **{
                "merge_objects_min": 4,
                "merge_after_ms": 60_000,
                "partition_object_bytes_min": 4_096,
                "delete_after_ms": 3_600_000,
                **settings,
            },
        )
        self.clock = ManualClock(unix_ms=1_000_000)
        self.url = f"sqlite:///{folder}/metadata.sqlite"
        self.bucket = Bucket(self.config, self.clock)
        self.faults: list[BaseException] = []
        self.forgotten: list[int] = []
        self.is_uploading = False
        self.tail: dict[int, Buffer] = {}

    async def open(self) -> "MergingSetup":
        """Take the data over, as a node that starts."""
        self.index = Index(self.url, clock=self.clock)
        self.index.open()
        self.index.set_data_uuid(DATA_UUID, self.config.bucket, self.config.prefix)
        ownership = self.index.take_over(1, reserve=8)
        self.catalog = catalog_of(self.index.load())
        self.next_sequence = ownership.next_sequence
        self.committer = Committer(
            self.index,
            epoch=ownership.epoch,
            reserved=ownership.reserved,
            reserve=8,
            on_fault=self.faults.append,
        )
        self.rows = RowsCache(
            lambda number: self.committer.run(lambda index: index.rows(number)),
            bytes_max=1 << 20,
        )
        self.changer = Changer(
            self.catalog,
            self.bucket,
            self.committer,
            self.rows,
            prefix=self.config.prefix,
            forget=self.forgotten.append,
            tail=self.tail.get,
        )
        self.untold = UnwrittenStarts(self.catalog)
        self.merger = Merger(
            self.config,
            self.catalog,
            self.changer,
            self.clock,
            data_uuid=DATA_UUID,
            introduce=self.introduce,
            untold=self.untold,
            is_uploading=lambda: self.is_uploading,
        )
        self.rewriter = Rewriter(self.catalog, self.changer, self.merger, self.rows)
        self.sweeper = Sweeper(
            self.config,
            self.catalog,
            self.clock,
            bucket=self.bucket,
            committer=self.committer,
            merger=self.merger,
        )
        return self

    async def close(self) -> None:
        """Let go of everything."""
        await self.sweeper.stop()
        await self.merger.stop()
        await self.committer.stop()

    def introduce(self, partition_id: int) -> Part:
        """Return what a footer says of a partition."""
        state = self.catalog.partition(partition_id)
        known = introduction(partition_id, state.start, state.end)
        return Part(
            state.start, state.end, state.is_deleted, None if state.is_deleted else known
        )

    async def append(self, *entries: Entry, told: Iterable[int] = ()) -> StoredObject:
        """Put and commit an object of appends of one entry each; they may be merged."""
        new = await self.put(entries, told)
        change = Change(added=(new,), next_sequence=new.stored.next_sequence)
        await self.committer.commit(change)
        self.next_sequence = new.stored.next_sequence
        self.catalog.objects[new.stored.number] = new.stored
        for partition_id, extent in new.parts:
            state = self.catalog.partition(partition_id)
            state.extents.append(extent)
            state.end = max(state.end, extent.end)
        self.merger.release_scans_before(self.next_sequence)
        return new.stored

    async def put(self, entries: Sequence[Entry], told: Iterable[int] = ()) -> NewObject:
        """Put an object of appends that is not committed."""
        number = await self.committer.take_number()
        ids = {target.partition_id for entry in entries for target in entry.targets}
        appends = Appends(entries, frozenset(range(len(entries))), self.next_sequence)
        place = ObjectHeader(DATA_UUID, number, self.committer.epoch, self.clock.unix_ms())
        parts = {i: self.introduce(i) for i in ids | set(told)}
        built = build_log_object(place, appends, parts)
        key = object_key(self.config.prefix, number, place.epoch)
        etag = self.bucket.put(key, [built.data])
        stored = StoredObject(
            number,
            KIND_LOG,
            place.epoch,
            appends.first_sequence,
            appends.next_sequence,
            len(built.data),
            etag,
            place.created_unix_ms,
            frozenset([part.partition_id for part in built.parts]),
        )
        return NewObject(stored, built.parts, pack_rows(built.rows))

    async def truncate(self, partition_id: int, start: int) -> None:
        """Move a log start."""
        self.catalog.partition(partition_id).start = start
        row = BoundsRow(partition_id, start, 0, is_deleted=False)
        await self.committer.commit(Change(bounds=(row,)))

    async def delete(self, partition_id: int) -> None:
        """Delete a partition."""
        state = self.catalog.partition(partition_id)
        state.is_deleted, state.extents = True, []
        row = BoundsRow(partition_id, state.start, 0, is_deleted=True)
        await self.committer.commit(Change(bounds=(row,)))

    def keys(self) -> list[int]:
        """Return the numbers of all objects that are in the bucket."""
        found = self.bucket.list(f"{self.config.prefix}objects/")
        return [int(stat.key.rpartition("/")[2].partition("-")[0]) for stat in found]

    def restarted(self) -> Catalog:
        """Return what a node would know that starts now."""
        index = Index(self.url, clock=self.clock)
        index.open()
        try:
            return catalog_of(index.load())
        finally:
            index.close()

    def contents(self, catalog: Catalog | None = None) -> Contents:
        """Return the batches of all partitions at or after their log starts, base offset filled in.

        Extents are checked: they follow on each other and agree with the footers.
        """
        catalog = catalog or self.catalog
        found: Contents = {}
        for state in catalog.partitions.values():
            if state.is_deleted:
                continue
            at = state.start
            batches = found[state.partition_id] = []
            for extent in state.extents:
                assert extent.first <= at < extent.end
                assert state.partition_id in catalog.objects[extent.number].partition_ids
                at = extent.end
                stored = catalog.objects[extent.number]
                key = object_key(self.config.prefix, stored.number, stored.epoch)
                data = self.bucket.get(key, 0, stored.size_bytes)
                batches += _batches(data, extent.first_row, extent.row_count, state.start)
        return found

    def below_bytes(self, partition_id: int) -> int:
        """Return what below_bytes must be."""
        state = self.catalog.partition(partition_id)
        extent = state.extents[0]
        stored = self.catalog.objects[extent.number]
        key = object_key(self.config.prefix, stored.number, stored.epoch)
        data = self.bucket.get(key, 0, stored.size_bytes)
        rows = (extent.first_row, extent.row_count)
        return sum(map(len, _batches(data, *rows, 0))) - sum(
            map(len, _batches(data, *rows, state.start))
        )


def _batches(data: Buffer, first_row: int, row_count: int, start: int) -> list[bytes]:
    rows = footer_of(bytes(data)).rows
    found = []
    for row in range(first_row, first_row + row_count):
        base_offset, _, place, span = rows[row * ROW_STRIDE : (row + 1) * ROW_STRIDE]
        if base_offset + (span & LOW_32) > start:
            batch = bytes(data[place & LOW_32 :][: place >> 32])
            found.append(struct.pack(">q", base_offset) + batch[8:])
    return found


NewSetup = Callable[..., Awaitable[MergingSetup]]


async def fill(setup: MergingSetup, count: int = 4, *, large: int = 2_000) -> None:
    """Append objects with one batch for each of partitions 1 (large), 2, and 3 with 2."""
    for _ in range(count):
        ends = [setup.catalog.partition(i).end for i in (1, 2, 3)]
        await setup.append(
            make_entry((1, ends[0]), size_bytes=large),
            make_entry((2, ends[1]), 2),
            make_entry([(3, ends[2]), (2, ends[1] + 2)]),
        )
