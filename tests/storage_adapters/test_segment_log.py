"""The segment log keeps the contract, in every flush policy."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from gateway.clock import ManualClock
from gateway.metrics import Metrics
from gateway.storage import StorageAdapter
from gateway.testing.compacting_storage import CompactingStorageContract
from gateway.testing.storage import Host, append, make_entry
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.files import Files
from tests.storage_adapters.disks import FailingFiles

MIB = 1_048_576


def new_log(data_dir: Path, **options: object) -> SegmentLog:
    """Return a log with the smallest segments there are."""
    return new_log_on(None, data_dir, options)


def new_log_on(files: Files | None, data_dir: Path, options: dict[str, object]) -> SegmentLog:
    options = {"segment_bytes": MIB, "reserve_bytes": 0, "settle_after_bytes": 0, **options}
    config = SegmentLogConfig.model_validate(options)
    return SegmentLog(config, data_dir=data_dir, clock=ManualClock(), files=files)


class SegmentLogContract(CompactingStorageContract):
    """Its disk fails when the next segment is made. ``options``: those of the log."""

    options: ClassVar[dict[str, object]]

    def new_storage(self, data_dir: Path) -> StorageAdapter:
        return new_log(data_dir, **self.options)

    def new_breakable(self, data_dir: Path) -> tuple[StorageAdapter, Callable[[], None]]:
        files = FailingFiles("create")
        return new_log_on(files, data_dir, self.options), files.fail


class TestGroup(SegmentLogContract):
    options: ClassVar = {"flush": "group"}


class TestGroupByThread(SegmentLogContract):
    options: ClassVar = {"flush": "group", "io_uring": False}


class TestNever(SegmentLogContract):
    options: ClassVar = {"flush": "never"}


class TestInterval(SegmentLogContract):
    options: ClassVar = {"flush": "interval", "flush_interval_ms": 10}


async def test_metrics_are_shown(tmp_path: Path) -> None:
    log, metrics = new_log(tmp_path, io_uring=False), Metrics()
    await log.open(Host())
    log.register_metrics(metrics)

    await append(log, make_entry((1, 0), size_bytes=1_000))

    text = metrics.render().decode()
    assert "headgate_wal_syncs_total 1.0" in text
    assert "headgate_wal_sync_seconds_count 1.0" in text
    assert 'headgate_wal_group_bytes_bucket{le="4096' in text
    assert "headgate_wal_io_uring 0.0" in text
    assert "headgate_wal_segments 1.0" in text
    await log.close()
