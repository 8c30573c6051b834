"""Segment log: the storage adapter on a local file system."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID

from gateway.clock import Clock
from gateway.errors import StorageFull, StorageUnavailable
from gateway.metrics import Metrics
from gateway.model import Buffer
from gateway.storage import (
    Bounds,
    DiskUsage,
    Drops,
    Entry,
    Keep,
    KeySpans,
    OnDone,
    Rewritten,
    StorageHost,
    StoredHeader,
    WantedKeys,
)
from storage_adapters.formats.entry import KIND_CLOSE
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES
from storage_adapters.segment_log import queries
from storage_adapters.segment_log.appender import Appender
from storage_adapters.segment_log.backup import HoldingFiles, LogCopier
from storage_adapters.segment_log.catalog import Catalog
from storage_adapters.segment_log.closing import Closer
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.files import Files, SystemFiles
from storage_adapters.segment_log.idle import IdleCloser
from storage_adapters.segment_log.key_indexes import KeyIndexes
from storage_adapters.segment_log.lockfile import DataLock
from storage_adapters.segment_log.login_file import LoginFile
from storage_adapters.segment_log.metrics import SegmentLogMetrics
from storage_adapters.segment_log.opening import Opened, open_data
from storage_adapters.segment_log.parts import (
    Dependencies,
    new_changer,
    new_closer,
    new_key_indexes,
    new_maker,
    new_settler,
)
from storage_adapters.segment_log.reading import Reader
from storage_adapters.segment_log.replay import stored_headers
from storage_adapters.segment_log.segment_files import (
    SegmentMaker,
)
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.settled_change import Changer
from storage_adapters.segment_log.settled_output import Pace
from storage_adapters.segment_log.settled_set import SettledSet
from storage_adapters.segment_log.settler import Settler
from storage_adapters.segment_log.sweeper import Sweeper
from storage_adapters.segment_log.synced import MarkFile
from storage_adapters.segment_log.wal_ring import new_ring
from storage_adapters.segment_log.writer import Writer

_NOT_OPEN: Final = "the log is not open"


class SegmentLog:
    """A write-ahead log shared by all topics, on a local file system.

    Durability, by ``flush``: ``group``: what was acknowledged survives a power loss;
    ``interval`` and ``never``: it survives ``kill -9``, and a power loss costs at most what was
    written since the last sync. The rest of the contract: ``gateway.storage.StorageAdapter``.

    ``copier`` and ``key_indexes``, which work on its files, exist once it is open.
    """

    Config = SegmentLogConfig

    def __init__(
        self,
        config: SegmentLogConfig,
        *,
        data_dir: Path,
        clock: Clock,
        files: Files | None = None,
    ) -> None:
        self._config = config
        self._data_dir = data_dir
        self._clock = clock
        self._files = HoldingFiles(SystemFiles() if files is None else files)
        self._may_ring = config.io_uring and config.flush == "group" and files is None
        self._lock = DataLock(data_dir)
        self.claim = self._lock.acquire  # see ``ClaimingStorage``
        self.keep_login_required = LoginFile(self._files, data_dir).keep  # see ``LoginStorage``
        self._catalog = Catalog(config)
        self._reader = Reader(self._catalog, config)
        self._pace = Pace(config.settle_bytes_per_s_max, lambda: self._writer.queued_bytes)
        self._closer = ThreadPoolExecutor(1, "headgate-footers")
        self._segment_closer: Closer
        self._host: StorageHost
        self._writer: Writer
        self._mark: MarkFile
        self._maker: SegmentMaker
        self._appender: Appender
        self._changer: Changer
        self._settler: Settler
        self._sweeper: Sweeper
        self._is_open = False
        self.copier: LogCopier
        self.key_indexes: KeyIndexes
        self.metrics = SegmentLogMetrics()
        self.data_uuid = UUID(int=0)
        self.is_empty = True  # nothing had been appended when it was opened
        self.cut_bytes = 0

    # The contract, in its order.

    @property
    def incarnation(self) -> int:
        """See ``StorageAdapter``."""
        return self._appender.active.header.incarnation

    @property
    def next_sequence(self) -> int:
        """See ``StorageAdapter``."""
        return self._appender.next_sequence

    @property
    def queued_bytes(self) -> int:
        """See ``StorageAdapter``."""
        return self._writer.queued_bytes

    async def open(self, host: StorageHost) -> None:
        """See ``StorageAdapter``. ``data_uuid`` and ``cut_bytes`` are known afterwards."""
        self._host = host
        try:
            opened = await asyncio.to_thread(self._open_data)
        except OSError as error:
            raise StorageUnavailable(f"{self._data_dir}: {error}") from error
        recovered, settled, first, self.data_uuid = opened
        for segment in recovered.segments:
            self._catalog.add(segment)
        if settled.manifest is not None:
            self._catalog.settled = SettledSet(settled.manifest, settled.segments)
        self.cut_bytes = recovered.cut_bytes
        self.is_empty = not recovered.segments and settled.manifest is None
        self._build(first, recovered.next_sequence)
        self._is_open = True

    def enqueue(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        """See ``StorageAdapter``."""
        if not self._is_open or self._writer.fault is not None:
            raise self._refusal()
        self._appender.append(entries, on_done, reserved=reserved)

    def bounds(self, partition_id: int) -> Bounds:
        """See ``StorageAdapter``."""
        state = self._catalog.state(partition_id)
        return Bounds(0, 0) if state.is_deleted else Bounds(state.start, state.end)

    def read_cached(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer] | None:
        """See ``StorageAdapter``."""
        state = self._catalog.state(partition_id)
        plan = self._reader.plan(state, start, end, bytes_max)
        batches = self._reader.read_cached(plan)
        if state.window is not None and batches is not None:
            self._reader.note(state, plan, is_cold=False)
        return batches

    async def read(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer]:
        """See ``StorageAdapter``."""
        state = self._catalog.state(partition_id)
        plan = self._reader.plan(state, start, end, bytes_max)
        self._reader.note(state, plan, is_cold=True)
        return await self._reader.read(plan)

    async def base_offset_for_time(
        self, partition_id: int, timestamp_unix_ms: int
    ) -> int | None:
        """See ``StorageAdapter``."""
        state = self._catalog.state(partition_id)
        return await queries.base_offset_for_time(
            self._catalog, self._reader, state, timestamp_unix_ms
        )

    def offset_for_size(self, partition_id: int, bytes_max: int) -> int:
        """See ``StorageAdapter``."""
        state = self._catalog.state(partition_id)
        return queries.offset_for_size(self._catalog, state, bytes_max)

    def end_offset_for_epoch(self, partition_id: int, leader_epoch: int) -> tuple[int, int]:
        """See ``StorageAdapter``."""
        state = self._catalog.state(partition_id)
        return queries.end_offset_for_epoch(self._catalog, state, leader_epoch)

    def size_bytes(self, partition_id: int) -> int:
        """See ``StorageAdapter``."""
        return queries.size_bytes(self._catalog, self._catalog.state(partition_id))

    def scan(self, from_sequence: int) -> Iterator[StoredHeader]:
        """See ``StorageAdapter``."""
        return stored_headers(tuple(self._catalog.segments.values()), from_sequence)

    def truncate_before(self, partition_id: int, offset: int, on_done: OnDone) -> None:
        """See ``StorageAdapter``."""
        if not self._is_open or self._writer.fault is not None:
            raise self._refusal()
        self._sweeper.truncate_before(partition_id, offset, on_done)

    def delete(self, partition_ids: Sequence[int], on_done: OnDone) -> None:
        """See ``StorageAdapter``."""
        if not self._is_open or self._writer.fault is not None:
            raise self._refusal()
        self._sweeper.delete(partition_ids, on_done)

    def release_scans_before(self, sequence: int) -> None:
        """See ``StorageAdapter``."""
        if self._is_open:
            self._settler.release_scans_before(sequence)

    def settled_offset(self, partition_id: int) -> int:
        """See ``StorageAdapter``."""
        return self._settler.rewriter.settled_offset(partition_id)

    async def rewrite(
        self, partition_id: int, upto_offset: int, keep: Keep, drops: Drops | None = None
    ) -> Rewritten:
        """See ``StorageAdapter``."""
        if not self._is_open or self._writer.fault is not None:
            raise self._refusal()
        return await self._settler.rewriter.rewrite(partition_id, upto_offset, keep, drops)

    async def spans_with_keys(
        self, partition_id: int, keys: WantedKeys, start: int, end: int
    ) -> KeySpans:
        """See ``IndexedStorage``."""
        return await self.key_indexes.spans_with_keys(partition_id, keys, start, end)

    def disk_usage(self) -> DiskUsage:
        """See ``StorageAdapter``."""
        settled = self._catalog.settled.segments.values()
        return DiskUsage(
            sum([segment.disk_bytes for segment in self._catalog.segments.values()]),
            sum([segment.disk_bytes for segment in settled]),
            self._files.room_bytes(self._data_dir),
        )

    async def close(self) -> None:
        """See ``StorageAdapter``. After a disk fault nothing more is written."""
        if not self._is_open:
            self._lock.release()
            return
        self._is_open = False
        await self._sweeper.stop()
        await self._writer.drain()
        if self._writer.fault is None:
            await self._close_cleanly()
        await self._writer.stop()
        self._mark.close()
        await asyncio.get_running_loop().run_in_executor(None, self._stop_threads)
        self._catalog.close()
        active = self._appender.active
        if active.fd >= 0:
            os.close(active.fd)
            active.fd = -1
        self._lock.release()

    # Values for metrics.

    @property
    def segments_count(self) -> int:
        """Number of the log's segment files, the active one included."""
        return len(self._catalog.segments)

    @property
    def disk_bytes(self) -> int:
        """Bytes that all segment files take, preallocated space included."""
        usage = self.disk_usage()
        return usage.log_bytes + usage.settled_bytes

    def register_metrics(self, metrics: Metrics) -> None:
        """Add the log's own metrics to the node's."""
        self.metrics.register(metrics)
        metrics.gauge("headgate_wal_segments", "Segment files.", lambda: self.segments_count)
        metrics.gauge(
            "headgate_wal_disk_bytes",
            "Bytes that segment files take, preallocated ones too.",
            lambda: self.disk_bytes,
        )

    # Opening.

    def _open_data(self) -> Opened:
        return open_data(
            self._data_dir,
            self._lock,
            files=self._files,
            segment_bytes=self._config.segment_bytes,
            clock=self._clock,
        )

    def _build(self, first: Segment, next_sequence: int) -> None:
        self._mark = MarkFile(self._data_dir, self.data_uuid)
        self._writer = Writer(
            files=self._files,
            config=self._config,
            handles=self._catalog.handles,
            metrics=self.metrics,
            mark=self._mark,
            ring=new_ring() if self._may_ring else None,
            durable_sequence=next_sequence - 1,
            on_group=self._on_group,
            on_fault=self._host.on_fault,
        )
        base = Dependencies(
            self._config,
            self._data_dir,
            self.data_uuid,
            first.header.incarnation,
            self._clock,
            self._files,
            self._catalog,
            self.metrics,
            self._writer,
            self._wake_sweeper,
        )
        self._maker = new_maker(base)
        self._segment_closer = new_closer(base, self._closer)
        self._appender = Appender(
            config=self._config,
            catalog=self._catalog,
            writer=self._writer,
            maker=self._maker,
            host=self._host,
            active=first,
            next_sequence=next_sequence,
            on_close=self._segment_closer.close,
        )
        self._changer = new_changer(base, self._maker.retry_soon)
        self._settler = new_settler(
            base, self._changer, self._pace, lambda: self._appender.next_sequence - 1
        )
        self._sweeper = Sweeper(
            catalog=self._catalog,
            appender=self._appender,
            maker=self._maker,
            files=self._files,
            executor=self._closer,
            metrics=self.metrics,
            on_error=self._writer.fail,
            settler=self._settler,
            idle=IdleCloser(self._appender, self._clock, self._config, self._wake_sweeper),
        )
        self.copier = LogCopier(
            self._catalog, self._writer, files=self._files, data_dir=self._data_dir
        )
        self.key_indexes = new_key_indexes(base, self._pace, self.read)

    def _wake_sweeper(self) -> None:
        self._sweeper.wake()

    def _refusal(self) -> StorageUnavailable:
        fault = self._writer.fault if self._is_open else None
        return StorageUnavailable(_NOT_OPEN if fault is None else str(fault))

    # Closing.

    def _on_group(self) -> None:
        self._appender.close_written()

    async def _close_cleanly(self) -> None:
        """Write the mark of a clean stop and a footer; leave only the header of an empty segment.

        The header must stay: it may be the only one that knows data uuid and incarnation.
        """
        active = self._appender.active
        if self._appender.next_sequence == active.first_sequence:
            self._files.truncate(active.fd, SEGMENT_HEADER_BYTES)
            return
        await self._writer.sync()  # The mark states that all before it is on the disk.
        with suppress(StorageFull):  # Without room for the mark, the footer alone must do.
            self._appender.append_internal(KIND_CLOSE, b"", [], lambda _: None)
        await self._writer.drain()
        self._appender.seal_last()
        await self._segment_closer.wait()

    def _stop_threads(self) -> None:
        self._maker.stop()
        self._reader.stop()
        self._changer.stop()
        self._closer.shutdown(wait=True)
