"""S3 storage: the storage adapter on objects of a bucket."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from gateway.clock import Clock
from gateway.errors import StorageUnavailable
from gateway.metrics import Metrics
from gateway.model import Buffer
from gateway.storage import (
    Bounds,
    DiskUsage,
    Drops,
    Entry,
    Keep,
    OnDone,
    Rewritten,
    StorageHost,
    StoredHeader,
)
from storage_adapters.s3 import queries
from storage_adapters.s3.appender import Appender, Group
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.caching import ObjectCache
from storage_adapters.s3.committer import Committer
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index_thread import IndexThread
from storage_adapters.s3.log_ends import DataPlace
from storage_adapters.s3.log_starts import LogStarts
from storage_adapters.s3.login_object import keep_login_required
from storage_adapters.s3.merged_change import Changer
from storage_adapters.s3.merging import Merger
from storage_adapters.s3.metrics import (
    register_bucket,
    register_cache,
    register_commits,
    register_counts,
    register_merges,
)
from storage_adapters.s3.objects import Part
from storage_adapters.s3.opening import Opened, introduce, open_data
from storage_adapters.s3.other_writers import OtherWriters
from storage_adapters.s3.reading import Reader
from storage_adapters.s3.rewriting import Rewriter
from storage_adapters.s3.rows import RowsCache, load_rows, read_rows, rows_max_of
from storage_adapters.s3.scanning import scan
from storage_adapters.s3.scrubber import Scrubber
from storage_adapters.s3.sizes import offset_for_size
from storage_adapters.s3.state import KIND_LOG, Catalog
from storage_adapters.s3.sweeper import Sweeper
from storage_adapters.s3.uploader import Uploaded, Uploader

NUMBERS_RESERVED: Final = 24  # beside one for each upload; half are drawn at a time
_UNBOUNDED_BYTES: Final = 1 << 60  # a bucket is never full
_NOT_OPEN: Final = "the storage is not open"


class S3Storage:
    """Batches in objects of a bucket, shared by all topics; their index in SQL.

    Durability: what was acknowledged is in the bucket, and the database has committed where. The
    rest of the contract: ``gateway.storage.StorageAdapter``.
    """

    Config = S3Config

    def __init__(
        self, config: S3Config, *, data_dir: Path, clock: Clock, is_shared: bool = False
    ) -> None:
        """``is_shared``: other nodes append too, each to partitions of its own."""
        self._config = config
        self._is_shared = is_shared
        self._data_dir = data_dir
        self._clock = clock
        self._catalog = Catalog()
        self._is_open = False
        self._host: StorageHost
        self._bucket: Bucket
        self._committer: Committer
        self._look_ups: IndexThread
        self._rows: RowsCache
        self._cache: ObjectCache
        self._reader: Reader
        self._appender: Appender
        self._uploader: Uploader
        self._starts: LogStarts
        self._merger: Merger
        self._rewriter: Rewriter
        self._sweeper: Sweeper
        self._scrubber: Scrubber
        self.others: OtherWriters
        self.data_uuid = UUID(int=0)
        self.is_empty = True

    # The contract, in its order.

    @property
    def incarnation(self) -> int:
        """See ``StorageAdapter``: the owner's epoch."""
        return self._committer.epoch

    @property
    def next_sequence(self) -> int:
        """See ``StorageAdapter``."""
        return self._appender.next_sequence

    @property
    def queued_bytes(self) -> int:
        """See ``StorageAdapter``."""
        return self._appender.queued_bytes

    async def open(self, host: StorageHost) -> None:
        """See ``StorageAdapter``. It fences off another node on the same data."""
        self._host = host
        self._bucket = Bucket(self._config, self._clock)
        loop = asyncio.get_running_loop()
        opened = await loop.run_in_executor(
            None,
            open_data,
            *(self._config, self._bucket, host, self._clock, self._reserve, self._is_shared),
        )
        self._catalog = opened.catalog
        self.data_uuid, self.is_empty = opened.data_uuid, opened.is_empty
        self._build(opened)
        self._is_open = True
        self._merger.start()
        self._sweeper.start()
        self._scrubber.start()

    def enqueue(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        """See ``StorageAdapter``. Refused after a long outage of bucket or database."""
        self._check_open()
        waits_ms = self._uploader.waits_ms
        if waits_ms > self._config.refuse_after_ms:
            raise StorageUnavailable(
                f"storage.refuse_after_ms: bucket or database are away, appends wait {waits_ms} ms"
            )
        self._appender.append(entries, on_done, reserved=reserved)

    def bounds(self, partition_id: int) -> Bounds:
        """See ``StorageAdapter``."""
        state = self._catalog.partitions.get(partition_id)
        if state is None or state.is_deleted:
            return Bounds(0, 0)
        return Bounds(state.start, state.end)

    def read_cached(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer] | None:
        """See ``StorageAdapter``."""
        state = self._catalog.partition(partition_id)
        return self._reader.read_cached(state, start, end, bytes_max=bytes_max)

    async def read(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer]:
        """See ``StorageAdapter``."""
        state = self._catalog.partition(partition_id)
        return await self._reader.read(state, start, end, bytes_max=bytes_max)

    async def base_offset_for_time(
        self, partition_id: int, timestamp_unix_ms: int
    ) -> int | None:
        """See ``StorageAdapter``."""
        state = self._catalog.partition(partition_id)
        return await queries.base_offset_for_time(self._reader, state, timestamp_unix_ms)

    def offset_for_size(self, partition_id: int, bytes_max: int) -> int:
        """See ``StorageAdapter``."""
        state = self._catalog.partition(partition_id)
        return offset_for_size(self._rows, state, bytes_max)

    def end_offset_for_epoch(self, partition_id: int, leader_epoch: int) -> tuple[int, int]:
        """See ``StorageAdapter``."""
        state = self._catalog.partition(partition_id)
        return queries.end_offset_for_epoch(state, leader_epoch)

    def size_bytes(self, partition_id: int) -> int:
        """See ``StorageAdapter``."""
        return self._catalog.partition(partition_id).size_bytes()

    def scan(self, from_sequence: int) -> Iterator[StoredHeader]:
        """See ``StorageAdapter``. Reads objects from the bucket, some at a time."""
        return scan(self._catalog, self._bucket, self._config.prefix, from_sequence)

    def truncate_before(self, partition_id: int, offset: int, on_done: OnDone) -> None:
        """See ``StorageAdapter``."""
        self._check_open()
        self._starts.truncate_before(partition_id, offset, on_done)

    def delete(self, partition_ids: Sequence[int], on_done: OnDone) -> None:
        """See ``StorageAdapter``."""
        self._check_open()
        self._starts.delete(partition_ids, on_done)

    def release_scans_before(self, sequence: int) -> None:
        """See ``StorageAdapter``: older objects may be merged."""
        if self._is_open:
            self._merger.release_scans_before(sequence)

    def settled_offset(self, partition_id: int) -> int:
        """See ``CompactingStorage``: the end of the merged objects."""
        return self._rewriter.settled_offset(partition_id)

    async def rewrite(
        self, partition_id: int, upto_offset: int, keep: Keep, drops: Drops | None = None
    ) -> Rewritten:
        """See ``CompactingStorage``."""
        self._check_open()
        return await self._rewriter.rewrite(partition_id, upto_offset, keep, drops)

    def disk_usage(self) -> DiskUsage:
        """See ``StorageAdapter``: the size of all objects."""
        objects = self._catalog.objects.values()
        log_bytes = sum([one.size_bytes for one in objects if one.kind == KIND_LOG])
        all_bytes = sum([one.size_bytes for one in objects])
        return DiskUsage(log_bytes, all_bytes - log_bytes, _UNBOUNDED_BYTES)

    async def keep_login_required(self, *, required: bool) -> None:
        """See ``LoginStorage``: an object beside the others."""
        await asyncio.to_thread(
            keep_login_required, self._config, self._bucket, required=required
        )

    async def close(self) -> None:
        """See ``StorageAdapter``. Appends not in the bucket after ``close_ms_max`` fail."""
        if not self._is_open:
            return
        self._is_open = False
        ms_max = self._config.close_ms_max
        cutting = asyncio.get_running_loop().call_later(ms_max / 1_000, self._cut)
        await self._scrubber.stop()
        await self._sweeper.stop()
        await self._merger.stop()
        self._appender.seal()
        await self._uploader.drain(ms_max)
        await self._starts.drain()
        await self._uploader.stop()
        self._cache.close()
        await self._look_ups.stop()
        await self._committer.stop()
        cutting.cancel()
        self._bucket.close()

    def _cut(self) -> None:
        """Stop waiting for a database that hangs."""
        self._look_ups.cut()
        self._committer.cut()

    # Values for metrics.

    def register_metrics(self, metrics: Metrics) -> None:
        """Add the storage's own metrics to the node's."""
        self._uploader.metrics.register(metrics)
        register_bucket(metrics, self._bucket)
        register_cache(metrics, self._cache)
        register_commits(metrics, self._committer)
        register_merges(metrics, self._merger)
        self._sweeper.register(metrics)
        self._scrubber.register(metrics)
        register_counts(metrics, self._catalog, lambda: self._uploader.waiting_count)

    # Opening.

    @property
    def _reserve(self) -> int:
        return self._config.uploads_max + NUMBERS_RESERVED

    def _build(self, opened: Opened) -> None:
        config, catalog = self._config, self._catalog
        self._committer = Committer(
            opened.database,
            epoch=opened.ownership.epoch,
            reserved=opened.ownership.reserved,
            reserve=self._reserve,
            on_fault=self._host.on_fault,
        )
        self._look_ups = IndexThread(opened.look_ups, "headgate-look-up")
        self._rows = RowsCache(
            partial(load_rows, self._look_ups),
            bytes_max=config.rows_cache_bytes,
            rows_max=partial(rows_max_of, catalog),
        )
        self._cache = ObjectCache(
            self._bucket, config, data_dir=self._data_dir, prefix=config.prefix
        )
        place = DataPlace(self._bucket, config.prefix, self.data_uuid)
        self.others = OtherWriters(catalog, self._look_ups, place, self._clock, self._forget)
        refresh = self.others.refresh if self._is_shared else None
        self._reader = Reader(catalog, self._rows, self._cache, config, refresh=refresh)
        self._starts = LogStarts(catalog, self._rows, self._committer)
        changer = Changer(
            catalog,
            self._bucket,
            self._committer,
            self._rows,
            prefix=config.prefix,
            forget=self._forget,
            tail=self._tail,
        )
        self._merger = Merger(
            config,
            catalog,
            changer,
            self._clock,
            data_uuid=self.data_uuid,
            introduce=lambda partition_id: introduce(catalog, partition_id, self._host),
            untold=self._starts.untold,
            is_uploading=self._is_uploading,
        )
        self._rewriter = Rewriter(catalog, changer, self._merger, self._rows)
        self._sweeper = Sweeper(
            config,
            catalog,
            self._clock,
            bucket=self._bucket,
            committer=self._committer,
            merger=self._merger,
        )
        self._scrubber = Scrubber(
            config,
            catalog,
            self._bucket,
            rows_of=partial(read_rows, catalog, self._look_ups),
            identify=self._host.identify,
        )
        self._uploader = Uploader(
            config,
            self._bucket,
            self._committer,
            self._clock,
            data_uuid=self.data_uuid,
            describe=self._describe,
            publish=self._publish,
            finished=self._finished,
        )
        self._appender = Appender(
            config,
            catalog,
            next_sequence=opened.ownership.next_sequence,
            on_sealed=self._uploader.add,
        )

    # Callbacks of the parts.

    def _describe(self, group: Group) -> dict[int, Part]:
        """Return the partitions of the footer of a group's object."""
        told = self._starts.untold.take()
        ids = {target.partition_id for entry in group.entries for target in entry.targets}
        return {one: introduce(self._catalog, one, self._host) for one in ids | told}

    def _publish(self, uploads: list[Uploaded]) -> None:
        """Publish committed extents to readers."""
        for upload in uploads:
            stored, parts, _ = upload.new
            self._catalog.objects[stored.number] = stored
            self._rows.put(stored.number, upload.built.rows)
            self._cache.put_tail(stored.number, upload.built.body)
            for partition_id, extent in parts:
                state = self._catalog.partitions.get(partition_id)
                if state is None:  # deleted and forgotten during the commit
                    self._starts.delete([partition_id], _ignore)
                elif not state.is_deleted:
                    state.extents.append(extent)
                    if extent.first < state.start:  # it moved during the commit
                        self._starts.truncate_before(partition_id, state.start, _ignore)
        self._merger.wake()

    def _finished(self, group: Group) -> None:
        self._appender.finished(group)

    def _is_uploading(self) -> bool:
        """Return whether at least half of the uploads are busy: merging waits. In any thread."""
        return 2 * self._uploader.waiting_count >= self._config.uploads_max

    def _tail(self, number: int) -> Buffer | None:
        """Return a recently written object, if it is in memory. In any thread."""
        run = self._cache.tail(number)
        return None if run is None else run.view

    def _forget(self, number: int) -> None:
        """Drop a dead object from all caches."""
        self._rows.drop(number)
        self._cache.drop(number)

    def _check_open(self) -> None:
        if not self._is_open:
            raise StorageUnavailable(_NOT_OPEN)
        if self._committer.fault is not None:
            raise self._committer.fault


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore an exception; the next start finds what was not committed."""
